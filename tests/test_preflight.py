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
from fltune.runner import build


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


def per_batch(output, target):
    return nn.functional.cross_entropy(output, target)


def centred(output, target):
    loss = nn.functional.cross_entropy(output, target, reduction="none")
    return loss - loss.mean()


def column(input_shape):
    return nn.Linear(input_shape[0], 1)


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
