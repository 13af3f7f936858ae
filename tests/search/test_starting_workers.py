"""Ray's choice between a worker that is free and one that is starting, corrected in a search."""

from types import SimpleNamespace

import pytest
from ray.tune.execution.tune_controller import TuneController

from fltune.search import tuner
from fltune.search.tuner import _workers_may_start

NAME = "_maybe_reuse_cached_actor"


@pytest.fixture
def asked(monkeypatch):
    """The trials for which Ray was asked to take a free worker."""
    found = []
    monkeypatch.setattr(TuneController, NAME, lambda self, trial: found.append(trial) or True)
    return found


def controller(starting=(), resetting=()):
    return SimpleNamespace(
        _trial_to_actor=dict.fromkeys([*starting, *resetting]), _resetting_trials=set(resetting)
    )


def test_a_trial_whose_worker_is_starting_waits_for_it(asked):
    with _workers_may_start():
        reuse = getattr(TuneController, NAME)
        assert not reuse(controller(starting=["a"]), "a")
        assert asked == []
        assert reuse(controller(starting=["a"]), "b")  # it has none yet: the free one is welcome
        assert reuse(controller(resetting=["c"]), "c")  # it has taken a free one already
    assert asked == ["b", "c"]


def test_a_worker_that_does_not_come_is_not_waited_for(asked, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(tuner.time, "monotonic", lambda: now[0])
    waiting = controller(starting=["a", "b"])
    with _workers_may_start():
        reuse = getattr(TuneController, NAME)
        assert not reuse(waiting, "a")
        now[0] = tuner.PATIENCE_SECONDS + 1
        assert not reuse(waiting, "b")  # asked for the first time
        assert reuse(waiting, "a")
    assert asked == ["a"]


def test_ray_is_as_before_after_a_search(asked):
    before = getattr(TuneController, NAME)

    def fail():
        with _workers_may_start():
            assert getattr(TuneController, NAME) is not before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert getattr(TuneController, NAME) is before


def test_this_ray_is_one_that_needs_it():
    """Else the correction can go."""
    assert hasattr(TuneController, NAME)


def test_another_ray_is_left_alone(monkeypatch):
    monkeypatch.delattr(TuneController, NAME)
    with _workers_may_start():
        assert not hasattr(TuneController, NAME)
