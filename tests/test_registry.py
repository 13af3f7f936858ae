"""Components of one's own by import path: of the right kind, importable, and with their fields."""

import sys
from dataclasses import dataclass
from textwrap import dedent

import pytest

from fltune.algorithms.base import Algorithm
from fltune.data.dataset import split_anew
from fltune.data.digits import Digits
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.parameters import parameter
from fltune.pieces import load_data
from fltune.report.listing import REGISTRIES
from fltune.search.config import SearchConfig

PARTS = """
    from dataclasses import dataclass
    from typing import Any, ClassVar

    from fltune.algorithms.base import Algorithm
    from fltune.algorithms.fedprox import FedProx
    from fltune.federation.clock import RunningClock
    from fltune.federation.schedules import Schedule
    from fltune.parameters import parameter
    from fltune.participation.base import Participation
    from fltune.server.base import ServerOptimizer

    class Nothing:
        pass

    def function():
        pass

    class Undecorated(Algorithm):
        mu: float = parameter(0.1, "a weight")

    class Plain(Algorithm):
        mu: float = 0.1

    @dataclass(frozen=True)
    class Below(Plain):
        nu: float = parameter(0.1, "a weight")

    class Pattern(Participation):
        k: int = 3

    class Server(ServerOptimizer):
        lr: float = 0.5

    class Factor(Schedule):
        period: float = 10.0

    class Renamed(FedProx):
        label: ClassVar[str] = "mine"
        _seen: int = 0
        last: Any

    class ByHand(ServerOptimizer):
        lr: float = 0.5

        def __init__(self, lr: float = 1.0) -> None:
            self.lr = lr

        def step(self, x, d, state, round):
            return x - self.lr * d, state

    @dataclass(frozen=True)
    class Sends(Algorithm):
        up: float = parameter(0.5, "share of the entries that is sent")

    @dataclass(frozen=True)
    class Aims(Algorithm):
        target: float = parameter(0.5, "accuracy to reach")

    @dataclass(eq=False)
    class Phased(Participation):
        seed: int = parameter(0, "of the phases")

    @dataclass(eq=False)
    class Warm(ServerOptimizer):
        rounds: int = parameter(5, "of the warm-up")

    @dataclass(frozen=True)
    class Sorted(FedProx):
        kind: str = parameter("a", "of a variant", choices=("a", "b"))

    class Net:
        def __init__(self, num_classes, build=1):
            pass

    class NoDraw(Participation):
        pass

    class NoStep(ServerOptimizer):
        pass

    class NoFactor(Schedule):
        pass

    class NoSpeeds(RunningClock):
        pass
"""


@pytest.fixture
def parts(tmp_path, monkeypatch):
    (tmp_path / "parts_by_path.py").write_text(dedent(PARTS), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def problem_of(raw):
    with pytest.raises(ConfigError) as caught:
        Experiment.parse(raw)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"algorithm": "NAME"}, "algorithm; subclass it from fltune.algorithms.base.Algorithm"),
        ({"data": "NAME"}, "data set; subclass it from fltune.data.dataset.Dataset"),
        (
            {"data": {"partition": {"kind": "NAME"}}},
            "partition; subclass it from fltune.data.partition.Partition",
        ),
        (
            {"participation": "NAME"},
            "participation pattern; subclass it from fltune.participation.base.Participation",
        ),
        (
            {"compression": "NAME"},
            "compressor; subclass it from fltune.federation.compression.Compressor",
        ),
        ({"work": "NAME"}, "local work; subclass it from fltune.federation.work.LocalWork"),
        ({"delays": "NAME"}, "delay model; subclass it from fltune.federation.delays.Delays"),
        ({"clock": "NAME"}, "clock; subclass it from fltune.federation.clock.Clock"),
        (
            {"client": {"schedule": "NAME"}},
            "schedule; subclass it from fltune.federation.schedules.Schedule",
        ),
        (
            {"server": "NAME"},
            "server optimizer; subclass it from fltune.server.base.ServerOptimizer",
        ),
    ],
    ids=lambda given: str(given)[:20],
)
@pytest.mark.parametrize(
    "name", ["parts_by_path:Nothing", "parts_by_path:function", "torch.nn:GRU"]
)
def test_what_is_of_another_kind(raw, text, name, parts):
    def named(value):
        return {k: named(v) for k, v in value.items()} if isinstance(value, dict) else name

    problem = problem_of(named(raw))
    key, _, said = problem.partition(": ")
    assert key in {f"{dotted}.{last}" for dotted in _sections(raw) for last in ("name", "kind")}
    assert said == f"{name} is no {text}"


def _sections(raw):
    for key, value in raw.items():
        yield key
        if isinstance(value, dict):
            yield from (f"{key}.{below}" for below in _sections(value))


@pytest.mark.parametrize(
    ("raw", "method"),
    [
        ({"participation": {"kind": "parts_by_path:NoDraw"}}, "draw"),
        ({"server": "parts_by_path:NoStep"}, "step"),
        ({"client": {"schedule": "parts_by_path:NoFactor"}}, "__call__"),
        ({"clock": "parts_by_path:NoSpeeds"}, "speeds"),
        ({"participation": "fltune.participation.base:Participation"}, "draw"),
    ],
    ids=str,
)
def test_what_a_class_has_left_open_is_named(raw, method, parts):
    assert problem_of(raw).endswith(f" is not complete: it must define {method}")


def test_an_optimizer_of_torch_is_a_server_but_no_algorithm():
    assert Experiment.parse({"server": "torch.optim:SGD"}).server.of_torch
    assert "is no algorithm" in problem_of({"algorithm": "torch.optim:SGD"})


def test_a_server_evaluates_no_loss():
    problem = problem_of({"server": "torch.optim:LBFGS"})
    assert problem.startswith("server: LBFGS needs a closure that evaluates the loss anew")


@pytest.mark.parametrize(
    ("section", "name", "cls", "how"),
    [
        ("algorithm", "Undecorated", "Undecorated", "frozen=True"),
        ("algorithm", "Plain", "Plain", "frozen=True"),
        ("algorithm", "Below", "Plain", "frozen=True"),
        ("participation", "Pattern", "Pattern", "eq=False"),
        ("server", "Server", "Server", "eq=False"),
    ],
)
def test_fields_without_a_dataclass_are_not_lost_silently(section, name, cls, how, parts):
    said = problem_of({section: f"parts_by_path:{name}"}).partition(": ")[2]
    assert said == f"{cls} is no dataclass: write @dataclass({how}) above it"


@pytest.mark.parametrize(
    ("section", "cls", "said"),
    [
        ("algorithm", "Sends", "hyperparameter 'up', and Algorithm uses that name itself"),
        ("algorithm", "Aims", "parameter 'target', and this section uses that name itself"),
        ("participation", "Phased", "hyperparameter 'seed', and Participation uses that name"),
        ("server", "Warm", "hyperparameter 'rounds', and ServerOptimizer uses that name itself"),
        ("model", "Net", "parameter 'build', and this section uses that name itself"),
    ],
)
def test_a_parameter_that_something_would_overwrite_is_refused(section, cls, said, parts):
    problem = problem_of({section: f"parts_by_path:{cls}"})
    assert f": {cls} has a {said}" in problem
    assert problem.endswith("; give it another one")


def test_a_parameter_may_be_called_kind_where_components_go_by_name(parts):
    section = {"name": "parts_by_path:Sorted", "mu": 0.3}
    raw = {
        "experiment": {"algorithm": section},
        "methods": {
            "M": {"algorithm": {"kind": "b"}, "space": {"algorithm.kind": {"choice": ["a", "b"]}}}
        },
    }
    method = SearchConfig.parse(raw).method("M")
    built = method.experiment({"algorithm.kind": "b"}).algorithm.build()
    assert (built.kind, built.mu) == ("b", 0.3)
    assert method.experiment({}).algorithm.build().mu == 0.3


def test_a_schedule_is_a_frozen_dataclass(parts):
    problem = problem_of({"client": {"schedule": "parts_by_path:Factor"}})
    assert problem.endswith("Factor is no dataclass: write @dataclass(frozen=True) above it")


def test_a_subclass_without_fields_of_its_own_needs_no_decorator(parts):
    section = {"name": "parts_by_path:Renamed", "mu": 0.3}
    assert Experiment.parse({"algorithm": section}).algorithm.build().mu == 0.3
    server = Experiment.parse({"server": {"name": "parts_by_path:ByHand", "lr": 2.0}}).server
    assert server.build().lr == 2.0


@pytest.mark.parametrize("kind", sorted(REGISTRIES))
def test_all_of_ours_are_of_their_kind_by_import_path_too(kind):
    """Each registered path passes the checks that somebody's own has to."""
    registry = REGISTRIES[kind]
    for path in registry.entries.values():
        registry.load(path)
    assert bool(registry.bases) == (kind != "models")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
        ("\n\nundefined_thing\n", 3, "NameError: name 'undefined_thing' is not defined"),
        ("import no_such_package\n", 1, "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f():\n    return 1 / 0\n\nf()\n", 4, "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", 1, "SystemExit: 0"),
    ],
    ids=lambda given: str(given)[:12],
)
def test_a_module_that_fails_is_named_with_its_line(text, line, said, tmp_path, monkeypatch):
    path = tmp_path / "fails_to_import.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    name = "fails_to_import:X"
    for section in ("algorithm", "model", "loss"):
        problem = problem_of({section: name})
        assert problem.endswith(f" {name!r} cannot be imported: {path}, line {line}: {said}")


def test_a_class_that_is_defined_anew_takes_the_place_of_the_old_one(monkeypatch):
    """As in a notebook, whose cell is run again; sections and data that were parsed are kept."""

    def define(rate, load):
        @dataclass(frozen=True)
        class Method(Algorithm):
            mu: float = parameter(rate, "a weight")

        @dataclass(frozen=True)
        class Data(Digits):
            def load(self):
                return load()

        for made in (Method, Data):
            monkeypatch.setattr(sys.modules[__name__], made.__name__, made, raising=False)
        raw = {
            "algorithm": f"{__name__}:Method",
            "data": {"name": f"{__name__}:Data", "clients": 4},
        }
        return Experiment.parse(raw)

    first = define(0.1, Digits().load)
    assert first.algorithm.build().mu == 0.1
    sizes = load_data(first.data, 0).sizes
    again = define(0.2, lambda: split_anew(Digits().load(), 0.5, 0))
    assert again.algorithm.build().mu == 0.2
    assert load_data(again.data, 0).sizes.sum() < sizes.sum()
