"""Ray around a search; here without Ray."""

import contextlib
import os
from pathlib import Path
from unittest import mock

import pytest
from small_search import DIGITS

from fltune.errors import ConfigError
from fltune.search import ray_session as sessions
from fltune.search.ray_session import _join, _of_workers, _start_here, ray_session, shared_ray
from fltune.search.search import search
from fltune.search.settings import Settings


def settings(cpus=1.0):
    return Settings.model_validate({"resources": {"cpus": cpus}})


class FakeRay:
    """Keeps how it was started, and the environment at that time."""

    def init(self, **arguments):
        self.arguments = arguments
        self.environment = dict(os.environ)


def test_workers_of_ray_here_inherit_what_they_need_and_this_process_keeps_nothing(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    own = _of_workers(settings())
    before, ray = {key: os.environ.get(key) for key in own}, FakeRay()
    _start_here(ray, settings(cpus=3.0))
    assert ray.arguments["num_cpus"] == 1
    assert ray.arguments["address"] == "local"  # whatever cluster runs here
    assert "runtime_env" not in ray.arguments  # else workers started in advance are not taken
    assert ray.environment["OMP_NUM_THREADS"] == "3"
    assert ray.environment["PYTHONPATH"] == os.pathsep.join([str(Path.cwd()), "mine"])
    assert ray.environment["RAY_CHDIR_TO_TRIAL_DIR"] == "0"
    assert {key: os.environ.get(key) for key in own} == before


def test_workers_of_a_cluster_are_sent_the_same(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    here, there = FakeRay(), FakeRay()
    _start_here(here, settings())
    _join(there, settings())
    sent = there.arguments["runtime_env"]["env_vars"]
    assert sent["OMP_NUM_THREADS"] == "1"
    assert {key: here.environment[key] for key in sent} == sent
    assert there.arguments["address"] == "10.0.0.1:6379"
    assert "num_cpus" not in there.arguments  # Ray refuses it


def test_a_process_that_uses_ray_already_is_told_so_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    raw = {**DIGITS, "tracking": {"root": str(tmp_path / "mlruns")}}
    with pytest.raises(ConfigError, match=r"call ray\.shutdown\(\) first"):
        search(raw)
    assert not (tmp_path / "mlruns").exists()


@pytest.fixture
def told(monkeypatch):
    """What Ray was asked for, in order; it has 4 cores."""
    found = []

    @contextlib.contextmanager
    def connected(settings):
        found.append(f"start {settings.resources.cpus:g}")
        try:
            yield
        finally:
            found.append("leave")

    monkeypatch.setattr(sessions, "_connected", connected)
    monkeypatch.setattr(sessions, "nodes", lambda: [{"Resources": {"CPU": 4.0}}])
    return found


def use(cpus=1.0):
    with ray_session(settings(cpus)) as concurrent:
        return concurrent


def test_a_session_leaves_its_ray(told):
    assert [use(), use(2.0)] == [4, 2]
    assert told == ["start 1", "leave", "start 2", "leave"]


def test_searches_that_need_the_same_ray_share_it(told):
    with shared_ray():
        assert [use(), use()] == [4, 4]
        assert told == ["start 1"]
        assert [use(2.0), use(2.0)] == [2, 2]
        assert told[1:] == ["leave", "start 2"]
    assert told[3:] == ["leave"]
    use()
    assert told[4:] == ["start 1", "leave"]


def test_a_search_that_fails_leaves_no_ray_to_the_next_one(told):
    with shared_ray():
        use()
        with pytest.raises(RuntimeError), ray_session(settings()):
            raise RuntimeError("bad luck")
        assert told == ["start 1", "leave"]
        use()
    assert told[2:] == ["start 1", "leave"]


def test_ray_is_not_started_where_no_search_needs_it(told):
    with shared_ray():
        pass
    assert told == []


def test_a_shared_ray_is_none_that_a_search_refuses(told, monkeypatch, tmp_path):
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("fltune.search.session.run_campaign", lambda *arguments: None)
    raw = {**DIGITS, "tracking": {"root": str(tmp_path / "mlruns")}}
    with shared_ray():
        search(raw)
    assert told == ["start 1", "leave"]


def test_ray_does_not_write_all_trials_down_again_and_again(monkeypatch):
    from ray.tune.execution import experiment_state

    period = sessions._ENVIRONMENT["TUNE_GLOBAL_CHECKPOINT_S"]
    kept = experiment_state._ExperimentCheckpointManager(
        storage=mock.Mock(), checkpoint_period=period
    )
    now, written = [0.0], []
    monkeypatch.setattr(experiment_state.time, "monotonic", lambda: now[0])
    for _ in range(3):
        kept.sync_up_experiment_state(lambda: written.append(now[0]))
        now[0] += 3600.0
    assert written == [0.0]  # it begins with one, which is small
