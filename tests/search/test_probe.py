"""Timing a few rounds: what counts as a round, and when it is enough."""

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


def test_short_rounds_are_timed_for_a_while_and_long_ones_once_or_twice():
    assert not enough([0.01] * 40)
    assert enough([0.01] * 51)
    assert not enough([0.2] * 4)
    assert enough([0.2] * 5)
    assert not enough([1.4, 1.4])
    assert enough([1.6, 1.6])
    assert enough([3.1])
    assert not enough([2.9])
    assert enough([2.9], long=2.0)


def test_evaluations_are_billed_as_often_as_they_are_made():
    found = Probe(setup=3.0, round=0.1, evaluation=1.0, test=5.0)
    assert found.run(50, 1) == pytest.approx(3 + 5 + 50)
    assert found.run(50, 20) == pytest.approx(3 + 5 + 3)  # after 20, 40 and 50 rounds
    assert found.run(50, 50, test=True) == pytest.approx(3 + 5 + 1 + 5)


def test_a_run_is_timed_in_parts():
    found = probe(Experiment.parse(RAW))
    assert min(found.setup, found.round, found.evaluation, found.test) > 0


def test_a_schedule_of_all_rounds_does_not_end_with_those_that_are_timed():
    staged = {"name": "multistage", "stages": 2, "betas": [0.5, 0.9], "stage_ends": [20, 50]}
    assert probe(Experiment.parse({**RAW, "server": staged})).round > 0


def test_a_long_first_round_is_the_measure(monkeypatch):
    runs = []
    build = module.build
    monkeypatch.setattr(module, "build", lambda *a, **k: runs.append(a) or build(*a, **k))
    assert probe(Experiment.parse(RAW), long=0.0).round > 0
    assert len(runs) == 1


def test_a_run_of_a_pack_has_its_share(monkeypatch, clock):
    packs = []

    def packed(experiments, on_round):
        assert [e.eval_every for e in experiments] == [50] * 4  # none while it is timed
        packs.append(0)
        clock["wall"] += 8.0  # before the first round
        while True:
            packs[-1] += 1
            clock["wall"] += 0.4
            clock["processor"] = clock["wall"]
            if len(list(on_round())) == 4:
                break

    monkeypatch.setattr(module, "run_pack", packed)
    found = probe_pack(Experiment.parse({**RAW, "device": "cpu"}), pack=4, long=20.0)
    assert (found.setup, found.round) == (pytest.approx(2.0), pytest.approx(0.1))
    assert packs == [1, module.ROUNDS]  # the first one warms up
