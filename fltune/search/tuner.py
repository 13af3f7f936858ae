"""Ray Tune around our searchers: one Tuner for a search, its workers reused between trials."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.record import Listener, TrialRecord
from fltune.search.settings import Settings
from fltune.search.trainable import train

OBJECT_STORE_BYTES = 128 * 2**20
"""Workers read data from files and send small reports: /dev/shm need not hold more."""


@contextlib.contextmanager
def ray_session(settings: Settings) -> Iterator[int]:
    """Start Ray (or join a cluster), yield how many trials run at once, and leave it again.

    Raises:
        ConfigError: the resources of one trial do not exist.
    """
    environment = {
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "30",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",  # its own ends one method, and the search would go on
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    for key, value in environment.items():
        os.environ.setdefault(key, value)
    import ray

    threads = str(max(1, int(settings.resources.cpus)))
    paths = [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    worker = {"OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    local = {} if settings.ray.address else {"num_cpus": os.cpu_count()}
    if local:
        local["object_store_memory"] = OBJECT_STORE_BYTES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ray.init(
                address=settings.ray.address,
                include_dashboard=None if settings.ray.address else False,
                logging_level=logging.ERROR,
                log_to_driver=False,
                runtime_env={"env_vars": {**worker, "RAY_CHDIR_TO_TRIAL_DIR": "0"}},
                **local,
            )
        except ConnectionError as error:
            raise ConfigError(f"ray.address = {settings.ray.address!r}: {error}") from error
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # a failed trial is in our record
    try:
        yield concurrency(settings, ray.cluster_resources())
    finally:
        ray.shutdown()


def resources_here() -> dict[str, float]:
    """Return the cores and GPUs of this machine, in Ray's names."""
    import torch

    return {"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}


def concurrency(settings: Settings, available: dict[str, float]) -> int:
    """Return how many trials fit at once.

    Raises:
        ConfigError: not even one fits; a search would wait for ever.
    """
    wanted = {"CPU": settings.resources.cpus, "GPU": settings.resources.gpus}
    short = [
        f"resources.{name.lower()}s: found {amount:g} per trial; "
        f"there are {available.get(name, 0):g}"
        for name, amount in wanted.items()
        if amount > available.get(name, 0)
    ]
    if short:
        raise ConfigError(short)
    fits = min(int(available[name] / amount) for name, amount in wanted.items() if amount)
    return min(fits, settings.search.concurrent or fits)


def run_campaign(
    config: SearchConfig, concurrent: int, state: Path, listen: Listener
) -> list[TrialRecord]:
    """Run all trials and confirmations of a search; return their records as they started.

    Args:
        config: the search.
        concurrent: trials at once.
        state: Ray's folder for this search.
        listen: told of every start, progress and end.
    """
    from ray import tune
    from ray.tune.schedulers import FIFOScheduler

    from fltune.search.campaign import Campaign
    from fltune.search.collector import Collector
    from fltune.search.scheduler import PerMethodStopping

    settings, search = config.settings, config.settings.search
    collector = Collector(listen)
    resources = {"cpu": settings.resources.cpus, "gpu": settings.resources.gpus}
    budget = sum(m.trials(search) + search.confirm_seeds for m in config.methods.values())
    tuner = tune.Tuner(
        tune.with_resources(train, resources),
        param_space=_shared(settings),
        tune_config=tune.TuneConfig(
            search_alg=Campaign(config),
            scheduler=FIFOScheduler() if search.scheduler == "none" else PerMethodStopping(config),
            num_samples=budget,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_name_creator=lambda trial: trial.trial_id,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=state.name,
            storage_path=str(state.parent),
            callbacks=[collector],
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner.fit()
    return collector.records()


def _shared(settings: Settings) -> dict[str, Any]:
    """What every worker is told besides its job."""
    search = settings.search
    return {
        "cpus": settings.resources.cpus,
        "every_row": search.scheduler != "none",
        "score": {
            "metric": search.metric,
            "maximize": search.maximize,
            "average_last": search.average_last,
        },
    }
