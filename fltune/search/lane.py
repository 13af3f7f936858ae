"""The work of one method in order: its configs, each on every search seed, then its winner anew.

A lane knows nothing of Ray: it is asked for the next job and told how runs ended, and it can be
rebuilt from the search's logs at any point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from fltune.search.candidate import Candidate, by_promise, why_hopeless, winners
from fltune.search.edges import find_edges, wider_entries
from fltune.search.jobs import DONE, Job, Journal, make_job
from fltune.search.method import Method
from fltune.search.proposer import Proposal, Proposer, make_proposer
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord
from fltune.search.rungs import make_rungs
from fltune.search.settings import SearchSettings
from fltune.search.standing import Standing
from fltune.search.study import Outcome


class Lane(Standing):
    """The jobs of one method.

    A deterministic search makes its proposals in batches, and learns from a batch when all of it
    has ended: which worker was quicker then decides nothing.

    Args:
        method: what is tuned.
        search: budget, and how the winner is chosen.
        journal: where proposals and rejections go first.
        inherited: values of every config that another method has found.
        first: the number of the first config.

    Attributes:
        beside: what trials set beside their points.
        closed: set to end the search of the method with what it has; its winner is confirmed.
    """

    def __init__(
        self,
        method: Method,
        search: SearchSettings,
        journal: Journal,
        inherited: Mapping[str, Any] | None = None,
        first: int = 0,
    ) -> None:
        super().__init__(method, search)
        self.inherited = dict(inherited or {})
        self.first = first
        self.journal = journal
        self.beside = method.of_trials(search)
        self._widenings = 0
        self._proposer: Proposer | None = None
        self.rungs = make_rungs(search, method.trial_rounds(search))
        if self.rungs is not None and search.deterministic:
            self.rungs.freeze()
        self.closed = False
        self._open: set[int] = set()
        self._out: set[tuple[int, int]] = set()
        self._raced: set[int] = set()
        self._proposals: list[Proposal] = []
        self._unread: list[Candidate] = []
        self._read: list[Candidate] = []
        self._asked = 0
        self._queue: list[Job] = []
        self._confirming = False

    @property
    def proposer(self) -> Proposer:
        """What proposes the configs, with all that it was told; made when it is first asked for.

        A comparison of what there is proposes nothing, and does without Optuna.
        """
        if self._proposer is None:
            goal = self.judge.directions, self.judge.worst
            made = make_proposer(self.method, self.search, self._budget, *goal)
            told = {c.number - self.first: self._outcome(c) for c in self._read}
            made.restore([(p, told.get(p.number)) for p in self._proposals])
            self._proposer = made
        return self._proposer

    @property
    def _budget(self) -> int:
        return self.search.trials + self._widenings * max(1, self.search.trials // 2)

    @property
    def spent(self) -> bool:
        """Whether its configs are drawn, and all have been."""
        return not self.method.exact(self.search) and len(self._proposals) >= self._budget

    def next(self) -> Job | str | None:
        """Return the next job, None while runs are out that decide what comes, or DONE."""
        job = self._from_queue()
        if job is not None:
            return job
        if self._confirming:
            return DONE
        proposal = self._propose()
        if proposal is not None:
            self._begin(proposal)
            return self.next()
        if any(number in self._open for number, _ in self._out):
            return None
        self._read_batch()
        if not self.closed and self._widen():
            return self.next()
        self._confirming = True
        self._queue = self._confirmations()
        return self.next()

    def _from_queue(self) -> Job | None:
        if self.closed and self._queue and self.front:  # without a winner, what was begun goes on
            self._queue = [job for job in self._queue if job["kind"] == CONFIRMATION]
        while self._queue:
            job = self._queue.pop(0)
            candidate = self.candidates[job["number"]]
            if job["kind"] == CONFIRMATION or not self._rejects(candidate):
                self._out.add((candidate.number, job["seed"]))
                return job
        return None

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Take back jobs that nobody has begun; they are the next ones."""
        self._out -= {(job["number"], job["seed"]) for job in jobs}
        self._queue = [*jobs, *self._queue]

    @property
    def queued(self) -> bool:
        """Whether a job is there without a new proposal."""
        return bool(self._queue)

    @property
    def in_flight(self) -> int:
        """Configs that are proposed and have not ended."""
        return len(self._open)

    @property
    def settled(self) -> bool:
        """Whether all configs have been tried, so that the winner is known."""
        return self._confirming

    @property
    def planned(self) -> int:
        """Configs that it will try, as far as is known."""
        return max(self.method.trials(self.search), len(self.tried))

    @property
    def done(self) -> int:
        """Configs that have ended."""
        return len(self.tried) - len(self._open)

    def _widen(self) -> bool:
        """Widen the space where the winner is on an edge, if that is wanted and can be."""
        best = self.front[:1]
        if self._widenings == self.search.extend_edges or not best:
            return False
        tried = list(self.candidates.values())
        edges = find_edges(self.method, tried, best[0], self.search.maximize)
        entries = wider_entries(self.method, edges)
        if not entries:
            return False
        written = self.method.space.to_yaml()
        before = {name: written[name] for name in entries}
        decided = {"method": self.method.name, "entries": entries, "before": before}
        self.journal({"event": "widened", **decided})
        self._wider(entries, before)
        self._proposer = None  # of the space as it was
        return True

    def _wider(self, entries: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        """Search a wider space; an entry that was set by hand since then stays."""
        self._widenings += 1
        written = self.method.space.to_yaml()
        same = {k: v for k, v in entries.items() if written.get(k) == before[k]}
        self.method = self.method.widened(same)

    def _propose(self) -> Proposal | None:
        if self.closed:
            return None
        if self.search.deterministic and self._asked >= self.search.batch:
            if self._open:
                return None
            self._read_batch()
        return self.proposer.propose()

    def _begin(self, proposal: Proposal) -> None:
        number = proposal.number + self.first
        decided = {"number": number, "values": proposal.point, "attrs": proposal.attrs}
        self.journal({"event": "proposed", "method": self.method.name, **decided})
        self._asked += 1
        candidate = self._candidate(proposal)
        if candidate.seeds:
            self._open.add(candidate.number)
            self._enqueue(candidate, candidate.seeds[:1])

    def _enqueue(self, candidate: Candidate, seeds: Sequence[int]) -> None:
        beside = self.beside
        self._queue += [make_job(self.method, TRIAL, candidate, seed, beside) for seed in seeds]

    def _candidate(self, proposal: Proposal) -> Candidate:
        self._proposals.append(proposal)
        values = {**self.inherited, **proposal.point}
        candidate = Candidate(proposal.number + self.first, values, self._trial_seeds)
        self.candidates[candidate.number] = candidate
        return candidate

    def _confirmations(self) -> list[Job]:
        missing = self.confirmation.missing(self.winners)
        return [make_job(self.method, CONFIRMATION, *which) for which in missing]

    def ended(self, run: TrialRecord) -> None:
        """Learn how a run ended."""
        self._out.discard((run.number, run.seed))
        if run.kind == CONFIRMATION:
            self.confirmation.runs.append(run)
            return
        candidate = self.candidates[run.number]
        candidate.runs.append(run)
        self._replay([candidate])
        if run.number not in self._open:  # another seed has decided already
            return
        if self._over(candidate):
            self._close(candidate)
        elif len(candidate.runs) == 1:
            self._enqueue(candidate, candidate.missing)

    def _over(self, candidate: Candidate) -> bool:
        """Whether a config is not to be run again.

        One bad seed spares it the others; but in a deterministic search it would depend on the
        workers which of these had begun.
        """
        if self.search.deterministic and len(candidate.runs) > 1:
            return not candidate.missing
        return candidate.status != "running"

    def _rejects(self, candidate: Candidate) -> bool:
        """Decide, before a config is run on more than its first seed, whether it is hopeless."""
        if len(candidate.runs) != 1 or candidate.number in self._raced:
            return False
        self._raced.add(candidate.number)
        best = winners(self._read, self.judge.directions)
        if not best or len(self.judge.directions) > 1:
            return False
        reason = why_hopeless(candidate, best[0], self.search.maximize)
        if reason:
            decided = {"method": self.method.name, "number": candidate.number, "reason": reason}
            self.journal({"event": "rejected", **decided})
            candidate.rejected = reason
            self._close(candidate)
        return bool(reason)

    def _close(self, candidate: Candidate) -> None:
        self._open.discard(candidate.number)
        self._queue = [job for job in self._queue if job["number"] != candidate.number]
        if self.search.deterministic:
            self._unread.append(candidate)
        else:
            self._learn(candidate)

    def _read_batch(self) -> None:
        """Learn from the batch that has ended, in the order of its proposals."""
        if self.search.deterministic and self._unread:
            numbers = sorted(candidate.number for candidate in self._unread)
            self.journal({"event": "batch", "method": self.method.name, "numbers": numbers})
            for number in numbers:
                self._learn(self.candidates[number])
            self._unread = []
            if self.rungs is not None:
                self.rungs.commit()
        self._asked = 0

    def _learn(self, candidate: Candidate) -> None:
        self.proposer.tell(candidate.number - self.first, self._outcome(candidate))
        self._read.append(candidate)

    def _outcome(self, candidate: Candidate) -> Outcome:
        return Outcome(
            state=candidate.status,
            scores=candidate.scores,
            round=candidate.rounds,
            violations=candidate.violations,
            intermediate=self.scores_by_round(candidate.runs[0]),
        )

    def restore(self, journal: Sequence[Mapping[str, Any]], runs: Sequence[TrialRecord]) -> None:
        """Take up the work where the logs of an earlier process end.

        What had been proposed and not ended is handed out again, under its own number.

        Args:
            journal: this method's decisions, in order.
            runs: its ended runs.
        """
        read: set[int] = set()
        for entry in journal:
            if entry["event"] == "proposed":
                number = entry["number"] - self.first
                self._candidate(Proposal(number, entry["values"], entry["attrs"]))
            elif entry["event"] == "widened":
                self._wider(entry["entries"], entry["before"])
            elif entry["event"] == "rejected":
                self.candidates[entry["number"]].rejected = entry["reason"]
            elif entry["event"] == "batch":
                read.update(entry["numbers"])
        for run in runs:
            if run.number not in self.candidates:  # its proposal was lost: it says what it was
                own = {k: v for k, v in run.values.items() if k not in self.inherited}
                self._candidate(Proposal(run.number - self.first, own))
            kept = self.confirmation if run.kind == CONFIRMATION else self.candidates[run.number]
            kept.runs.append(run)
        self._reopen(read)

    def _reopen(self, read: Set[int]) -> None:
        """Sort the candidates of an earlier process into learned from, unread and open."""
        found = [self.candidates[number] for number in sorted(self.candidates)]
        for candidate in found:
            if not self._over(candidate):
                self._open.add(candidate.number)
            elif not candidate.runs:  # nothing is to be learned of it
                continue
            elif self.search.deterministic and candidate.number not in read:
                self._unread.append(candidate)
            else:
                self._read.append(candidate)
        opened = [candidate for candidate in found if candidate.number in self._open]
        for candidate in by_promise(opened, self.search.maximize):
            self._enqueue(candidate, candidate.missing if candidate.runs else self.seeds[:1])
        self._asked = len(self._open) + len(self._unread)
        self._replay(self._read)
        if self.rungs is not None:
            self.rungs.commit()
        known = {candidate.number for candidate in self._read}
        self._replay([c for c in found if c.number not in known])

    def _replay(self, candidates: Sequence[Candidate]) -> None:
        """Let the rungs know all scores that candidates had on their first seed."""
        for run in (run for c in candidates for run in c.runs):
            if self.rungs is not None:
                if run.seed == self.seeds[0]:
                    self.rungs.replay(run.number, self.scores_by_round(run))
                if run.status == "diverged":
                    self.rungs.diverged(run.number)
