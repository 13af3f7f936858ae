"""Ray around a search: started here or joined, left again; one for several searches if wanted."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from fltune.errors import ConfigError, FltuneError, last_line
from fltune.federation.allocation import environment
from fltune.federation.cores import allowed
from fltune.garbage import OURS, uncollected
from fltune.search.concurrency import concurrency, resources_here
from fltune.search.config import SearchConfig
from fltune.search.interrupts import kept_on_sigterm
from fltune.search.nodes import check_address, check_nodes, nodes
from fltune.search.preparation import paths_of
from fltune.search.settings import Settings

OBJECT_STORE_BYTES = 128 * 2**20
"""Workers read data from files and send small reports: /dev/shm need not hold more."""
_QUIET = {"logging_level": logging.ERROR, "log_to_driver": False}


_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "inf",  # all trials every time, and never read: ours is on disk
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the campaign has its own
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class RayStartError(FltuneError):
    """Ray does not start on this machine."""


class _Shared:
    """A Ray that is kept from one search to the next."""

    def __init__(self) -> None:
        self._left = contextlib.ExitStack()
        self._kind: tuple[str | None, dict[str, str]] | None = None

    def need(self, settings: Settings) -> None:
        """Start Ray, unless one is there of the kind that is needed."""
        kind = settings.ray.cluster, _of_workers(settings)
        if kind != self._kind:
            self.leave()
            self._left.enter_context(_connected(settings))
            self._kind = kind

    def leave(self) -> None:
        """Leave Ray, if there is one."""
        self._kind = None
        self._left.close()


_SHARED: ContextVar[_Shared | None] = ContextVar("shared Ray", default=None)


@contextlib.contextmanager
def shared_ray() -> Iterator[None]:
    """Let the searches inside use one Ray after another: to start one takes many seconds.

    It starts with the first search that needs it, and anew for one on another cluster or with other
    threads, and after a search that failed.
    """
    shared = _Shared()
    token = _SHARED.set(shared)
    try:
        yield
    finally:
        _SHARED.reset(token)
        shared.leave()


@contextlib.contextmanager
def ray_session(settings: Settings) -> Iterator[int]:
    """Start Ray (or join a cluster), yield how many trials run at once, and leave it again.

    Inside :func:`shared_ray` it is left later.

    Raises:
        ConfigError: the resources of one trial do not exist.
    """
    shared = _SHARED.get()
    with contextlib.ExitStack() as left:
        if shared is None:
            left.enter_context(_connected(settings))
        else:
            shared.need(settings)
        try:
            yield concurrency(settings, *(node["Resources"] for node in nodes()))
        except BaseException:
            if shared is not None:
                shared.leave()
            raise


@contextlib.contextmanager
def _connected(settings: Settings) -> Iterator[None]:
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    import ray

    with kept_on_sigterm(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = _start_here if settings.ray.cluster is None else _join
        start(ray, settings)
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a failed trial is in our record
    with _silent_raylet():  # it speaks up to the end
        try:
            yield
        finally:
            # what Ray has handed out may be in the garbage, and would go back to a Ray that is half
            # gone: the process then ends without a word
            with uncollected():
                ray.shutdown()


@contextlib.contextmanager
def _silent_raylet() -> Iterator[None]:
    """Keep Ray from explaining between our lines at length that a worker was killed.

    It does so whatever ``log_to_driver`` says, and has no public switch; our record has the reason.
    """
    from ray._private import worker

    before = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


def _start_here(ray: Any, settings: Settings) -> None:
    """Start Ray on this machine alone, even where a cluster runs.

    Workers inherit what they need. As a ``runtime_env`` it would come too late for those that Ray
    starts in advance, one per core: they would have been started for nothing, with others after
    them.

    Raises:
        RayStartError: it does not, of whatever kind Ray's own error is.
    """
    try:
        with _inherited(_of_workers(settings)):
            ray.init(
                address="local",
                num_cpus=allowed(),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                **_QUIET,
            )
    except Exception as error:
        raise RayStartError(f"Ray does not start on this machine: {error}") from error


def _join(ray: Any, settings: Settings) -> None:
    """Join a cluster, whose workers get their environment over the network.

    Raises:
        ConfigError: it does not let us.
    """
    address = settings.ray.cluster
    try:
        ray.init(address=address, runtime_env={"env_vars": _of_workers(settings)}, **_QUIET)
    except (ConnectionError, RuntimeError) as error:  # the latter: other versions there
        said = f"found {address!r}; {last_line(str(error))}"
        raise ConfigError(f"{settings.ray.source}: {said}") from error


def _of_workers(settings: Settings) -> dict[str, str]:
    """Return what the environment of a worker has besides Ray's own."""
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {
        **environment(),
        OURS: "1",
        "OMP_NUM_THREADS": str(max(1, int(settings.resources.cpus))),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }


@contextlib.contextmanager
def _inherited(variables: Mapping[str, str]) -> Iterator[None]:
    """Have variables in this process's environment, for what it starts meanwhile."""
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def check_cluster(config: SearchConfig) -> None:
    """See that a search can run on the cluster that it names, before anything of it exists.

    Raises:
        ConfigError: the cluster does not answer, or a machine lacks code, data, cores or GPUs; or
            this process, a notebook's for example, is connected to Ray already.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and _SHARED.get() is None:
        raise ConfigError(
            "ray: this process is connected to Ray already, and a search starts or joins one of "
            "its own; call ray.shutdown() first"
        )
    address = config.settings.ray.cluster
    if address is None:
        concurrency(config.settings, resources_here())
        return
    check_address(address, config.settings.ray.source)
    with ray_session(config.settings):
        check_nodes(path for method in config.methods.values() for path in paths_of(method))
