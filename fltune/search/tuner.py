"""Ray Tune around a campaign: one Tuner for a search, its workers reused between runs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fltune.search.campaign import RESTARTS, Campaign
from fltune.search.config import SearchConfig
from fltune.search.packer import Packer
from fltune.search.packs import Packs
from fltune.search.settings import Settings
from fltune.search.trainable import train
from fltune.search.verdicts import Bench

PATIENCE_SECONDS = 60.0
"""How long a starting worker may keep its trial from one that is free."""


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
