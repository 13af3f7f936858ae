"""The deterministic parts of partitions in ``partition.json``."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fltune.data.dirichlet_client import DirichletClientNormalised, normalised_over_clients
from fltune.data.partition import cut, largest_remainder, lognormal_sizes
from fltune.data.shards import Shards
from fltune.data.synthetic import FORMS

GOLDEN = json.loads(Path(__file__).with_name("partition.json").read_text(encoding="utf-8"))


def test_golden_per_class_over_clients():
    case = GOLDEN["per_class_over_clients"]
    counts = cut(np.array([case["n_c"]]), np.array([case["p_over_clients"]]))
    assert counts.tolist() == [case["counts"]]
    assert counts.cumsum()[:-1].tolist() == case["cuts"]


def test_golden_per_client_normalised(monkeypatch):
    case = GOLDEN["per_client_normalised"]
    logs = np.log(case["q_client_class"])  # a Gamma draw's proportions are its q
    counts = cut(np.array(case["class_sizes"]), normalised_over_clients(logs, 1.0), np.rint)
    assert counts.T.tolist() == case["counts_client_class"]

    monkeypatch.setattr("fltune.data.dirichlet_client.log_gamma_draws", lambda *_: logs)
    labels = torch.arange(3).repeat_interleave(torch.tensor(case["class_sizes"]))
    clients = DirichletClientNormalised(1.0)(labels, 3, seed=0)
    held = [labels[indices].bincount(minlength=3).tolist() for indices in clients]
    assert held == case["counts_client_class"]


@pytest.mark.parametrize("case", GOLDEN["largest_remainder"], ids=lambda case: f"n{case['n']}")
def test_golden_largest_remainder(case):
    assert largest_remainder(case["n"], np.array(case["p"])).tolist() == case["counts"]


def test_golden_shards():
    case = GOLDEN["shards"]
    labels = torch.tensor(case["sorted_labels"])
    clients = Shards(case["classes_per_client"])(labels, case["clients"], seed=0)
    assert [indices.tolist() for indices in clients] == case["positions"]
    held = [labels[indices].unique().tolist() for indices in clients]
    assert held == case["labels_of_client"]


@pytest.mark.parametrize("name", ["benchmark", "synthetic"])
def test_golden_lognormal_sizes(name):
    case = GOLDEN["lognormal_sizes"][name]
    shape = {key: case[key] for key in ("mu", "sigma", "add", "clip")}
    z = np.array([float(key) for key in case["from_z"]])
    assert lognormal_sizes(z, **shape).tolist() == list(case["from_z"].values())


def test_the_synthetic_sizes_are_those_of_the_form():
    form, case = FORMS["fedcdr"], GOLDEN["lognormal_sizes"]["synthetic"]
    assert [form.mu, form.sigma, form.add, form.clip] == [
        case[key] for key in ("mu", "sigma", "add", "clip")
    ]
