import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from fltune.cli import main
from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.preflight import try_out
from fltune.runner import build, run


@dataclass(frozen=True)
class Slopes(Dataset):
    """A regression of one number."""

    def load(self):
        x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
        split = Split(x, x.sum(1, keepdim=True))
        return RawData(split, split, num_classes=None)


class Flat(nn.Linear):
    """One number per sample, without a dimension for it."""

    def __init__(self, input_shape):
        super().__init__(input_shape[0], 1)

    def forward(self, x):
        return super().forward(x).squeeze(1)


class Pair(nn.Linear):
    def __init__(self, input_shape, num_classes):
        super().__init__(input_shape[0], num_classes)

    def forward(self, x):
        return super().forward(x), x


class Running(nn.Module):
    """Centres its input by a running mean of its own."""

    def __init__(self, num_classes, in_place=False, evaluating=False):
        super().__init__()
        self.inner = nn.Linear(64, num_classes)
        self.inner.register_buffer("mean", torch.zeros(64))
        self.in_place, self.evaluating = in_place, evaluating

    def forward(self, x):
        if self.training or self.evaluating:
            new = 0.9 * self.inner.mean + 0.1 * x.mean(0).detach()
            if self.in_place:
                self.inner.mean.copy_(new)
            else:
                self.inner.mean = new
        return self.inner(x - self.inner.mean)


class Late(nn.Module):
    """Holds nothing in its buffer before the first batch."""

    def __init__(self, num_classes):
        super().__init__()
        self.inner = nn.Linear(64, num_classes)
        self.register_buffer("seen", None)

    def forward(self, x):
        self.seen = x.detach()
        return self.inner(x)


class Control(nn.Linear):
    """Branches on what it is given."""

    def __init__(self, num_classes):
        super().__init__(64, num_classes)

    def forward(self, x):
        if x.sum() > 0:
            x = x * 0.5
        return super().forward(x)


class Straight(nn.Linear):
    """No chain of dense layers, but nothing that cannot be batched."""

    def __init__(self, num_classes):
        super().__init__(64, num_classes)

    def forward(self, x):
        return super().forward(x) * 2


def worst(output, target):
    loss = nn.functional.cross_entropy(output, target, reduction="none")
    return loss if loss.max() > 0 else 0 * loss


class OnlyEvaluates(nn.Linear):
    def __init__(self, num_classes):
        super().__init__(64, num_classes)

    def forward(self, x):
        if self.training:
            raise RuntimeError("not in training")
        return super().forward(x)


class Heads(nn.Module):
    """Attention over pixels, whose layers of torch assert what they are given."""

    def __init__(self, num_classes, heads=2):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, heads, batch_first=True)
        self.out = nn.Linear(4, num_classes)

    def forward(self, x):
        x = x.unsqueeze(2)
        return self.out(self.attention(x, x, x)[0].mean(1))


class Constant(nn.Linear):
    """Has a buffer that nothing moves, NaN and all; draws noise in training."""

    def __init__(self, num_classes):
        super().__init__(64, num_classes)
        self.register_buffer("scale", torch.tensor([1.0, torch.nan]))

    def forward(self, x):
        return super().forward(x * self.scale[0] + self.training * torch.randn_like(x))


def per_batch(output, target):
    return nn.functional.cross_entropy(output, target)


def centred(output, target):
    loss = nn.functional.cross_entropy(output, target, reduction="none")
    return loss - loss.mean()


def column(input_shape):
    return nn.Linear(input_shape[0], 1)


def normed(num_classes):
    return nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, num_classes))


def lazy(num_classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes))


def own(name):
    return f"{__name__}:{name}"


SPACES = Path(__file__).parents[1] / "search_spaces"
SLOPES = {"name": own("Slopes"), "clients": 4}
DIGITS = {"name": "digits", "clients": 4}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"model": {"hidden": [0]}}, r"^model: hidden = \[0\]: every size must be >= 1"),
        ({"model": "cnn_mnist"}, r"^model: found samples of shape \[64\]; CNNMnist is for images"),
        ({"model": "resnet20"}, r"^model: found samples of shape \[64\]; must be images"),
        (
            {"model": {"name": "torch.nn:Linear", "in_features": 60, "out_features": 10}},
            r"^model: torch\.nn:Linear cannot take samples of shape \[64\], torch\.float32: mat1",
        ),
        (
            {"model": {"name": "torch.nn:Linear", "in_features": 64, "out_features": 5}},
            r"^model: torch\.nn:Linear gives an output of shape \[2, 5\] for 2 samples of 10 clas",
        ),
        ({"model": own("Pair")}, r"^model: .*:Pair gives a tuple; must be a tensor"),
        (
            {"model": own("lazy")},
            r"^model: layer '1' \(LazyLinear\) has no size before its first samples; give it one",
        ),
        (
            {"model": own("Running")},
            r"^model: buffer 'inner\.mean' changes in forward; it would leak from client to client",
        ),
        ({"model": {"name": own("Running"), "in_place": True}}, r"^model: buffer 'inner\.mean' ch"),
        ({"model": {"name": own("Running"), "evaluating": True}}, r"^model: buffer 'inner\.mean' "),
        ({"model": own("Late")}, r"^model: buffer 'seen' changes in forward"),
        (
            {"model": own("OnlyEvaluates")},
            r"^model: .*:OnlyEvaluates cannot take 2 samples in training mode: not in training",
        ),
        ({"model": {"name": own("Heads"), "heads": 3}}, r"^model: embed_dim must be divisible by"),
        (
            {"model": own("Heads")},
            r"^model: .*:Heads cannot take samples of shape \[64\], .*: passed-in embed_dim 4 didn",
        ),
        (
            {"model": own("Control"), "strategy": "stacked"},
            r"^strategy: found 'stacked', and torch\.vmap cannot batch the clients' steps of model "
            r".*:Control with loss cross_entropy; use strategy: loop \(vmap: It looks like",
        ),
        (
            {"model": own("Straight"), "loss": own("worst"), "strategy": "stacked"},
            r"^strategy: found 'stacked'.* with loss .*:worst; use strategy: loop",
        ),
        (
            {"loss": "squared_error"},
            r"^loss: squared_error does not fit model mlp, whose output has shape \[2, 10\], and "
            r"targets of shape \[2\], torch\.int64: The size of tensor",
        ),
        ({"loss": own("per_batch")}, r"^loss: .*:per_batch does not fit .* one number per sample"),
        ({"loss": own("centred")}, r"^loss: .*:centred does not fit .* from that sample alone"),
        (  # [B] against [B, 1] broadcasts to [B, B], silently
            {"data": SLOPES, "model": own("Flat"), "loss": "squared_error"},
            r"^loss: squared_error does not fit model .*:Flat, whose output has shape \[2\]",
        ),
        (
            {"algorithm": {"name": "fedprox", "mu": 1.0, "exact": True}},
            r"^algorithm: an exact prox of MLP with this loss has no closed form; use local steps",
        ),
        (
            {"algorithm": {"name": "fedcdr", "prox": "exact"}},
            r"^algorithm: an exact prox of MLP with this loss has no closed form; use local steps",
        ),
    ],
    ids=lambda v: json.dumps(v) if isinstance(v, dict) else None,
)
def test_what_does_not_go_together_is_said_before_the_first_round(raw, message):
    with pytest.raises(ConfigError, match=message):
        build(Experiment.parse({"data": DIGITS, "device": "cpu", **raw}))


def test_clients_that_keep_the_model_must_not_miss_a_round(capsys):
    settings = ["algorithm.option=I", "rounds=2", "data.clients=4", "participation.per_round=3"]
    argv = ["run", str(SPACES / "digits_fedgm.yaml"), "--method", "FedAvg"]
    for setting in ["algorithm.name=fedgate", *settings]:
        argv += ["--set", setting]
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "algorithm.option: found 'I', but 3 of 4 clients take part in round 0" in said


def test_what_goes_together_is_left_as_it_was():
    experiment = Experiment.parse({"data": DIGITS, "model": {"dropout": 0.5}, "device": "cpu"})
    module = build(experiment).module
    assert module.network.training
    assert torch.equal(build(experiment).module.x, module.x)
    build(
        Experiment.parse(
            {"data": SLOPES, "model": own("column"), "loss": "squared_error", "device": "cpu"}
        )
    )


@pytest.mark.parametrize("strategy", ["auto", "fastest", "loop"])
def test_a_forward_that_branches_on_its_input_is_for_the_loop(strategy):
    raw = {"model": own("Control"), "strategy": strategy, "client": {"steps": 1}, "rounds": 1}
    result = run(Experiment.parse({"data": DIGITS, "device": "cpu", **raw}))
    assert result.strategy == "loop"
    assert result.rounds == 1


@pytest.mark.parametrize("strategy", ["auto", "stacked", "fastest"])
def test_what_can_be_batched_keeps_its_strategy(strategy):
    raw = {"data": DIGITS, "model": own("Straight"), "strategy": strategy, "device": "cpu"}
    assert build(Experiment.parse(raw)).module.solver.strategy == strategy


@pytest.mark.parametrize("in_place", [False, True])
def test_what_a_buffer_held_is_put_back(monkeypatch, in_place):
    made = []
    monkeypatch.setattr(Running, "to", lambda self, *a: made.append(self) or nn.Module.to(self, *a))
    model = {"name": own("Running"), "in_place": in_place}
    with pytest.raises(ConfigError, match="buffer"):
        build(Experiment.parse({"data": DIGITS, "model": model, "device": "cpu"}))
    assert not made[0].inner.mean.any()


def test_a_constant_buffer_is_no_leak_and_the_seed_stays():
    experiment = Experiment.parse({"data": DIGITS, "model": own("Constant"), "device": "cpu"})
    built = build(experiment)
    before = torch.get_rng_state()
    try_out(experiment, built.module, built.datamodule.data)
    assert torch.equal(torch.get_rng_state(), before)


def test_running_statistics_that_a_policy_manages_are_no_leak():
    raw = {"data": DIGITS, "model": own("normed"), "batch_norm": "average", "device": "cpu"}
    module = build(Experiment.parse(raw)).module
    statistics = module.flat.read_statistics()
    assert statistics.tolist() == [0.0] * 8 + [1.0] * 8


SEARCH = """\
experiment:
  data: {name: digits, clients: 4}
  rounds: 1
methods:
  Fine: {space: {server.lr: {grid: [1.0]}}}
  Wrong: {model: %s, space: {server.lr: {grid: [1.0]}}}
search: {confirm_seeds: 1}
"""


@pytest.mark.parametrize("command", ["search", "plan"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{hidden: [0]}", "methods.Wrong.model: hidden = [0]: every size must be >= 1"),
        ("{name: cnn_cifar}", "methods.Wrong.model: found samples of shape [64]; CNNCifar is for"),
    ],
)
def test_a_search_that_cannot_work_starts_nothing(tmp_path, capsys, command, model, message):
    file = tmp_path / "search.yaml"
    file.write_text(SEARCH % model)
    with pytest.raises(SystemExit) as ended:
        main([command, str(file), "--set", f"tracking.root={tmp_path / 'mlruns'}"])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "mlruns" / "searches").exists()
