"""Ray Tune around our searchers: one Tuner per method, workers reused between trials."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fltune.errors import ConfigError, FltuneError
from fltune.randomness import derive_seed
from fltune.search.config import Method
from fltune.search.record import TrialRecord
from fltune.search.settings import Settings
from fltune.search.trainable import train, worst_score

OBJECT_STORE_BYTES = 128 * 2**20
"""Workers read data from files and send small reports: /dev/shm need not hold more."""

Listener = Callable[[str, TrialRecord], None]
"""Called with an event (start, progress, end) and the record it is about."""


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


def tune_method(
    method: Method, settings: Settings, concurrent: int, state: Path, listen: Listener
) -> list[TrialRecord]:
    """Run the trials of one method and return their records in the order they started."""
    from fltune.search.searcher import ListSearcher, OptunaSearcher

    search = settings.search
    budget = method.trials(search)
    searcher: ListSearcher | OptunaSearcher
    if method.exact(search):
        searcher = ListSearcher({"values": cell} for cell in method.space.grid())
    else:
        max_loss = method.experiment(method.first_values()).max_loss
        searcher = OptunaSearcher(
            method.space,
            search.sampler,
            budget,
            seed=derive_seed(search.seed, method.name) % 2**32,
            maximize=search.maximize,
            worst=worst_score(search.metric, search.maximize, max_loss),
        )
    shared = {**_shared_config(settings), "base": method.raw, "test": False}
    return _fit(searcher, shared, budget, settings, concurrent, state, listen, method.name)


def run_jobs(
    jobs: Sequence[dict[str, Any]],
    settings: Settings,
    concurrent: int,
    state: Path,
    listen: Listener,
) -> list[TrialRecord]:
    """Run given configs once each (``base``, ``values``, ``test``, ``method``), in any order."""
    from fltune.search.searcher import ListSearcher

    plain = settings.model_copy(
        update={"search": settings.search.model_copy(update={"scheduler": "none"})}
    )
    shared = {**_shared_config(plain), "base": {}}
    searcher = ListSearcher(jobs)
    return _fit(searcher, shared, len(jobs), plain, concurrent, state, listen, None)


def _shared_config(settings: Settings) -> dict[str, Any]:
    search = settings.search
    return {
        "values": {},
        "cpus": settings.resources.cpus,
        "every_row": search.scheduler != "none",
        "score": {
            "metric": search.metric,
            "maximize": search.maximize,
            "average_last": search.average_last,
        },
    }


def _fit(
    searcher: Any,
    shared: dict[str, Any],
    budget: int,
    settings: Settings,
    concurrent: int,
    state: Path,
    listen: Listener,
    method: str | None,
) -> list[TrialRecord]:
    from ray import tune

    from fltune.search.collector import Collector

    collector = Collector(method, listen)
    resources = {"cpu": settings.resources.cpus, "gpu": settings.resources.gpus}
    tuner = tune.Tuner(
        tune.with_resources(train, resources),
        param_space=shared,
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=_scheduler(settings, shared["base"].get("rounds", 100)),
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
    records = collector.records()
    if records and all(r.status == "failed" for r in records):
        raise FltuneError(f"every trial failed; the first one said: {records[0].message}")
    return records


def _scheduler(settings: Settings, rounds: int) -> Any:
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    search = settings.search
    if search.scheduler == "none":
        return FIFOScheduler()
    return ASHAScheduler(
        time_attr="round",
        metric="objective",
        mode="max" if search.maximize else "min",
        max_t=rounds,
        grace_period=min(search.grace, rounds),
        reduction_factor=search.reduction,
    )
