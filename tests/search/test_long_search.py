"""Searches of thousands of trials: the work for one trial does not grow with those before it."""

import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from fake_spaces import DRAWING, NUMBERS, ended, proposer
from fake_workers import DRAWN, Disk, Night, config_of

from fltune.search import proposer as proposer_module
from fltune.search import study as study_module
from fltune.search.candidate import Candidate
from fltune.search.proposer import ListProposer


def counted(monkeypatch, module, name):
    calls = Counter()
    before = getattr(module, name)

    def count(*args, **kwargs):
        calls[name] += 1
        return before(*args, **kwargs)

    monkeypatch.setattr(module, name, count)
    return calls


def test_a_grid_is_walked_once(monkeypatch):
    calls = counted(monkeypatch, proposer_module, "content_key")
    it = ListProposer({"server.lr": n} for n in range(100))
    while it.propose() is not None:
        pass
    assert it.asked == 100
    assert calls["content_key"] == 200  # looked at, and noted


def test_a_grid_that_is_done_is_not_walked_again(monkeypatch):
    it = ListProposer({"server.lr": n} for n in range(100))
    while it.propose() is not None:
        pass
    calls = counted(monkeypatch, proposer_module, "content_key")
    assert it.propose() is None
    assert not calls


@pytest.mark.parametrize("sampler", [s for s in DRAWING if s != "gp"])
def test_a_past_trial_is_made_for_optuna_once_and_not_for_every_proposal(sampler, monkeypatch):
    calls = counted(monkeypatch, study_module, "from_plain")
    it = proposer(sampler, budget=60)
    while (proposal := it.propose()) is not None:
        it.tell(proposal.number, ended(proposal.point, proposal.number))
    most = {"random": 0}.get(sampler, 4 * 60)  # anew where what it looks like beside others changed
    assert calls["from_plain"] <= most


def test_a_trial_that_is_shared_by_studies_stays_as_it_was():
    it = proposer(budget=9)
    for _ in range(4):
        proposal = it.propose()
        it.tell(proposal.number, ended(proposal.point, proposal.number))
    first = it.study()
    trial = first.ask()
    trial.suggest_float("server.lr", 0.01, 10.0, log=True)
    first.tell(trial, 1.0)
    again = it.study()
    assert [t.number for t in again.trials] == [0, 1, 2, 3]
    assert all(set(t.params) == set(NUMBERS.parameters) for t in again.trials)


def test_a_resumed_search_does_not_look_for_every_trial_among_all(monkeypatch):
    calls = counted(monkeypatch, Candidate, "__eq__")
    config = config_of({"A": DRAWN}, trials=12, sampler="random", sampler_options={})
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        Night(config, Disk(Path(folder))).work()
        again = Night(config, Disk(Path(folder))).campaign
    assert len(again.lanes["A"].candidates) == 12
    assert not calls
