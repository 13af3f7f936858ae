"""What a method of one's own returns is looked at where it arises."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from quadratics import A, B, fit, quadratics

from fltune.algorithms.base import Algorithm, mean_gradient, weighted_sum
from fltune.errors import ConfigError
from fltune.federation.compression import TopK
from fltune.federation.local import LocalProblem
from fltune.server.base import ServerOptimizer

COHORTS = [[], [0, 1], [2]]


@dataclass(frozen=True)
class Returns(Algorithm):
    """FedAvg, but for what it makes of its result (D, state)."""

    change: Any = None

    def aggregate(self, x, server, message, info):
        return self.change(weighted_sum(info.weights, message["update"]), server, message)


@dataclass(frozen=True)
class Says(Algorithm):
    """FedAvg, which sends more."""

    more: dict[str, Any] = field(default_factory=dict)

    def uplink(self, x, server, client, result, info):
        update = x - result.end
        more = {name: make(update) for name, make in self.more.items()}
        return {"update": update, **more}, client


class MeansGradients(Algorithm):
    """Asks for gradients only afterwards."""

    def uplink(self, x, server, client, result, info):
        return {"update": mean_gradient(result)}, client


class SaysTwo(Says):
    up: ClassVar[float] = 2.0


class Counts(Says):
    def bits_up(self, dimension, compressor):
        return 1.0


class Renames(Algorithm):
    """Calls its entry something else than ``compressed`` does."""

    def uplink(self, x, server, client, result, info):
        return {"delta": x - result.end}, client

    def aggregate(self, x, server, message, info):
        return weighted_sum(info.weights, message["delta"]), server


class Named(Renames):
    compressed: ClassVar[tuple[str, ...]] = ("delta",)


@dataclass(frozen=True)
class Mistaken(Algorithm):
    """FedAvg with a memory, but for one function that gives something else."""

    instead: dict[str, Any] = field(default_factory=dict)

    def _given(self, name, right, *args):
        return self.instead[name](right, *args) if name in self.instead else right

    def server_state(self, x, num_clients):
        return self._given("server_state", {"last": x})

    def client_state(self, x):
        return self._given("client_state", {"mine": x})

    def local_problem(self, x, server, client, info):
        return self._given("local_problem", LocalProblem(x, mu=0.1, anchor=client["mine"]))

    def uplink(self, x, server, client, result, info):
        return self._given("uplink", ({"update": x - result.end}, {"mine": result.end}))

    def downlink(self, x, server, client, message, d, info):
        return self._given("downlink", client)


def run(algorithm, **options):
    return fit(quadratics(A, B), cohorts=COHORTS, algorithm=algorithm, **options)[0]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda d, state, message: d, r"a tensor \[2\], torch\.float64"),
        (lambda d, state, message: (state, d), r"\(a dict, a tensor \[2\], torch\.float64\)"),
        (
            lambda d, state, message: (message["update"], state),
            r"\(a tensor \[2, 2\], torch\.float64, a dict\)",
        ),
        (lambda d, state, message: (d[:1], state), r"\(a tensor \[1\], .*, a dict\)"),
        (lambda d, state, message: (d.float(), state), r"\(a tensor \[2\], torch\.float32, .*\)"),
        (lambda d, state, message: (0.0, state), r"\(a float, a dict\)"),
        (lambda d, state, message: (d, None), r"\(a tensor .*, None\)"),
        (lambda d, state, message: (d, {"t": 1}), r"\(a tensor .*, a dict with 't': int\)"),
        (lambda d, state, message: (d, state, state), r"\(a tensor .*, a dict, a dict\)"),
        (lambda d, state, message: None, "None"),
    ],
)
def test_the_result_of_aggregate_is_a_pair(change, found):
    words = rf"^algorithm: Returns\.aggregate must return \(D \[d\] or None, state\); found {found}"
    with pytest.raises(ConfigError, match=rf"{words}; here d = 2, torch\.float64, and state is"):
        run(Returns(change=change))


def test_gradients_have_to_be_asked_for():
    with pytest.raises(ConfigError, match=r"mean_gradient needs LocalProblem\(.*gradient_sum=True"):
        run(MeansGradients())


def test_no_pseudo_gradient_and_new_state_are_a_result():
    recorded = run(Returns(change=lambda d, state, message: (None, {"last": d})))
    assert recorded.d == [None, None, None]
    assert recorded.server[-1]["last"].shape == (2,)


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({"other": lambda u: u}, "2"),
        ({"other": lambda u: torch.cat([u, u], 1), "scale": lambda u: u[:, :1]}, "3"),
        ({"other": lambda u: u.unsqueeze(1).expand(-1, 3, 2)}, "4"),
    ],
)
def test_traffic_that_is_not_counted_is_refused(more, sent):
    words = rf"^algorithm: Says\.uplink sends {sent} d floats, but up = 1: set `up = {sent}\.0`"
    with pytest.raises(ConfigError, match=words):
        run(Says(more=more))


@pytest.mark.parametrize(
    "algorithm",
    [
        SaysTwo(more={"other": lambda u: u}),
        Counts(more={"other": lambda u: u}),
        Says(more={"loss": lambda u: u.sum(1), "scale": lambda u: u[:, :1]}),
    ],
)
def test_traffic_that_is_counted_is_not(algorithm):
    assert len(run(algorithm).x) == len(COHORTS)


@pytest.mark.parametrize("compressor", [TopK(1), TopK(1, error_feedback=True)], ids=str)
def test_compressing_what_is_not_sent_is_refused(compressor):
    words = r"^algorithm: Renames\.compressed names 'update', and Renames\.uplink sends 'delta'"
    with pytest.raises(ConfigError, match=words + r".*`compressed = \('delta',\)`"):
        run(Renames(), compressor=compressor)
    assert len(run(Named(), compressor=compressor).x) == len(COHORTS)


def test_a_run_without_compression_asks_for_no_entry():
    assert len(run(Renames()).x) == len(COHORTS)


ROWS = r"client_state has 'mine'; .* with a row for each of 2 clients, \[2, 2\]; found "


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("server_state", lambda s: None, r"server_state must return a dict of tensors; found None"),
        (
            "client_state",
            lambda s: {"mine": 0.0},
            r"client_state must .* with 'mine': float",
        ),
        ("local_problem", lambda p: None, r"local_problem must return a LocalProblem; found None"),
        (
            "local_problem",
            lambda p: replace(p, start=p.anchor.repeat(2, 1)),
            r"local_problem: start has shape \[4, 2\]; must be \[2\] for all, or \[2, 2\] for",
        ),
        (
            "local_problem",
            lambda p: replace(p, mu=torch.ones(2)),
            r"local_problem: mu has shape \[2\]; must be a number for all, or \[2, 1\] for the 2",
        ),
        (
            "local_problem",
            lambda p: replace(p, anchor=None),
            r"local_problem: mu needs an anchor, the point \[d\] that it pulls toward",
        ),
        ("uplink", lambda s: s[0], r"uplink must return \(message, state\), .*; found a dict"),
        (
            "uplink",
            lambda s: ({"update": s[0]["update"].mean(0, keepdim=True)}, s[1]),
            r"uplink must .* for each of 2 clients; found .*, with 'update' of shape \[1, 2\]",
        ),
        ("uplink", lambda s: (s[0], {}), ROWS + "nothing"),
        ("downlink", lambda s: {"mine": s["mine"].mean(0)}, ROWS + r"shape \[2\]"),
        ("downlink", lambda s: None, r"downlink must return a dict of tensors; found None"),
    ],
)
def test_what_a_function_gives_instead_is_named(name, change, words):
    assert len(run(Mistaken()).x) == len(COHORTS)
    with pytest.raises(ConfigError, match=rf"^algorithm: Mistaken(\.|: ){words}"):
        run(Mistaken(instead={name: change}))


@dataclass(eq=False)
class Moves(ServerOptimizer):
    """A server step of a test's own."""

    first: Any = None
    moved: Any = None

    def start(self, x):
        return {} if self.first is None else self.first

    def step(self, x, d, state, round):
        return self.moved(x - d)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Moves(moved=lambda x: x), r"step must return the moved model \[2\] and the new state"),
        (Moves(moved=lambda x: (x.mean(), {})), r"step must return the moved model \[2\]"),
        (
            Moves(moved=lambda x: (x, {"t": 1})),
            r"step must .*, a dict of tensors; \{\} where",
        ),
        (Moves(first={"t": 0}, moved=lambda x: (x, {})), r"start must return a dict of tensors"),
    ],
)
def test_what_a_server_gives_instead_is_named(server, words):
    with pytest.raises(ConfigError, match=rf"^server: Moves\.{words}"):
        run(Mistaken(), server=server)
