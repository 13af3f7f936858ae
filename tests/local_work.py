"""Local work of small cohorts, and networks of all sorts, for tests of the strategies."""

import random
from functools import partial

import torch
from torch import nn

from fltune.data.federated import Split
from fltune.federation import LocalProblem, LocalSGD, LocalSolver
from fltune.federation.batches import Holdings, plan_batches
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.models.mlp import MLP
from fltune.randomness import client_keys

SIZES = [7, 1, 12, 4]


def mlp(dropout=0.0):
    torch.manual_seed(0)
    return MLP((6,), 3, hidden=[5, 4], dropout=dropout).double()


def conv():
    torch.manual_seed(0)
    layers = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(4, 3)).double()


class Setting:
    """A cohort of clients with given sizes, and a solver for it."""

    def __init__(self, sgd, network=mlp, sizes=SIZES, seed=0):
        self.sgd, self.make, self.sizes, self.seed = sgd, network, torch.tensor(sizes), seed
        random = torch.Generator().manual_seed(seed)
        n = sum(sizes)
        self.data = Split(
            torch.randn(n, 6, generator=random, dtype=torch.float64),
            torch.randint(3, (n,), generator=random),
        )
        self.losses = cross_entropy
        self.x = FlatNetwork(network()).read()

    def per_client(self, scale):
        random = torch.Generator().manual_seed(99)
        shape = (len(self.sizes), len(self.x))
        return scale * torch.randn(shape, generator=random, dtype=torch.float64)

    def solve(self, *args, **options):
        return self.ready(*args, **options)()

    def ready(self, strategy, problem=None, clients=None, amounts=None):
        """Build everything, and return the call of the solver."""
        ids = torch.arange(len(self.sizes)) if clients is None else torch.tensor(clients)
        start = self.sizes.cumsum(0) - self.sizes
        held = Holdings(torch.arange(len(self.data)), start[ids], self.sizes[ids])
        keys = client_keys(self.seed, 3, ids)
        amount = torch.tensor(amounts or [self.sgd.amount] * len(self.sizes))[ids]
        plan = plan_batches(held, keys, amount, self.sgd.unit, self.sgd.batch_size)
        solver = LocalSolver(FlatNetwork(self.make()), self.losses, self.sgd, strategy)
        problem = problem or LocalProblem(start=self.x)
        return partial(solver.solve, problem, self.data, plan, self.sgd.lr, keys)


def assert_same(a, b, tolerance=1e-12):
    for name in ("end", "loss", "steps", "gradient_sum"):
        left, right = getattr(a, name), getattr(b, name)
        if left is not None or right is not None:
            torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


SGDS = {
    "epochs": LocalSGD(lr=0.3, epochs=2, batch_size=3),
    "steps": LocalSGD(lr=0.3, steps=5, batch_size=3),
    "full_batch": LocalSGD(lr=0.3, steps=3, batch_size=None),
    "batch_of_one": LocalSGD(lr=0.1, epochs=1, batch_size=1),
    "momentum": LocalSGD(lr=0.1, epochs=2, batch_size=3, momentum=0.9),
    "weight_decay": LocalSGD(lr=0.3, epochs=2, batch_size=3, weight_decay=0.1),
    "all": LocalSGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5, weight_decay=0.01),
    "clipped": LocalSGD(lr=0.3, epochs=2, batch_size=3, clip_norm=0.5),
    "all_clipped": LocalSGD(
        lr=0.1, epochs=2, batch_size=4, momentum=0.5, weight_decay=0.01, clip_norm=0.5
    ),
}
PROBLEMS = {
    "plain": lambda s: LocalProblem(s.x),
    "own_starts": lambda s: LocalProblem(s.x + s.per_client(0.1)),
    "correction": lambda s: LocalProblem(s.x, correction=s.per_client(0.5)),
    "shared_correction": lambda s: LocalProblem(s.x, correction=s.per_client(0.5)[0]),
    "prox": lambda s: LocalProblem(s.x, mu=0.4, anchor=s.x),
    "own_prox": lambda s: LocalProblem(
        s.x, mu=torch.tensor([[0.1], [0.2], [0.3], [0.4]]).double(), anchor=s.per_client(1.0)
    ),
    "lr_scale": lambda s: LocalProblem(s.x, lr_scale=0.25),
    "own_lr_scale": lambda s: LocalProblem(s.x, lr_scale=torch.tensor([[1.0], [2], [3], [0]])),
    "own_momentum": lambda s: LocalProblem(s.x, momentum=column(0.0, 0.9, 0.3, 0.5)),
    "own_weight_decay": lambda s: LocalProblem(s.x, weight_decay=column(0.2, 0.0, 0.1, 0.4)),
    "own_numbers": lambda s: LocalProblem(
        s.x, mu=0.4, anchor=s.x, lr_scale=column(1.0, 2, 3, 0), weight_decay=column(1.0, 0, 2, 3)
    ),
    "no_momentum": lambda s: LocalProblem(s.x, momentum=0.0, weight_decay=0.0),
    "frozen": lambda s: LocalProblem(s.x, frozen=True, gradient_sum=True),
    "gradient_sum": lambda s: LocalProblem(s.x, correction=s.per_client(1.0), gradient_sum=True),
}


def column(*values):
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


class ByHand(nn.Module):
    """The MLP of these tests, as one writes it without ``nn.Sequential``."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)  # parameters in another order than they are used
        self.first = nn.Linear(6, 5)
        self.second = nn.Linear(5, 4, bias=False)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        hidden = torch.tanh(self.first(torch.flatten(x, 1)))
        return self.last(self.drop(nn.functional.relu(self.second(hidden))).sigmoid())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x + self.inner(x).relu())


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.inner(self.inner(x)))


class Deciding(nn.Module):
    """Skips a layer at random; a trace would keep or drop it for ever."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def hidden(self, x):
        return self.inner(x) if random.random() < 1 else x

    def forward(self, x):
        return self.out(self.hidden(x))


class Walking(Deciding):
    """Walks through its layers, which is no decision."""

    def hidden(self, x):
        for layer in (self.inner,):
            x = layer(x)
        return x


def by_hand():
    torch.manual_seed(0)
    return ByHand().double()


def part_frozen():
    network = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    network[0].bias.requires_grad = False
    return network


def hooked():
    network = nn.Sequential(nn.Linear(6, 3))
    network[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return network


def normed():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)))


def large():
    return nn.Sequential(nn.Linear(6, 300), nn.GELU(), nn.Linear(300, 400), nn.Linear(400, 3))
