"""Ray Tune's three hooks, each a few lines over the campaign: proposals, early stopping, events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray.tune import Callback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from fltune.errors import last_line
from fltune.search.campaign import RESTARTS
from fltune.search.jobs import DONE
from fltune.search.packs import Packs


class _OfPacks:
    """What has the packs, and leaves them out where Ray pickles its parts.

    The state that Ray makes of them is never read: ours is on disk.
    """

    packs: Packs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "packs": None}


class CampaignSearcher(_OfPacks, Searcher):
    """Asks the campaign for jobs; how they ended it learns from :class:`CampaignEvents`."""

    def __init__(self, packs: Packs) -> None:
        super().__init__(metric="round", mode="max")
        self.packs = packs

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a pack of jobs, None to be asked again, or FINISHED."""
        found = self.packs.next(trial_id)
        return Searcher.FINISHED if found == DONE else found

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing; see :class:`CampaignEvents`."""

    def save(self, checkpoint_path: str) -> None:
        """Write an empty file, as Ray expects one."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the search goes on from its own logs."""


class CampaignScheduler(_OfPacks, FIFOScheduler):
    """Asks the campaign whether to stop a trial."""

    def __init__(self, packs: Packs) -> None:
        super().__init__()
        self.packs = packs

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Continue or stop."""
        stops = self.packs.stops(trial.trial_id, result)
        return TrialScheduler.STOP if stops else TrialScheduler.CONTINUE


class CampaignEvents(_OfPacks, Callback):
    """Tells the campaign what happens to its jobs."""

    def __init__(self, packs: Packs) -> None:
        self.packs = packs

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Pass it on."""
        self.packs.started(trial.trial_id)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        """Pass it on."""
        self.packs.reported(trial.trial_id, result)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Let the next worker of a pack run those of its members that have not ended."""
        trial.set_config({**trial.config, **self.packs.left(trial.trial_id)})

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Pass it on."""
        self.packs.ended(trial.trial_id)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Pass on that the worker was lost each time it was started, and why, as far as known.

        What a run itself raises never comes here: a worker reports it.
        """
        reason = _shorten(_why(trial.error_file))
        self.packs.ended(trial.trial_id, f"lost its worker {RESTARTS + 1} times: {reason}")


def _why(error_file: str | None) -> str:
    """Return the end of the traceback; Ray writes it here before it copies it to its storage."""
    path = Path(error_file or "none")
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return last_line(text) or "the worker died"


def _shorten(text: str, limit: int = 200) -> str:
    """Cut what Ray explains at length."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
