"""One real search of digits, and a data set and model of a user's own, for all tests here."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_search import DIGITS

OWN = '''
from dataclasses import dataclass

import torch
from torch import nn

from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.parameters import parameter


@dataclass(frozen=True)
class Points(Dataset):
    """Three clouds in the plane."""

    shuffle_test: bool = parameter(False, "give the test samples wrong labels")

    def load(self):
        random = torch.Generator().manual_seed(0)
        y = torch.arange(450) % 3
        x = torch.stack([(y == 0) * 2.0, (y == 1) * 2.0], dim=1)
        x = x + 0.7 * torch.randn(450, 2, generator=random)
        test = (y[300:] + 1) % 3 if self.shuffle_test else y[300:]
        return RawData(Split(x[:300], y[:300]), Split(x[300:], test), num_classes=3)


class Net(nn.Module):
    """A layer that breaks at width 3, and does not say so before it is trained."""

    def __init__(self, input_shape, num_classes, width: int = 8):
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(
            nn.Linear(input_shape[0], width), nn.Tanh(), nn.Linear(width, num_classes)
        )

    def forward(self, x):
        if self.training and self.width == 3 and len(x) > 3:  # more than are tried before a run
            raise RuntimeError("a width of 3 is bad luck")
        return self.layers(x)
'''


@dataclass
class Outcome:
    """What one search through the command line left behind."""

    root: Path
    file: Path
    config: dict[str, Any]
    printed: str
    json: dict[str, Any]
    records: list[dict[str, Any]]

    def trials(self, method: str) -> list[dict[str, Any]]:
        kept = [r for r in self.records if r["kind"] == "trial" and r["method"] == method]
        return sorted(kept, key=lambda r: r["number"])

    def confirmations(self, method: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r["kind"] == "confirmation" and r["method"] == method]


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    from fltune.cli import main

    folder = tmp_path_factory.mktemp("digits")
    file, root = folder / "two.yaml", folder / "mlruns"
    file.write_text(yaml.safe_dump(DIGITS, sort_keys=False))
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main(["search", str(file), "--json", "--name", "first", "--set", f"tracking.root={root}"])
    assert ended.value.code == 0, out.getvalue()
    lines = (root / "searches" / "first" / "trials.jsonl").read_text().splitlines()
    last = json.loads(out.getvalue().splitlines()[-1])
    records = [json.loads(line) for line in lines]
    return Outcome(root, file, DIGITS, out.getvalue(), last, records)


@pytest.fixture(scope="session")
def own_module(tmp_path_factory: pytest.TempPathFactory):
    """Put ``own_points`` on the path of this process and of Ray's workers."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_points.py").write_text(OWN)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        patch.syspath_prepend(folder)
        yield "own_points"
        sys.modules.pop("own_points", None)


@pytest.fixture(scope="session")
def own_config(own_module: str) -> dict[str, Any]:
    """A tiny search on the own data set; one method, TPE."""
    return {
        "experiment": {
            "data": {"name": f"{own_module}:Points", "clients": 10, "partition": "iid"},
            "model": {"name": f"{own_module}:Net", "width": 6},
            "participation": {"kind": "uniform", "per_round": 4},
            "client": {"lr": 0.2, "steps": 2, "batch_size": 8},
            "rounds": 4,
        },
        "methods": {
            "FedGM": {
                "server": {"name": "fedgm"},
                "space": {
                    "server.lr": {"loguniform": [0.1, 3.0]},
                    "server.beta": {"uniform": [0.1, 0.9]},
                },
            }
        },
        "search": {"trials": 3, "confirm_seeds": 1, "concurrent": 1, "seed": 5},
    }
