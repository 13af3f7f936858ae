"""Ray Tune around a campaign: one Tuner for a search, its workers reused between runs."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fltune.errors import ConfigError
from fltune.federation.allocation import environment
from fltune.federation.cores import allowed
from fltune.search.campaign import RESTARTS, Campaign
from fltune.search.config import SearchConfig
from fltune.search.nodes import check_address, check_nodes, nodes
from fltune.search.packer import Packer
from fltune.search.packs import Packs
from fltune.search.preparation import paths_of
from fltune.search.resources import Resources
from fltune.search.settings import Settings
from fltune.search.trainable import train
from fltune.search.verdicts import Bench

OBJECT_STORE_BYTES = 128 * 2**20
"""Workers read data from files and send small reports: /dev/shm need not hold more."""
_QUIET = {"logging_level": logging.ERROR, "log_to_driver": False}
PATIENCE_SECONDS = 60.0
"""How long a starting worker may keep its trial from one that is free."""


@contextlib.contextmanager
def ray_session(settings: Settings) -> Iterator[int]:
    """Start Ray (or join a cluster), yield how many trials run at once, and leave it again.

    Raises:
        ConfigError: the resources of one trial do not exist.
    """
    environment = {
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "30",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the campaign has its own
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = _start_here if settings.ray.cluster is None else _join
        start(ray, settings)
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a failed trial is in our record
    with _silent_raylet():  # it speaks up to the end
        try:
            yield concurrency(settings, *(node["Resources"] for node in nodes()))
        finally:
            with _nothing_collected():
                ray.shutdown()


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Let no other thread collect garbage meanwhile.

    What Ray has handed out may be in it, and goes back to a Ray that is half gone: the process then
    ends without a word.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


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
    """
    with _inherited(_of_workers(settings)):
        ray.init(
            address="local",
            num_cpus=allowed(),
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            **_QUIET,
        )


def _join(ray: Any, settings: Settings) -> None:
    """Join a cluster, whose workers get their environment over the network.

    Raises:
        ConfigError: it does not let us.
    """
    address = settings.ray.cluster
    try:
        ray.init(address=address, runtime_env={"env_vars": _of_workers(settings)}, **_QUIET)
    except (ConnectionError, RuntimeError) as error:  # the latter: other versions there
        said = str(error).strip().splitlines()[-1]
        raise ConfigError(f"{settings.ray.source}: found {address!r}; {said}") from error


def _of_workers(settings: Settings) -> dict[str, str]:
    """Return what the environment of a worker has besides Ray's own."""
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {
        **environment(),
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


def resources_here() -> dict[str, float]:
    """Return the cores and GPUs that this process may use, in Ray's names."""
    import torch

    return {"CPU": float(allowed()), "GPU": float(torch.cuda.device_count())}


def concurrency(settings: Settings, *machines: Mapping[str, float]) -> int:
    """Return how many trials fit at once.

    Args:
        settings: says what one trial gets.
        machines: cores and GPUs of each, in Ray's names. A trial runs on one machine, and a share
            of a GPU is of one GPU.

    Raises:
        ConfigError: not even one fits; a search would wait for ever.
    """
    wanted = {"CPU": settings.resources.cpus, "GPU": settings.resources.gpus}
    most = {name: max(m.get(name, 0.0) for m in machines) for name in wanted}
    where = "" if len(machines) == 1 else f" on the largest of {len(machines)} machines"
    short = [
        f"resources.{name.lower()}s: found {amount:g} per trial; there are {most[name]:g}{where}"
        for name, amount in wanted.items()
        if amount > most[name]
    ]
    if short:
        raise ConfigError(short)
    fits = sum(_fit(machine, settings.resources) for machine in machines)
    if not fits:
        raise ConfigError(
            f"resources: found cpus: {wanted['CPU']:g}, gpus: {wanted['GPU']:g} per trial; no "
            "machine has both"
        )
    return min(fits, settings.search.concurrent or fits)


def _fit(machine: Mapping[str, float], resources: Resources) -> int:
    """Return how many trials one machine takes at once."""
    fits = _times(resources.cpus, machine.get("CPU", 0.0))
    gpus = machine.get("GPU", 0.0)
    if not resources.gpus:
        return fits
    if resources.gpus < 1:
        return min(fits, int(gpus) * _times(resources.gpus, 1.0))
    return min(fits, _times(resources.gpus, gpus))


def _times(amount: float, available: float) -> int:
    """Return how often an amount is there; 0.28 is there 25 times in 7, whatever floats say."""
    return int(available / amount + 1e-6)


def check_cluster(config: SearchConfig) -> None:
    """See that a search can run on the cluster that it names, before anything of it exists.

    Raises:
        ConfigError: the cluster does not answer, or a machine lacks code, data, cores or GPUs; or
            this process, a notebook's for example, is connected to Ray already.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
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


def run_campaign(campaign: Campaign, config: SearchConfig, concurrent: int) -> None:
    """Run all jobs of a campaign.

    Args:
        campaign: what hands out the jobs and keeps what becomes of them.
        config: the search.
        concurrent: packs at once.
    """
    with _scratch() as storage, _workers_may_start(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench = Bench()
        packs = Packs(campaign, Packer(config.settings.search, concurrent), bench)
        try:
            _make_tuner(packs, config.settings, concurrent, storage).fit()
        finally:
            bench.close()


@contextlib.contextmanager
def _workers_may_start() -> Iterator[None]:
    """Let a worker that is starting do so, even if another one could take its trial.

    Ray gives the trial to the worker that is free, and ends the one that is starting. Where runs
    are shorter than the seconds of imports, one worker would then do all the work, while the others
    start again and again. A worker that does not come for :data:`PATIENCE_SECONDS` is not waited
    for: its machine may be gone. Ray has no public switch for it.
    """
    from ray.tune.execution.tune_controller import TuneController

    name = "_maybe_reuse_cached_actor"
    before = getattr(TuneController, name, None)
    if before is None:  # another Ray: it may have mended this
        yield
        return

    asked: dict[Any, float] = {}

    def reuse(self: Any, trial: Any) -> bool:
        starting = trial in self._trial_to_actor and trial not in self._resetting_trials
        waited = time.monotonic() - asked.setdefault(trial, time.monotonic()) if starting else 0.0
        return (not starting or waited > PATIENCE_SECONDS) and before(self, trial)

    setattr(TuneController, name, reuse)
    try:
        yield
    finally:
        setattr(TuneController, name, before)


def _make_tuner(packs: Packs, settings: Settings, concurrent: int, storage: Path) -> Any:
    from ray import tune

    from fltune.search.adapters import CampaignEvents, CampaignScheduler, CampaignSearcher

    return tune.Tuner(
        tune.with_resources(
            train, {"cpu": settings.resources.cpus, "gpu": settings.resources.gpus}
        ),
        param_space=_shared(settings),
        tune_config=tune.TuneConfig(
            search_alg=CampaignSearcher(packs),
            scheduler=CampaignScheduler(packs),
            num_samples=-1,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.trial_id,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name="search",
            storage_path=str(storage),
            callbacks=[CampaignEvents(packs)],
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=RESTARTS),
        ),
    )


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a folder for what Ray keeps of a search: written, never read, see state.py.

    A driver that was killed leaves its folder behind, with a lock that nobody holds any more; the
    next search removes it.
    """
    for lock in Path(tempfile.gettempdir()).glob("fltune-ray-*/lock"):
        with contextlib.suppress(Timeout, OSError), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix="fltune-ray-"))
    try:
        with FileLock(folder / "lock"):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shared(settings: Settings) -> dict[str, Any]:
    """What every worker is told besides its job."""
    return {
        "cpus": settings.resources.cpus,
        "gpus": settings.resources.gpus,
        "search": settings.search.model_dump(mode="json"),
    }
