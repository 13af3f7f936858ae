"""What a Ray worker does with several jobs that run as one computation.

Each is judged as if it ran alone. What they report goes out together, for a report costs the driver
the same whether it tells of one run or of sixteen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fltune.federation.history import Row
from fltune.packing import run_pack
from fltune.runner import RunResult
from fltune.search.jobs import Job, experiment_of
from fltune.search.settings import SearchSettings
from fltune.search.trainable import Send, Sender, failure, outcome


def run_together(
    jobs: Sequence[Job], search: SearchSettings, send: Send, ask: Callable[[], Sequence[int]]
) -> list[Job]:
    """Run jobs as one computation and report them all.

    Args:
        jobs: of one pack, as :class:`fltune.search.packer.Packer` puts them together.
        search: says how a run is judged.
        send: takes what is to be reported of some members.
        ask: returns the members that are to stop; asked after a report that a scheduler looks at.

    Returns:
        The jobs that are still to be run, each alone: all that go on, if they could not go on
        together, as for want of memory.
    """
    pack = _Pack(jobs, search, send, ask)
    experiments = [sender.experiment for sender in pack.senders]
    try:
        results = run_pack(
            experiments,
            test=jobs[0]["test"],
            on_row=pack.on_row,
            on_round=pack.on_round,
            on_end=pack.on_end,
        )
    except Exception:
        left = [job for job in jobs if job["member"] not in pack.over]
        send([{"member": job["member"], "again": True} for job in left])
        return left
    pack.finish(results)
    return []


class _Pack:
    """Collects what the members of a pack report, and sends it after each round.

    Args:
        jobs, search, send, ask: see :func:`run_together`.

    Attributes:
        senders: judge the members' rows, in the order of the jobs.
        over: members that were stopped, or whose end has been sent.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        search: SearchSettings,
        send: Send,
        ask: Callable[[], Sequence[int]],
    ) -> None:
        self.members = [job["member"] for job in jobs]
        self.senders = [
            Sender(search, experiment_of(job), partial(self._collect, job["member"]), len(jobs))
            for job in jobs
        ]
        self.over: set[int] = set()
        self._send = send
        self._ask = ask
        self._waiting: list[dict[str, Any]] = []

    def _collect(self, member: int, entry: Mapping[str, Any]) -> None:
        self._waiting.append({"member": member, **entry})

    def on_row(self, place: int, row: Row) -> None:
        """Take a member's row."""
        self.senders[place].add(row)

    def on_round(self) -> list[int]:
        """Send what there is; return the places of members that are to stop."""
        if not self._waiting:
            return []
        judged = self.senders[0].every_row and not all("finished" in e for e in self._waiting)
        self._flush()
        stopped = set(self._ask()) if judged else set()
        self.over |= stopped
        return [place for place, member in enumerate(self.members) if member in stopped]

    def on_end(self, place: int, result: RunResult) -> None:
        """Take the result of a member; of one that was stopped nobody wants to hear."""
        if self.members[place] not in self.over:
            self._collect(self.members[place], outcome(self.senders[place], result))

    def finish(self, results: Sequence[RunResult | Exception]) -> None:
        """Send what is left when the last member has ended: results, and what members raised."""
        for member, result in zip(self.members, results, strict=True):
            if isinstance(result, Exception) and member not in self.over:
                self._collect(member, failure(result))
        if self._waiting:
            self._flush()

    def _flush(self) -> None:
        """Send all that waits, and forget it only then: what is lost on the way is run again."""
        self._send(self._waiting)
        self.over |= {entry["member"] for entry in self._waiting if entry.get("finished")}
        self._waiting = []
