"""Times configs side by side: in as many processes as a search has workers, all of them busy.

Trials share caches and memory bandwidth with those beside them, so a round that is timed alone
would be too quick. And what such a process needs is what a worker of the search will need.

The processes are children (:mod:`fltune.federation.child`) that run
:mod:`fltune.search.timing_worker`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from fltune.errors import RunFailedError
from fltune.experiment import Experiment
from fltune.federation.child import Child, ChildLostError, end
from fltune.search.probe import LONG, Probe, probe, probe_pack

MOST = 8
"""Processes at once, at most: more do not tell more, and each takes seconds to start."""
SECONDS = 60.0
"""What all questions together may take, about: of many, each is answered by fewer rounds."""


@dataclass(frozen=True)
class Question:
    """What one run of a config takes; of one by itself, or of so many that go together."""

    experiment: Experiment
    pack: int = 1

    def answer(self, long: float = LONG) -> Probe:
        """Time it, in this process.

        Args:
            long: seconds after which it is enough.

        Raises:
            ConfigError, DataError: as the run itself would.
        """
        if self.pack == 1:
            return probe(self.experiment, long)
        return probe_pack(self.experiment, self.pack, long)


@dataclass(frozen=True)
class Memory:
    """What a process has needed at most.

    Attributes:
        own: bytes that are there once for each process.
        shared: bytes that all processes on a machine share, such as the code of libraries; 0 where
            that cannot be told.
    """

    own: int
    shared: int

    def or_more(self, other: Memory) -> Memory:
        """Return the larger of both numbers each."""
        return Memory(max(self.own, other.own), max(self.shared, other.shared))


@dataclass(frozen=True)
class Answer:
    """Message from a process.

    Attributes:
        found: what it timed, or what it raised.
        memory: that it has needed so far.
        imports: seconds of the processor until it was ready for its first question.
    """

    found: Probe | Exception
    memory: Memory
    imports: float


@dataclass(frozen=True)
class Timings:
    """The answers to some questions, in their order, and what a process needed for them.

    Attributes:
        probes: the answers.
        memory: of a process.
        imports: seconds until a process was ready.
    """

    probes: list[Probe]
    memory: Memory
    imports: float


def time_side_by_side(questions: Sequence[Question], processes: int, cpus: float) -> Timings:
    """Answer questions in several processes.

    While the last questions are at work, processes that are free do some again, so that all are
    always busy.

    Args:
        questions: at least one.
        processes: as many as there are trials at once.
        cpus: cores of each.

    Raises:
        ConfigError, DataError: as the runs themselves would.
        RunFailedError: a process cannot be started, was lost, or raised anything else.
    """
    team: list[Child] = []
    try:
        while len(team) < min(processes, MOST):
            team.append(_start(cpus))
        long = min(LONG, SECONDS * len(team) / len(questions))
        return _Round(questions, long).run(team)
    except ChildLostError as how:
        raise RunFailedError(
            f"a process that timed some rounds was ended {how}; if it was short of memory, plan "
            "again with --set search.concurrent=1"
        ) from None
    finally:
        end(team)


class _Round:
    """Which questions are asked, and what has been answered.

    Args:
        questions: at least one.
        long: seconds after which an answer is good enough.
    """

    def __init__(self, questions: Sequence[Question], long: float) -> None:
        self.questions, self.long = questions, long
        self.answers: dict[int, Probe] = {}
        self.memory, self.imports = Memory(0, 0), 0.0
        self._asked: Counter[int] = Counter(dict.fromkeys(range(len(questions)), 0))
        self._out: dict[Child, int] = {}

    def run(self, team: Sequence[Child]) -> Timings:
        for child in team:
            self._ask(child)
        while len(self.answers) < len(self.questions):
            ready = wait([child.connection for child in self._out])
            for child in [one for one in self._out if one.connection in ready]:
                self._take(child)
                self._ask(child)
        probes = [self.answers[place] for place in range(len(self.questions))]
        return Timings(probes, self.memory, self.imports)

    def _ask(self, child: Child) -> None:
        """Ask for what was asked for least often."""
        place = min(self._asked, key=self._asked.__getitem__)
        self._asked[place] += 1
        self._out[child] = place
        question = self.questions[place]
        child.send((question.experiment.as_dict(), question.pack, self.long))

    def _take(self, child: Child) -> None:
        answer: Answer = child.receive()
        if isinstance(answer.found, Exception):
            raise answer.found
        self.answers.setdefault(self._out.pop(child), answer.found)
        self.memory = self.memory.or_more(answer.memory)
        self.imports = max(self.imports, answer.imports)


def _start(cpus: float) -> Child:
    threads = {"OMP_NUM_THREADS": str(max(1, int(cpus)))}
    try:
        return Child("fltune.search.timing_worker", cpus, variables=threads, silent=True)
    except OSError as error:
        raise RunFailedError(
            f"a process that times rounds cannot be started ({error.strerror}); plan again with "
            "--set search.concurrent=1"
        ) from error
