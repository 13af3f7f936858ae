"""Random strongly convex problems for property tests, and what is compared on them."""

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, quadratics

from fltune.federation import LocalSGD
from fltune.federation.work import WorkPerClient
from fltune.server.fedgm import FedSGD


@dataclass
class Problem:
    """Random strongly convex clients, and who takes part when."""

    A: torch.Tensor
    b: torch.Tensor
    x0: list
    cohorts: list
    steps: list

    @property
    def clients(self):
        return len(self.b)

    @property
    def everyone(self):
        return [list(range(self.clients))] * len(self.cohorts)

    def gradients(self, x):
        """grad f_i(x_i) of all clients, [N, d]."""
        return torch.einsum("nij,nj->ni", self.A, x - self.b)

    def run(self, algorithm, cohorts=None, lr=0.1, eta_g=0.8, steps=3, unequal=False, **options):
        sgd = {"steps": steps, "batch_size": None}
        for name in ("momentum", "schedule", "weight_decay"):
            if name in options:
                sgd[name] = options.pop(name)
        recorded, _ = fit(
            quadratics(self.A.tolist(), self.b.tolist()),
            FedSGD(eta_g),
            x0=self.x0,
            cohorts=self.cohorts if cohorts is None else cohorts,
            algorithm=algorithm,
            sgd=LocalSGD(lr, **sgd),
            work=WorkPerClient(self.steps) if unequal else None,
            **options,
        )
        return recorded


@st.composite
def problems(draw):
    clients, dimension = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    M = normal(clients, dimension, dimension)
    A = 0.5 * torch.eye(dimension) + M.mT @ M / dimension
    ids = st.sets(st.integers(0, clients - 1)).map(sorted)
    cohorts = draw(st.lists(ids, min_size=2, max_size=6))
    steps = draw(st.lists(st.integers(1, 4), min_size=clients, max_size=clients))
    return Problem(A, normal(clients, dimension), normal(dimension).tolist(), cohorts, steps)


def property_test(examples=8):
    """Random problems, the same ones in every run."""

    def decorate(test):
        drawn = given(problem=problems())(test)
        return settings(max_examples=examples, deadline=None, derandomize=True)(drawn)

    return decorate


def path(recorded):
    return torch.stack(recorded.x)


def positions(problem, recorded):
    """x before the first round and after each."""
    return [torch.tensor(problem.x0, dtype=torch.float64), *recorded.x]


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def of(problem):
    return quadratics(problem.A.tolist(), problem.b.tolist())


def grad(problem, i, w):
    return problem.A[i] @ (w - problem.b[i])


def prox(problem, i, y, eta):
    """argmin_z f_i(z) + |z - y|^2 / (2 eta)."""
    A = problem.A[i]
    eye = torch.eye(len(y), dtype=y.dtype)
    return torch.linalg.solve(eye + eta * A, y + eta * A @ problem.b[i])


def steps_from(problem, i, w, lr, count, extra=lambda w: 0.0):
    for _ in range(count):
        w = w - lr * (grad(problem, i, w) + extra(w))
    return w
