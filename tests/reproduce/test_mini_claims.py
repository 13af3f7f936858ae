"""Mini claims that hold on three seeds, run here without Ray: what a search would confirm."""

from pathlib import Path

import pytest

from fltune.experiment import Experiment
from fltune.reproduce.catalogue import Entry
from fltune.reproduce.judge import SHOWN, judge
from fltune.reproduce.readings import Evidence, Series
from fltune.runner import run
from fltune.search.config import SearchConfig
from fltune.search.record import TrialRecord

MINI = Path(__file__).parents[2] / "search_spaces" / "mini"
SEEDS = (1, 2, 3)


def confirmed(planned: Series, experiment: Experiment) -> Series:
    """Run a series on fresh seeds, as a search confirms a winner."""
    runs = []
    for seed in SEEDS:
        result = run(experiment.with_values({"seed": seed}))
        record = TrialRecord(planned.name, "confirmation", 0, {}, seed)
        record.status = "diverged" if result.stop_reason.value == "diverged" else "complete"
        record.rows, record.metrics, record.comm = result.history, result.metrics, result.comm
        record.participation = result.participation
        runs.append(record)
    return Series(planned.name, planned.method, planned.cell, planned.rounds, runs)


def verdicts(name: str, wanted: list[str], root: Path | None = None) -> dict[str, str]:
    """Run the series that some claims of a mini experiment need, and judge them."""
    entry = Entry.read(MINI / f"{name}.yaml")
    config = SearchConfig.read(entry.path, [f"data.root={root}"] if root else [])
    planned = Evidence.planned(config)
    claims = {key: entry.claims.claims[key] for key in wanted}
    needed = {}
    for claim in claims.values():
        labels = planned.labels(claim) if claim.along else []
        if labels and claim.statistic in ("growth", "ratio_growth"):
            labels = [labels[0], labels[-1]]
        for cell in planned.cells(claim):
            for step in [{claim.along: label} for label in labels] or [{}]:
                for method in filter(None, (claim.of, claim.than)):
                    one = planned.at(method, {**cell, **step})
                    needed[one.name] = one
    chosen = {key: config.methods[key] for key in needed}
    evidence = Evidence(
        confirmed(needed[key], method.experiment(method.first_values()))
        for key, method in chosen.items()
    )
    return {key: judge(key, claim, evidence).verdict for key, claim in claims.items()}


def test_fedavg_collapses_where_fedgm_trains():
    wanted = ["fedavg-collapses", "fedgm-trains"]
    assert verdicts("mini-fedgm-stability", wanted) == dict.fromkeys(wanted, SHOWN)


def test_fedcdr_needs_fewer_rounds_than_feddr():
    assert verdicts("mini-fedcdr-participation", ["fewer-rounds"]) == {"fewer-rounds": SHOWN}


@pytest.mark.slow
def test_a_round_of_reshuffling_sees_ten_thousand_clients():
    assert verdicts("mini-fedcdr-10k", ["everybody-once"]) == {"everybody-once": SHOWN}


@pytest.mark.slow
def test_gradient_tracking_helps_where_clients_differ_and_8_bits_are_free(real_data_root):
    wanted = ["gate-helps", "bits-are-free"]
    assert verdicts("mini-fedcom-hetero", wanted, real_data_root) == dict.fromkeys(wanted, SHOWN)
