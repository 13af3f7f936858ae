"""Rounds timed in processes of their own, side by side."""

import signal

import pytest
from small_search import DIGITS

from fltune.errors import ConfigError, RunFailedError
from fltune.experiment import Experiment
from fltune.federation import child
from fltune.search import timing
from fltune.search.timing import Memory, Question, time_side_by_side
from fltune.search.timing_worker import answer_one

EXPERIMENT = Experiment.parse({**DIGITS["experiment"], "device": "cpu"})
LATE = {"model": {"name": "cnn_cifar"}}
"""What fits no digits; only who builds the model finds out."""


def test_two_processes_answer_three_questions():
    other = EXPERIMENT.with_values({"client.steps": 40})
    asked = [Question(EXPERIMENT), Question(EXPERIMENT, pack=3), Question(other)]
    found = time_side_by_side(asked, processes=2, cpus=1.0)
    assert [probe.evaluation > 0 for probe in found.probes] == [True, False, True]
    assert all(probe.round > 0 for probe in found.probes)
    assert 2**26 < found.memory.own < 2**33
    assert found.imports > 0.1


def test_what_a_process_raises_is_raised_here(monkeypatch):
    team = []
    start = timing._start
    monkeypatch.setattr(timing, "_start", lambda cpus: team.append(start(cpus)) or team[-1])
    with pytest.raises(ConfigError, match="CNNCifar is for"):
        time_side_by_side([Question(Experiment.parse({**LATE, "rounds": 2}))], 1, 1.0)
    assert [child.process.returncode for child in team] == [-signal.SIGKILL]  # none is left


def test_a_process_that_is_lost_is_named(monkeypatch):
    start = timing._start

    def doomed(cpus):
        child = start(cpus)
        child.process.kill()
        child.process.wait()
        return child

    monkeypatch.setattr(timing, "_start", doomed)
    with pytest.raises(RunFailedError, match=r"was ended by SIGKILL; .*search\.concurrent=1"):
        time_side_by_side([Question(EXPERIMENT)], 1, 1.0)


def test_a_process_that_cannot_be_started_ends_those_before_it(monkeypatch):
    team = []

    def once(*args, **options):
        if team:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        team.append(child.Child(*args, **options))
        return team[-1]

    monkeypatch.setattr(timing, "Child", once)
    with pytest.raises(RunFailedError, match=r"cannot be started \(Resource .*concurrent=1"):
        time_side_by_side([Question(EXPERIMENT)], 2, 1.0)
    assert team[0].process.returncode == -signal.SIGKILL


def test_a_bug_comes_with_its_traceback(monkeypatch):
    monkeypatch.setattr(timing, "probe", lambda experiment, long: 1 / 0)
    answer = answer_one(EXPERIMENT.as_dict(), pack=1, long=1.0, imports=3.0)
    assert isinstance(answer.found, RunFailedError)
    assert str(answer.found).startswith("timing a config of the plan failed:\nTraceback ")
    assert "ZeroDivisionError" in str(answer.found)
    assert answer.memory.own > 2**20
    assert answer.imports == 3.0


def test_the_most_that_any_process_needed_counts():
    assert Memory(3, 5).or_more(Memory(4, 2)) == Memory(4, 5)
