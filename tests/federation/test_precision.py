"""Coarser arithmetic: asked for by name, kept out of the parameters, refused where it is not."""

import pickle

import pytest
import torch
from local_work import Setting, assert_same, conv, mlp
from torch import nn

from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import LocalProblem, LocalSGD, LocalSolver
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.federation.precision import products
from fltune.federation.strategies import candidates, choose_strategy
from fltune.packing import pack_key, run_pack
from fltune.runner import run

SGD = LocalSGD(lr=0.1, epochs=2, batch_size=4, momentum=0.5)
NETWORKS = {"mlp": lambda: mlp(0.3).float(), "conv": lambda: conv().float()}


def solve(precision, strategy, network="mlp"):
    """Solve the cohort of :class:`Setting` in float32."""
    setting = Setting(SGD, NETWORKS[network])
    setting.data = setting.data.to(dtype=torch.float32)
    made = setting.ready(strategy, LocalProblem(setting.x, gradient_sum=True))
    made.func.__self__.network.precision = precision
    return made()


def experiment(**changes):
    base = {
        "data": {"name": "digits", "clients": 8},
        "model": {"name": "mlp", "hidden": [16]},
        "client": {"lr": 0.2, "epochs": 2, "batch_size": 20},
        "rounds": 12,
        "eval_every": 12,
        "device": "cpu",
    }
    return Experiment.parse({**base, **changes})


@pytest.mark.parametrize("network", NETWORKS)
def test_batched_clients_are_the_loop_in_bf16_too(network):
    loop, stacked = (solve("bf16", name, network) for name in ("loop", "stacked"))
    assert_same(loop, stacked, tolerance=5e-2)  # another order of sums tips a rounding to 8 bits


@pytest.mark.parametrize("strategy", ["loop", "stacked"])
@pytest.mark.parametrize("network", NETWORKS)
def test_products_are_coarse_and_the_rest_is_float32(network, strategy):
    coarse, full = (solve(name, strategy, network) for name in ("bf16", "full"))
    for name in ("end", "loss", "gradient_sum"):
        ours, exact = getattr(coarse, name), getattr(full, name)
        assert ours.dtype == torch.float32
        assert not torch.equal(ours, exact)
        torch.testing.assert_close(ours, exact, rtol=0.05, atol=0.05)
    # a parameter rounded to bfloat16 would have no digits left
    assert not torch.equal(coarse.end, coarse.end.bfloat16().float())


def test_full_is_the_network_itself():
    network = mlp().float()
    x = torch.randn(4, 6)
    assert torch.equal(FlatNetwork(network)(x), network(x))
    coarse = FlatNetwork(network, precision="bf16")
    assert coarse(x).dtype == torch.float32
    assert not torch.equal(coarse(x), network(x))
    assert torch.equal(pickle.loads(pickle.dumps(coarse))(x), coarse(x))  # as a worker gets it


def test_bf16_learns_what_full_precision_learns():
    full, coarse = (run(experiment(precision=precision)) for precision in ("full", "bf16"))
    assert (full.strategy, coarse.strategy != "dense") == ("dense", True)
    assert full.metrics["test/accuracy"] > 0.85
    assert coarse.metrics["test/accuracy"] == pytest.approx(full.metrics["test/accuracy"], abs=0.02)
    assert coarse.metrics["val/loss"] != full.metrics["val/loss"]


def test_a_pack_has_one_precision():
    coarse = experiment(precision="bf16", rounds=2)
    assert pack_key(coarse) != pack_key(experiment(rounds=2))
    others = [coarse, experiment(precision="bf16", rounds=2, server={"name": "fedgm", "lr": 0.5})]
    packed = run_pack(others)
    alone = [run(one, test=False) for one in others]
    for here, there in zip(packed, alone, strict=True):
        assert here.metrics["val/loss"] == pytest.approx(there.metrics["val/loss"], rel=1e-2)


def test_dense_is_refused_by_name_and_never_chosen():
    assert choose_strategy(mlp(), cross_entropy) == "dense"
    assert choose_strategy(mlp(), cross_entropy, "tf32") == "dense"
    assert choose_strategy(mlp(), cross_entropy, "bf16") == "auto"
    assert candidates(mlp(), cross_entropy, "bf16") == ["loop", "stacked"]
    flat = FlatNetwork(nn.Linear(6, 3), precision="bf16")
    with pytest.raises(ValueError, match=r"strategy = 'dense' .* no precision bf16; use strategy"):
        LocalSolver(flat, cross_entropy, SGD, "dense")
    with pytest.raises(ConfigError, match="model: strategy = 'dense'"):
        run(experiment(precision="bf16", strategy="dense"))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"precision": "half"}, "precision: found 'half'; should be 'full', 'tf32' or 'bf16'"),
        (
            {"precision": "bf16", "dtype": "float64"},
            "precision: found 'bf16' with dtype 'float64'; take dtype: float32, or precision: full",
        ),
        (
            {"precision": "tf32"},
            "precision: found 'tf32' with device 'cpu'; only device: cuda has it, take full",
        ),
    ],
)
def test_what_does_not_go_together(raw, message):
    with pytest.raises(ConfigError) as caught:
        experiment(**raw)
    assert caught.value.problems == [message]


def torchs():
    cudnn = torch.backends.cudnn
    convolutions = (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark)
    return torch.get_float32_matmul_precision(), *convolutions


def tell_torch(matrices, *convolutions):
    torch.set_float32_matmul_precision(matrices)
    for name, value in zip(("allow_tf32", "deterministic", "benchmark"), convolutions, strict=True):
        setattr(torch.backends.cudnn, name, value)


EXACT, COARSE = ("highest", False, True, False), ("high", True, True, False)


@pytest.fixture(params=[("highest", True, False, False), ("medium", False, False, True)])
def before(request):
    kept = torchs()
    tell_torch(*request.param)
    yield request.param
    tell_torch(*kept)


def test_torchs_settings_are_those_of_the_run_for_a_while(before):
    for precision, wanted in {"full": EXACT, "bf16": EXACT, "tf32": COARSE}.items():
        with products(precision):
            assert torchs() == wanted
        assert torchs() == before


def test_a_run_is_exact_whatever_the_program_around_asked_torch_for(before, monkeypatch):
    seen, solve = [], LocalSolver.solve

    def noted(*args, **rest):
        seen.append(torchs())
        return solve(*args, **rest)

    monkeypatch.setattr(LocalSolver, "solve", noted)
    run(experiment(rounds=1))
    run_pack([experiment(rounds=1), experiment(rounds=1, server={"name": "fedgm", "lr": 0.5})])
    assert set(seen) == {EXACT}
