"""Timing a few rounds: what counts as a round, and when it is enough."""

import time

import pytest
from small_search import DIGITS

from fltune.experiment import Experiment
from fltune.search import probe as module
from fltune.search.probe import Probe, Stopwatch, enough, probe, probe_pack

RAW = {**DIGITS["experiment"], "rounds": 50}


@pytest.fixture
def clock(monkeypatch):
    """Clocks that stand still until a test moves them."""
    now = {"wall": 0.0, "processor": 0.0}
    monkeypatch.setattr(module.time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(module.time, "process_time", lambda: now["processor"])
    return now


def test_what_other_programs_take_is_not_counted(clock):
    watch, wall = Stopwatch(processor=True), Stopwatch(processor=False)
    clock.update(wall=3.0, processor=1.0)
    assert (watch.lap(), wall.lap()) == (1.0, 3.0)
    clock.update(wall=5.0, processor=5.0)  # two threads
    assert (watch.lap(), wall.lap()) == (2.0, 2.0)


def test_two_rounds_are_enough_where_they_are_long(clock):
    clock["wall"] = 2.9
    assert not enough([1.4, 1.4], 0.0)
    assert enough([0.0] * 5, 0.0)
    clock["wall"] = 3.1
    assert not enough([3.1], 0.0)
    assert enough([1.5, 1.5], 0.0)


def test_evaluations_are_billed_as_often_as_they_are_made():
    every, rarely = (probe(Experiment.parse({**RAW, "eval_every": n})) for n in (1, 50))
    assert every.evaluation > 0
    assert rarely.evaluation < every.evaluation / 5  # a fiftieth, if both clocks were perfect
    assert 0 < rarely.seconds < 5
    assert every.client_samples == rarely.client_samples > 0


def test_a_run_of_a_pack_has_its_share(monkeypatch):
    rounds = []

    def packed(experiments, on_round):
        assert [e.eval_every for e in experiments] == [50] * 4  # none while it is timed
        while not list(on_round()):
            rounds.append(time.perf_counter())

    monkeypatch.setattr(module, "run_pack", packed)
    found = probe_pack(Experiment.parse(RAW), Probe(9.0, 0.25, 1.0), pack=4)
    assert len(rounds) == module.ROUNDS - 1
    assert 0.25 <= found < 0.3
