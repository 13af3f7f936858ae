"""A campaign as Ray sees it: trials that carry one run each, or a pack of several.

Ray knows a trial, the campaign knows runs. Which run is which member of which trial is known here
alone; reports name the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fltune.search.campaign import Campaign
from fltune.search.jobs import Job
from fltune.search.packer import Packer
from fltune.search.record import TRIAL

Config = dict[str, Any]
"""What a worker is told of its trial; see :func:`fltune.search.trainable.train`."""


class Line(Protocol):
    """The way to a worker that is busy: it asks (:mod:`fltune.search.verdicts`)."""

    @property
    def name(self) -> str:
        """Where workers ask."""

    def stop(self, trial_id: str, members: list[int]) -> None:
        """Tell of members that are to stop while others go on."""


class Packs:
    """Hands out a campaign's jobs in packs and passes on what becomes of each.

    Args:
        campaign: knows the runs.
        packer: says what goes together.
        line: leads to workers that are to stop a member.
    """

    def __init__(self, campaign: Campaign, packer: Packer, line: Line) -> None:
        self.campaign = campaign
        self.packer = packer
        self.line = line
        self._out: dict[str, dict[int, Job]] = {}
        self._stopped: dict[str, list[int]] = {}

    def next(self, trial_id: str) -> Config | str | None:
        """Return what the next trial is to do; None or DONE as the campaign says."""
        job = self.campaign.next(_run(trial_id, 0))
        if not isinstance(job, dict):
            return job
        members = {0: job}
        for member, fellow in enumerate(self.campaign.fellows(job, self.packer), start=1):
            self.campaign.hand_out(_run(trial_id, member), fellow)
            members[member] = fellow
        self._out[trial_id] = members
        return self.left(trial_id)

    def left(self, trial_id: str) -> Config:
        """Return what of a trial is still to be done: after a loss, its ended members are not."""
        out = self._out.get(trial_id, {})
        asks = len(out) > 1 and self.campaign.search.scheduler != "none"
        return {
            "trial": trial_id,
            "jobs": [{"member": member, **job} for member, job in out.items()],
            "verdicts": self.line.name if asks else "",
        }

    def started(self, trial_id: str) -> None:
        """A worker has taken a trial up, or again."""
        for member in self._out.get(trial_id, {}):
            self.campaign.started(_run(trial_id, member))

    def stops(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Decide on the members that a report tells of; return whether none is left to go on."""
        out = self._out.get(trial_id, {})
        entries = {e["member"]: e for e in result["members"] if e["member"] in out}
        runs = {_run(trial_id, member): member for member in entries}
        told = self.campaign.stops({run: entries[member] for run, member in runs.items()})
        stopped = [runs[run] for run in told]
        self._stopped[trial_id] = stopped
        finished = [m for m, e in entries.items() if e.get("finished")]
        if stopped and len(stopped) + len(finished) < len(out):
            self.line.stop(trial_id, stopped)
            return False
        return bool(stopped)

    def reported(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Pass on what a report says of each member, and which of them have ended with it.

        A member that has been stopped may send more before it hears of that; it counts no more.
        """
        out, stopped = self._out.get(trial_id, {}), self._stopped.get(trial_id, [])
        place = {key: result[key] for key in ("hostname", "node_ip") if key in result}
        for entry in result["members"]:
            member = entry["member"]
            if member not in out:
                continue
            run = _run(trial_id, member)
            if entry.get("again"):
                self.campaign.started(run)
                continue
            self.campaign.reported(run, {**entry, **place})
            if entry.get("finished") or member in stopped:
                del out[member]
                self.campaign.ended(run)

    def ended(self, trial_id: str, error: str = "") -> None:
        """A trial is over; with an error, its worker was lost each time it was started.

        In a pack nobody knows who is to blame: its trials are put back, to run alone.
        """
        self._stopped.pop(trial_id, None)
        out = self._out.pop(trial_id, {})
        for member, job in out.items():
            run = _run(trial_id, member)
            if error and len(out) > 1 and job["kind"] == TRIAL:
                self.packer.part(job)
                self.campaign.take_back(run, job)
            else:
                self.campaign.ended(run, error)


def _run(trial_id: str, member: int) -> str:
    """Return the name of a member's run."""
    return f"{trial_id}.{member}"
