"""Rows beside the methods, on runs that are really made: tiny ones."""

import json
import math

import pytest
import torch
from fabricated import LR, confirmation, curve, trial

from fltune.experiment import Experiment
from fltune.pieces import load_data
from fltune.report import references
from fltune.report.compare import print_report
from fltune.report.export import as_csv, as_latex
from fltune.report.page import as_html
from fltune.report.references import Book, merged
from fltune.search.search import compare

VALUES = {"server.lr": 1.0, "client.lr": 0.1}
SAMPLES = 640


@pytest.fixture
def searched(make_report, tmp_path, monkeypatch):
    """A method that is confirmed on two seeds; compare it with references, and say what was run."""
    monkeypatch.setattr(references, "RATES", (0.05, 0.2))
    monkeypatch.setattr(references, "MOST_CLIENTS", 3)
    records = [trial("FedAvg", 0, VALUES, 0.9)]
    records += [
        confirmation("FedAvg", 0, s, VALUES, 0.9, curve(0.9), client_samples=SAMPLES)
        for s in (1, 2)
    ]
    make_report({"FedAvg": {"space": LR}}, records, {"confirm_seeds": 2})

    def again():
        import io

        from rich.console import Console

        console = Console(file=io.StringIO(), width=120)
        found = compare("made", [f"tracking.root={tmp_path}"], references=True, console=console)
        return found, console.file.getvalue()

    return again


def test_the_three_kinds_stand_beside_the_method(searched, tmp_path):
    report, said = searched()
    central, alone, untuned = report.references
    assert [r.name for r in report.references] == [
        "centralised",
        "clients alone",
        "FedAvg untuned",
    ]
    assert all(r.test.seeds == 2 and 0 <= r.test.mean <= 1 for r in report.references)
    assert central.values["client.lr"] in (0.05, 0.2)
    assert untuned.values == {"server.lr": 1.0, "client.lr": 0.1}  # the file's, not the winner's
    # as many samples as the federation processed, to a batch per round
    assert central.client_samples == pytest.approx(SAMPLES, abs=8 * 4)
    assert alone.client_samples == pytest.approx(SAMPLES * 3 / 10, rel=0.5)
    assert "reference: FedAvg untuned, seed 2" in said
    # no rank, no test, and the method's own row as without them
    assert [(r.rank, r.name) for r in report.rows] == [(1, "FedAvg")]
    assert report.rows[0].summary.against_best is None


def test_a_run_is_made_once(searched, tmp_path):
    first, said = searched()
    path = tmp_path / "searches" / "made" / "references.jsonl"
    lines = path.read_text().splitlines()
    # 2 rates on 2 seeds; 3 clients at 2 rates on the first seed and at one on the second; 2 runs
    assert len(lines) == 4 + 9 + 2
    again, silence = searched()
    assert "reference:" in said
    assert "reference:" not in silence
    assert path.read_text().splitlines() == lines
    assert [r.as_json() for r in again.references] == [r.as_json() for r in first.references]


def test_they_are_in_every_output(searched, capsys):
    from rich.console import Console

    report, _ = searched()
    console = Console(width=140)
    print_report(report, console)
    for text in (capsys.readouterr().out, as_latex(report), as_html(report), as_csv(report)):
        for name in ("centralised", "clients alone", "FedAvg untuned"):
            assert name in text
    assert as_csv(report).count("reference") == 3
    plain = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert plain["references"][0]["name"] == "centralised"
    assert plain["references"][0]["test"]["seeds"] == 2
    widths = {line.count(" & ") for line in as_latex(report).splitlines() if line.endswith(r"\\")}
    assert len(widths) == 1


def test_nothing_is_run_before_a_method_is_confirmed(make_report, tmp_path):
    make_report({"A": {"space": LR}}, [trial("A", 0, VALUES, 0.5)])
    found = compare("made", [f"tracking.root={tmp_path}"], references=True)
    assert found.references == []
    assert not (tmp_path / "searches" / "made" / "references.jsonl").exists()


def test_clients_together_hold_what_each_of_them_held():
    data = load_data(Experiment.parse({"data": {"name": "digits", "clients": 7}}).data, 0)
    everyone = merged(data, list(range(7)))
    assert everyone.num_clients == 1
    assert torch.equal(everyone.order, data.order.sort().values)
    ends = data.sizes.cumsum(0)
    second = merged(data, [1])
    assert torch.equal(second.order, data.order[ends[0] : ends[1]].sort().values)
    assert second.test is data.test


def test_a_sample_of_several_clients_is_there_once():
    partition = {"kind": "dirichlet_client_lognormal", "allocation": "reuse"}
    raw = {"name": "digits", "clients": 7, "partition": partition}
    data = load_data(Experiment.parse({"data": raw}).data, 0)
    assert len(data.order.unique()) < len(data.order)
    assert torch.equal(merged(data, list(range(7))).order, data.order.unique())


def test_clients_alone_are_spread_over_all_and_count_alike(monkeypatch):
    """Neighbours may be alike: shards are dealt in the order of the classes."""
    monkeypatch.setattr(references, "MOST_CLIENTS", 4)
    plain = {**references.PLAIN, "data": {"name": "digits", "clients": 10}}
    asked = []

    class Told:
        def get(self, label, experiment, clients):
            asked.extend(clients)
            score = {"val/accuracy": 0.1 * clients[0]}
            return {"metrics": score, "client_samples": 5, "diverged": False}

    found = references._lone(plain, 0, SAMPLES, 0.1, Told())
    assert asked == [0, 2, 5, 7]
    assert found["metrics"]["val/accuracy"] == pytest.approx(0.1 * (0 + 2 + 5 + 7) / 4)
    assert (found["client_samples"], found["diverged"]) == (20, False)


@pytest.mark.parametrize("batch", [8, None])
@pytest.mark.parametrize("samples", [1, 500, 12_345, 200_000])
def test_plain_sgd_makes_the_passes_of_the_federation(batch, samples):
    plain = {**references.PLAIN, "rounds": 40, "client": {"batch_size": batch}}
    plain["data"] = {"name": "digits", "clients": 10}
    one, clients = references._sgd(plain, 3, samples, 0.1, None)
    assert clients == list(range(10))
    assert one.rounds <= 40
    total = int(load_data(one.data, 3).sizes.sum())
    steps = one.rounds * one.client.build().steps
    per_pass = math.ceil(total / 8) if batch else 1
    wanted = max(1.0, samples / total * per_pass)
    # whole steps in every round: at most a round too many
    assert wanted - 1 <= steps <= wanted + 1 + wanted / 40 + one.client.build().steps


def test_a_rate_that_diverged_anywhere_is_not_chosen():
    def made(value, diverged=False):
        return {"metrics": {"val/accuracy": value}, "client_samples": 1, "diverged": diverged}

    runs = {0.1: [made(0.3), made(0.4)], 1.0: [made(0.9), made(0.9, True)]}
    assert references._best_rate(runs, "val/accuracy") == 0.1
    losses = {
        0.1: [{"metrics": {"val/loss": 2.0}, "diverged": False}],
        0.2: [{"metrics": {"val/loss": 1.0}, "diverged": False}],
    }
    assert references._best_rate(losses, "val/loss") == 0.2


def test_a_reference_that_diverged_counts_as_zero(tmp_path):
    lost = {"metrics": {"val/accuracy": 0.1}, "client_samples": 5, "diverged": True}
    whole = {
        "metrics": {"val/accuracy": 0.8, "test/accuracy": 0.8},
        "client_samples": 5,
        "diverged": False,
    }
    row = references._reduce("x", "", "text", [lost, whole], {})
    assert (row.test.mean, row.test.seeds, row.diverged) == (pytest.approx(0.4), 2, 1)
    assert row.test_text.endswith("(1 diverged)")
    assert Book(tmp_path, print)._known == {}
    hopeless = references._reduce("x", "", "text", [lost, lost], {})
    assert (hopeless.test.mean, hopeless.test.seeds) == (0.0, 2)  # it has no test metrics at all
