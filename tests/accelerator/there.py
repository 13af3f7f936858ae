"""Runs on a pretended accelerator; test_accelerator.py starts them in a process of their own."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "algorithms"))
from any_method import ALGORITHMS, Run, every, same
from pretended import Crossings, register, trains_there
from small_digits import experiment
from test_packed import MEMBERS, fit_together, member

from fltune.runner import run

DEVICE = register()


def here(value):
    """The same, on the host."""
    if isinstance(value, dict):
        return {k: here(v) for k, v in value.items()}
    return value.cpu() if isinstance(value, torch.Tensor) else value


@pytest.fixture
def there(monkeypatch):
    return lambda: trains_there(monkeypatch, DEVICE)


def test_a_tensor_of_the_host_and_one_of_the_device_do_not_mix():
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(3, device=DEVICE) + torch.ones(3)
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(3, device=DEVICE)[torch.tensor([1])]
    assert (torch.ones(3, device=DEVICE) + torch.tensor(1.0)).tolist() == [2.0] * 3


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
@every
def test_every_method_trains_there_as_here(name, strategy, there):
    expected = Run(name, strategy=strategy, keep=False).fit().end
    there()
    run = Run(name, strategy=strategy, keep=False).fit()
    assert run.module.solver.strategy == strategy
    same(here(run.end), expected)


READ = {"fednova": 4, "feddc": 2}
"""Times that the host reads in a round, where it does: how many steps the clients have made."""


def read(rounds, name, strategy):
    """Return what the host reads in so many rounds."""
    job = Run(name, [[0, 2, 5]] * rounds, strategy=strategy, keep=False)
    with Crossings() as crossings:
        job.fit()
    return crossings.read


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("fedavg", "loop"), ("fedavg", "stacked"), *((n, "dense") for n in ALGORITHMS)],
)
def test_the_host_waits_for_no_number_of_a_round(name, strategy, there):
    there()
    more = read(12, name, strategy) - read(8, name, strategy)
    assert more.total() == 4 * READ.get(name, 0), more


DIGITS = {"name": "digits", "clients": 12}
CASES = {
    "mlp": {},
    "dropout": {"model": {"name": "mlp", "hidden": [8], "dropout": 0.3}},
    "batch_norm": {"model": {"name": "mlp_fedtorch", "hidden": [8]}},
    "samples": {"algorithm": {"name": "fedavg", "weighting": "samples"}},
    "clipped": {"client": {"clip_norm": 0.5, "momentum": 0.5, "weight_decay": 0.01}},
    "judged_by_clients": {"data": {**DIGITS, "val_from": "clients"}},
    "asynchronous": {
        "participation": {"kind": "asynchronous", "concurrency": 4, "buffer": 2},
        "algorithm": {"name": "fedbuff"},
    },
    "server": {"server": {"name": "fedadam", "lr": 0.01}},
    "error_feedback": {
        "algorithm": {"name": "fedcom"},
        "compression": {"name": "topk", "ratio": 0.1, "error_feedback": True},
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_there_has_the_numbers_of_one_here(case, there):
    config = experiment(dtype="float64", **CASES[case])
    expected = run(config)
    there()
    found = run(config)
    assert found.history == expected.history
    assert found.metrics == expected.metrics
    assert found.by_client == expected.by_client


def test_the_guard_reads_once_a_round(there):
    there()

    def reads(rounds):
        with Crossings() as crossings:
            run(experiment(rounds=rounds, eval_every=100))
        return crossings.read

    more = reads(12) - reads(8)
    assert more.total() == 4, more
    assert {place.split(":")[0] for place in more} == {"stopping.py"}


def test_a_pack_there_has_the_numbers_of_one_here(there):
    def fitted():
        runs = [member("scaffold", place, "dense", keep=False) for place in range(MEMBERS)]
        return [here(r.end) for r in fit_together(runs)]

    expected = fitted()
    there()
    same(fitted(), expected)
