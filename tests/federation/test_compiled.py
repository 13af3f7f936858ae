"""``compiled`` is ``stacked``; compiling takes up to a minute and a half, so those are slow."""

import pickle
from functools import partial

import pytest
import torch
from local_work import PROBLEMS, SGDS, Residual, Setting, assert_same, conv, mlp
from torch import nn

from fltune import Experiment
from fltune.errors import ConfigError
from fltune.federation import LocalSolver
from fltune.federation.compiled import _compile
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.federation.strategies import candidates
from fltune.runner import build


def dropping():
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Dropout(0.4), nn.Linear(5, 3)]
    return nn.Sequential(*layers).double()


class Uncompilable(Residual):
    @torch.compiler.disable
    def hidden(self, x):
        return self.inner(x)

    def forward(self, x):
        return self.out(x + self.hidden(x))


@pytest.mark.slow
def test_compiled_is_stacked_with_uneven_cohorts_dropout_and_momentum():
    setting = Setting(SGDS["all"], dropping)
    asked = PROBLEMS["gradient_sum"](setting)
    compiled = setting.ready("compiled", asked)
    network = compiled.func.__self__.network
    assert_same(compiled(), setting.solve("stacked", asked))
    (gradient,) = network.compiled.values()
    compiled()
    assert list(network.compiled.values()) == [gradient]
    assert pickle.loads(pickle.dumps(network)).compiled == {}


class Graphs:
    """What ``torch.compile`` makes of a function on CUDA, as far as its caller sees it.

    The outputs of a call lie where those of the call before lay, which are gone by then.
    """

    def __init__(self, monkeypatch):
        self.sizes, self.modes, self.marks, self.memory = [], [], 0, {}
        monkeypatch.setattr(torch, "compile", self.compile)
        monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", self.mark)

    def mark(self):
        self.marks += 1

    def compile(self, gradient, mode, **options):
        self.modes.append(mode)

        def call(*inputs):
            self.sizes.extend(len(value) for value in inputs)
            results = gradient(*inputs)
            return tuple(map(self.kept, range(len(results)), results))

        return call

    def kept(self, place, result):
        key = (place, result.shape)
        return self.memory.setdefault(key, torch.empty_like(result)).copy_(result)


def test_a_shrinking_cohort_is_one_size_to_the_compiler(monkeypatch):
    compiler = Graphs(monkeypatch)
    setting = Setting(SGDS["all"], dropping, sizes=list(range(1, 40, 3)))
    assert_same(setting.solve("compiled"), setting.solve("stacked"))
    assert set(compiler.sizes) == {16}
    assert (compiler.modes, compiler.marks) == ([None], 0)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_step_needs_what_the_graph_of_a_step_before_has_returned(problem, monkeypatch):
    compiler = Graphs(monkeypatch)
    there = partial(_compile, graphs=True)
    monkeypatch.setattr("fltune.federation.compiled._compile", lambda g, graphs: there(g))
    setting = Setting(SGDS["all"], dropping)
    asked = PROBLEMS[problem](setting)
    assert_same(setting.solve("compiled", asked), setting.solve("stacked", asked))
    assert compiler.modes == ["reduce-overhead"]
    assert compiler.marks * 5 == len(compiler.sizes)  # before each call of five arguments


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_compiled_is_the_loop_for_every_problem(problem):
    setting = Setting(SGDS["all"], dropping)
    asked = PROBLEMS[problem](setting)
    assert_same(setting.solve("compiled", asked), setting.solve("loop", asked))


@pytest.mark.slow
@pytest.mark.parametrize("network", [conv, mlp, Residual])
def test_compiled_is_the_loop_for_other_networks(network):
    setting = Setting(SGDS["steps"], lambda: network().double())
    assert_same(setting.solve("compiled"), setting.solve("loop"))


def test_nobody_gets_it_who_does_not_ask():
    assert "compiled" not in candidates(Residual(), cross_entropy)
    assert LocalSolver(FlatNetwork(Residual()), cross_entropy, SGDS["all"]).strategy != "compiled"


def test_what_cannot_be_compiled_is_named():
    setting = Setting(SGDS["all"], lambda: Uncompilable().double())
    with pytest.raises(ConfigError, match=r"torch\.compile cannot take this network"):
        setting.solve("compiled")


def test_a_machine_without_a_compiler_is_told_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler, and g\+\+ or clang\+\+"):
        build(Experiment(strategy="compiled", rounds=1))
