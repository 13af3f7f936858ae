"""``loop`` is the reference; the other strategies give its numbers, whatever the cohort."""

import copy
import math
import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fltune.data.federated import Split
from fltune.federation import LocalProblem, LocalSGD, LocalSolver, strategies
from fltune.federation.batches import Holdings, plan_batches
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy, squared_error
from fltune.federation.strategies import choose_strategy
from fltune.models.dropout import KeyedDropout
from fltune.models.linear import Linear
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


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_own_numbers_are_those_of_an_optimizer_for_each_client(strategy):
    """Momentum and weight decay of the problem stand for those of the clients' optimizer."""
    momenta, decays = (0.0, 0.9, 0.3, 0.5), (0.2, 0.0, 0.1, 0.4)
    setting = Setting(SGDS["all"])
    asked = LocalProblem(setting.x, momentum=column(*momenta), weight_decay=column(*decays))
    found = setting.solve(strategy, asked)
    for i, (momentum, decay) in enumerate(zip(momenta, decays, strict=True)):
        sgd = replace(SGDS["all"], momentum=momentum, weight_decay=decay)
        expected = Setting(sgd).solve("loop", clients=[i])
        torch.testing.assert_close(found.end[i], expected.end[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("strategy", ["stacked", "dense"])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("sgd", SGDS)
def test_batched_strategies_are_the_loop(sgd, problem, strategy):
    setting = Setting(SGDS[sgd])
    asked = PROBLEMS[problem](setting)
    assert_same(setting.solve(strategy, asked), setting.solve("loop", asked))


@pytest.mark.parametrize("sgd", ["steps", "all"])
@pytest.mark.parametrize("network", [conv, lambda: mlp(0.4)], ids=["conv", "dropout"])
def test_stacked_is_loop_for_other_networks(network, sgd):
    setting = Setting(SGDS[sgd], network)
    assert_same(setting.solve("stacked"), setting.solve("loop"))


def test_dropout_takes_part_in_local_work():
    with_dropout = Setting(SGDS["epochs"], lambda: mlp(0.4)).solve("loop").end
    assert not torch.allclose(with_dropout, Setting(SGDS["epochs"]).solve("loop").end)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.none() | st.integers(1, 10),
    st.integers(0, 99),
    st.data(),
)
def test_batched_strategies_are_the_loop_on_uneven_cohorts(sizes, batch_size, seed, data):
    amounts = data.draw(st.lists(st.integers(0, 4), min_size=len(sizes), max_size=len(sizes)))
    unit = data.draw(st.sampled_from(["epochs", "steps"]))
    sgd = LocalSGD(lr=0.2, batch_size=batch_size, momentum=0.5, **{unit: 1})
    setting = Setting(sgd, lambda: mlp(0.3), sizes, seed)
    asked = LocalProblem(setting.x, correction=setting.per_client(0.1), gradient_sum=True)
    loop = setting.solve("loop", asked, amounts=amounts)
    for strategy in ("stacked", "dense"):
        assert_same(setting.solve(strategy, asked, amounts=amounts), loop)


NETWORKS = {"mlp": mlp, "dropout": lambda: mlp(0.4), "conv": conv}


@pytest.mark.parametrize(
    ("strategy", "network"),
    [
        (strategy, name)
        for strategy in ("loop", "stacked", "dense")
        for name in NETWORKS
        if (strategy, name) != ("dense", "conv")  # convolutions are not dense
    ],
)
@pytest.mark.parametrize("clients", [[0], [1, 3], [3, 0, 2, 1]], ids=str)
def test_a_client_does_not_feel_its_cohort(strategy, clients, network):
    """Not who else takes part, nor in which order; to the last bit where clients are a loop."""
    setting = Setting(SGDS["all"], NETWORKS[network])
    alone = setting.solve(strategy, clients=clients)
    everyone = setting.solve(strategy)
    assert torch.equal(alone.steps, everyone.steps[clients])
    tolerance = 0.0 if strategy == "loop" else 1e-12
    for a, b in ((alone.end, everyone.end), (alone.loss, everyone.loss)):
        torch.testing.assert_close(a, b[clients], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_gradient_sum_holds_plain_gradients_only(strategy):
    """Without momentum: start - end = lr (sum of gradients + K correction)."""
    setting = Setting(SGDS["steps"])
    correction = setting.per_client(1.0)
    asked = LocalProblem(setting.x, correction=correction, gradient_sum=True)
    result = setting.solve(strategy, asked)
    moved = (setting.x - result.end) / setting.sgd.lr
    expected = result.gradient_sum + result.steps.unsqueeze(1) * correction
    torch.testing.assert_close(moved, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_frozen_gradients_are_all_taken_at_the_start(strategy):
    setting = Setting(SGDS["full_batch"])
    frozen = setting.solve(strategy, LocalProblem(setting.x, frozen=True, gradient_sum=True))
    once = setting.solve(strategy, LocalProblem(setting.x, gradient_sum=True), amounts=[1] * 4)
    torch.testing.assert_close(frozen.gradient_sum, 3 * once.gradient_sum, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(setting.x - frozen.end, 3 * (setting.x - once.end))


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_a_proximal_weight_of_zero_changes_nothing(strategy):
    setting = Setting(SGDS["epochs"])
    prox = setting.solve(strategy, LocalProblem(setting.x, mu=0.0, anchor=setting.x + 1))
    assert torch.equal(prox.end, setting.solve(strategy).end)


def test_a_proximal_weight_needs_an_anchor():
    setting = Setting(SGDS["epochs"])
    with pytest.raises(ValueError, match=r"mu = 0\.5 needs an anchor"):
        setting.solve("loop", LocalProblem(setting.x, mu=0.5))


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_the_callers_random_numbers_are_left_alone(strategy):
    solve = Setting(SGDS["epochs"], lambda: mlp(0.4)).ready(strategy)
    state = torch.get_rng_state()
    solve()
    assert torch.equal(torch.get_rng_state(), state)


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


@pytest.mark.parametrize("sgd", SGDS)
@pytest.mark.parametrize("problem", ["own_prox", "frozen", "correction"])
def test_dense_reads_networks_written_by_hand(sgd, problem):
    setting = Setting(SGDS[sgd], by_hand)
    asked = PROBLEMS[problem](setting)
    loop = setting.solve("loop", asked)
    assert_same(setting.solve("dense", asked), loop)
    assert not torch.allclose(loop.end, setting.x)


@pytest.mark.parametrize("strategy", ["stacked", "dense"])
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["vectors", "matrices"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_squared_errors_of_vectors_and_matrices(shape, bias, strategy):
    """Also of layers that work on the last of several dimensions."""
    layers = [nn.Linear(shape[-1], 4), nn.Tanh(), nn.Linear(4, 2, bias=bias), nn.Flatten()]
    setting = Setting(SGDS["all"], lambda: nn.Sequential(*map(copy.deepcopy, layers)).double())
    chance = torch.Generator().manual_seed(1)
    n = len(setting.data)
    x = torch.randn(n, *shape, generator=chance, dtype=torch.float64)
    y = torch.randn(n, 2 * math.prod(shape[:-1]), generator=chance, dtype=torch.float64)
    setting.data, setting.losses = Split(x, y), squared_error
    assert_same(setting.solve(strategy), setting.solve("loop"))


@pytest.mark.parametrize("make", [Residual, Twice, Deciding, part_frozen, hooked, normed, conv])
def test_dense_refuses_what_is_no_chain(make):
    name = type(make()).__name__
    with pytest.raises(ValueError, match=rf"'dense' is for chains .*{name} is none, use .* auto"):
        LocalSolver(FlatNetwork(make()), cross_entropy, LocalSGD(), "dense")


def test_dense_refuses_losses_that_it_does_not_know():
    def absolute(output, target):
        return (output - target).abs().flatten(1).sum(1)

    with pytest.raises(ValueError, match="cross_entropy and squared_error, not absolute"):
        LocalSolver(FlatNetwork(mlp()), absolute, LocalSGD(), "dense")
    assert choose_strategy(mlp(), absolute) == "auto"


AUTO = {
    "mlp": (lambda: mlp(), "dense"),
    "dropout": (lambda: mlp(0.5), "dense"),
    "keyed": (lambda: nn.Sequential(nn.Linear(2, 2), KeyedDropout(0.5, 0)), "dense"),
    "linear": (lambda: Linear((3,)), "dense"),
    "by_hand": (by_hand, "dense"),
    "walking": (Walking, "dense"),
    "residual": (Residual, "auto"),
    "deciding": (Deciding, "auto"),
    "large": (large, "auto"),
    "conv": (conv, "auto"),
    "recurrent": (lambda: nn.GRU(2, 2), "loop"),
}


@pytest.mark.parametrize("name", AUTO)
def test_auto_goes_by_the_model(name):
    make, expected = AUTO[name]
    assert choose_strategy(make(), cross_entropy) == expected
    solver = LocalSolver(FlatNetwork(make()), cross_entropy, LocalSGD(), "auto")
    assert solver.strategy == expected


BY_COHORT = {
    "many": (Residual, 4, {}, "stacked"),
    "few": (Residual, 3, {}, "loop"),
    "large": (large, 6, {"batch_size": None}, "loop"),
    "small_steps": (large, 6, {"batch_size": 3}, "stacked"),
    "conv": (conv, 9, {}, "stacked"),
}


@pytest.mark.parametrize("name", BY_COHORT)
def test_auto_goes_by_the_cohort(name):
    make, clients, changes, expected = BY_COHORT[name]
    sgd = LocalSGD(lr=0.3, **{"epochs": 1, "batch_size": 3, **changes})
    setting = Setting(sgd, lambda: make().double(), sizes=[40] * clients)
    solve = setting.ready("auto")
    found = solve()
    assert solve.func.__self__.strategy == expected
    assert torch.equal(found.end, setting.solve(expected).end)


def test_the_work_of_a_network_is_counted_once_and_leaves_it_alone():
    flat = FlatNetwork(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)))
    assert flat.flops(torch.zeros(4, 6)) == 2 * (6 * 5 + 5 * 3)
    assert flat.network.training
    assert flat.flops(torch.zeros(0, 9)) == 90


def test_unknown_strategy():
    text = r"'stack'; must be auto, fastest or one of \['loop', 'stacked', 'dense'\]"
    with pytest.raises(ValueError, match=text):
        LocalSolver(FlatNetwork(mlp()), cross_entropy, LocalSGD(), "stack")


@pytest.fixture
def clock(monkeypatch):
    """Says how long a strategy takes, instead of the clock; ``asked`` are those it timed."""
    monkeypatch.setattr(strategies, "_timed", {})
    slowness = {"loop": 2.0, "stacked": 1.0, "dense": 3.0}
    asked = []

    def seconds(solve, device, work):
        solve(*work)
        name = next(k for k, v in strategies.STRATEGIES.items() if v is solve)
        asked.append(name)
        return slowness[name]

    monkeypatch.setattr(strategies, "_seconds", seconds)
    return SimpleNamespace(slowness=slowness, asked=asked)


@pytest.mark.parametrize("name", ["loop", "stacked", "dense"])
def test_fastest_is_the_strategy_that_it_chose(clock, name):
    """To the last bit, and nothing of the others is left in the random numbers or the model."""
    clock.slowness[name] = 0.5
    setting = Setting(SGDS["all"], lambda: mlp(0.4))
    solve = setting.ready("fastest")
    state = torch.get_rng_state()
    found, expected = solve(), setting.solve(name)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(found.end, expected.end)
    assert torch.equal(found.loss, expected.loss)
    solver = solve.func.__self__
    assert solver.strategy == name
    assert solver.timings == clock.slowness
    assert torch.equal(solver.network.read(), setting.x)


def test_fastest_is_timed_once_for_each_shape(clock):
    setting = Setting(SGDS["steps"])
    solve = setting.ready("fastest")
    solve()
    solve()
    setting.solve("fastest")
    once = len(clock.asked)
    assert once == 3 * (1 + strategies.REPETITIONS)
    setting.solve("fastest", clients=[0, 2])
    assert len(clock.asked) == 2 * once


def test_fastest_leaves_out_what_the_network_does_not_allow(clock):
    solve = Setting(SGDS["steps"], conv).ready("fastest")
    solve()
    assert solve.func.__self__.timings == {"loop": 2.0, "stacked": 1.0}
