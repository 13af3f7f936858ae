"""A whole search in progress: every method's lane, the runs that are out, and what has ended.

It knows nothing of Ray (:mod:`fltune.search.adapters` does): it hands out jobs, is told what became
of them, keeps each ended run on the disk before anyone learns of it, and holds the search to its
caps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fltune.errors import ConfigError
from fltune.search.caps import Caps
from fltune.search.config import SearchConfig
from fltune.search.heir import HeirLane
from fltune.search.jobs import DONE, Job
from fltune.search.lane import Lane
from fltune.search.record import TRIAL, Listener, TrialRecord
from fltune.search.state import DiskFullError, SearchState

if TYPE_CHECKING:
    from fltune.search.packer import Packer
    from fltune.search.rungs import Rungs

RESTARTS = 2
"""Times a run is started again after its worker was killed: by the kernel, a user, a lost node."""


class Campaign:
    """Hands out the jobs of all methods, a method's trials before the next one's.

    All methods share the workers, because a worker pays seconds of imports once, not once per
    method, and no core waits for a method's last trial.

    Args:
        config: the search.
        state: its logs; what they hold is not done again.
        listen: told of every start, progress and end.

    Attributes:
        lanes: by method.
        stopping: no new job is handed out; runs that are out go on.
        terminated: SIGTERM has come; nothing goes on.
        fault: why the search had to stop, if it had to.
    """

    def __init__(self, config: SearchConfig, state: SearchState, listen: Listener) -> None:
        self.search = config.settings.search
        self.state = state
        self.listen = listen
        self.stopping = self.terminated = False
        self.fault: DiskFullError | None = None
        self.lanes = self._make_lanes(config)
        self._out: dict[str, TrialRecord] = {}
        self._ready: Job | str | None = None
        self._begun: set[tuple[str, str, int, int]] = set()
        self._started = time.monotonic()
        self._seconds_before = 0.0
        self._caps = Caps(self.search)
        self._restore()

    def _make_lanes(self, config: SearchConfig) -> dict[str, Lane]:
        lanes: dict[str, Lane] = {}
        for name, method in config.methods.items():
            if method.inherit is None:
                lanes[name] = Lane(method, self.search, self._journal)
        for name, method in config.methods.items():
            if method.inherit is None:
                continue
            source = method.inherit.source
            if source not in lanes:
                raise ConfigError(
                    f"methods.{name}.inherit: {source!r} is not among the methods of this search"
                )
            lanes[name] = HeirLane(method, self.search, self._journal, lanes[source])
        return {name: lanes[name] for name in config.methods}

    def _restore(self) -> None:
        decided: dict[Any, list[dict[str, Any]]] = {}
        for entry in self.state.journal.read():
            decided.setdefault(entry.get("method"), []).append(entry)
        ended: dict[str, list[TrialRecord]] = {}
        for record in self.state.records():
            ended.setdefault(record.method, []).append(record)
            self._caps.count(record)
        self._seconds_before = self.state.seconds
        for name, lane in self.lanes.items():
            lane.restore(decided.get(name, []), ended.get(name, []))
            lane.closed = bool(self.spent)

    @property
    def seconds(self) -> float:
        """Time spent, that of earlier processes included up to their last note."""
        return self._seconds_before + time.monotonic() - self._started

    def _journal(self, entry: Mapping[str, Any]) -> None:
        self.state.journal.append({**entry, "seconds": round(self.seconds, 3)})

    @property
    def records(self) -> list[TrialRecord]:
        """All ended runs, method by method."""
        return [run for lane in self.lanes.values() for run in lane.records]

    def next(self, run_id: str) -> Job | str | None:
        """Return the next job; None while all that is left waits for runs that are out; else DONE.

        Args:
            run_id: what the job is called when it is reported on.
        """
        job = DONE if self.stopping else self._ready or self._decide()
        self._ready = None
        if isinstance(job, dict):
            self.hand_out(run_id, job)
        return job

    def hand_out(self, run_id: str, job: Job) -> None:
        """Note that a job is out."""
        self._out[run_id] = _blank(job)

    def fellows(self, job: Job, packer: Packer) -> list[Job]:
        """Return jobs that go with the one that was just handed out; they are to be noted too.

        Args:
            job: of some lane.
            packer: knows what goes together.
        """
        try:
            return packer.fellows(self.lanes[job["method"]], job)
        except DiskFullError as error:
            self._give_up(error)
            return []

    def take_back(self, run_id: str, job: Job) -> None:
        """Put a job that is out back into its lane; what it reported is forgotten."""
        del self._out[run_id]
        self.lanes[job["method"]].put_back([job])

    def reserve_first(self) -> bool:
        """Decide the first job and keep it for :meth:`next`; return whether workers are needed.

        They are not where an earlier process has done all there was to do, or the disk is full.
        """
        self._ready = self._decide()
        return self._ready != DONE

    def _decide(self) -> Job | str | None:
        waiting = False
        try:
            self._hold_caps()
            # heirs last: else one would wait for a winner that is known a moment later
            for lane in sorted(self.lanes.values(), key=lambda own: isinstance(own, HeirLane)):
                job = lane.next()
                if isinstance(job, dict):
                    return job
                waiting = waiting or job is None
        except DiskFullError as error:
            self._give_up(error)
            return DONE
        return None if waiting else DONE

    @property
    def spent(self) -> list[str]:
        """The caps that are spent; see :meth:`fltune.search.caps.Caps.spent`."""
        return self._caps.spent(self.seconds)

    def _hold_caps(self) -> None:
        """Close the lanes once a budget is spent; what is out may end, winners are confirmed."""
        if self.spent and not all(lane.closed for lane in self.lanes.values()):
            self._journal({"event": "spent"})  # else a resumed search had some seconds left
            for lane in self.lanes.values():
                lane.closed = True

    def started(self, run_id: str) -> None:
        """A worker has taken a job up; or again, after the worker before it died."""
        record = self._out[run_id]
        run = (record.method, record.kind, record.number, record.seed)
        if run in self._begun:
            record.restart()
            return
        self._begun.add(run)
        self.listen("start", record)

    def reported(self, run_id: str, result: Mapping[str, Any]) -> None:
        """A worker has sent metrics."""
        record = self._out[run_id]
        record.take(result)
        self.listen("progress", record)

    def stops(self, results: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return which runs are to be stopped early after they have reported at the same time.

        Those that come to a rung together are judged with the scores of all of them.

        Args:
            results: reports, by run.
        """
        asked = [
            (run, rungs, self._out[run].number, int(result["round"]), result["scores"][0])
            for run, result in results.items()
            if (rungs := self._rungs(run, result)) is not None
        ]
        for _, rungs, number, round, score in asked:
            rungs.replay(number, {round: score})
        return [run for run, rungs, *reached in asked if rungs.stop(*reached)]

    def _rungs(self, run_id: str, result: Mapping[str, Any]) -> Rungs | None:
        """Return what judges a run after a report; None if nothing does."""
        record = self._out.get(run_id)
        if record is None or record.kind != TRIAL or "scores" not in result:
            return None
        lane = self.lanes[record.method]
        return None if result.get("finished") or record.seed != lane.seeds[0] else lane.rungs

    def ended(self, run_id: str, error: str = "") -> None:
        """A run is over: reported whole, stopped early, or lost with its worker."""
        record = self._out.pop(run_id, None)
        if record is None:
            return
        if error:
            record.fail(error)
        elif not record.message:
            record.stop_early()
        lane = self.lanes[record.method]
        if not all(map(math.isfinite, record.scores)):
            record.diverge(lane.worst[record.kind])
        try:
            self.state.keep(record, self.seconds)
            self._caps.count(record)
            lane.ended(record)
            self.listen("end", record)
        except DiskFullError as full:
            self._give_up(full)

    def _give_up(self, error: DiskFullError) -> None:
        self.stopping = True
        self.fault = self.fault or error


def _blank(job: Job) -> TrialRecord:
    return TrialRecord(job["method"], job["kind"], job["number"], job["searched"], job["seed"])
