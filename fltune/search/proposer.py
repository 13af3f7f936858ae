"""Who proposes the next trial, and what becomes of it in an Optuna study.

A proposer's whole state is its history: what it proposed and how that ended. A proposal is a
function of (seed, number, history), so a proposer that is rebuilt from the records of a killed
search proposes exactly what the killed one would have. Nothing is pickled: a
:class:`Proposal` is plain values, and what a sampler must remember is among them.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from fltune.randomness import derive_seed
from fltune.search.samplers import GRID, RANDOM, SINGLE, make_sampler
from fltune.search.study import Outcome, PastTrial, StudyMaker, quiet, remembered, suggest

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

    from fltune.search.method import Method
    from fltune.search.settings import SearchSettings

Point = dict[str, Any]
"""A natural value per active parameter, by dotted name."""

REASKS = 30
"""Times a sampler is asked anew for a point that was not proposed before; then chance is."""


@dataclass(frozen=True)
class Proposal:
    """What one trial is to try.

    Attributes:
        number: position among the method's trials.
        point: the values.
        attrs: what the sampler must remember of it; JSON.
    """

    number: int
    point: Point
    attrs: dict[str, Any] = field(default_factory=dict)


class SearchSpace(Protocol):
    """What a proposer must know of a space."""

    @property
    def cells(self) -> int | None:
        """The number of points; None if they cannot be counted."""

    def grid(self) -> Iterator[Point]:
        """Yield every point once."""

    def propose(self, draw: Callable[[str, BaseDistribution], Any]) -> Point:
        """Return a point; ``draw`` is called for each active parameter."""

    def encode(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return what Optuna stores of a point; ValueError if it lies outside."""

    def distributions(self, point: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """Return what the active parameters of a point are drawn from."""


class WarmPoint(Protocol):
    """A point to start from, and its score where that is known."""

    @property
    def point(self) -> Point:
        """The values."""

    @property
    def score(self) -> float | None:
        """What they are known to score."""


def content_key(point: Mapping[str, Any]) -> str:
    """Return what two equal points have in common: 1 and 1.0 are one value, true is another."""
    return json.dumps(_canonical(dict(point)), sort_keys=True)


def _canonical(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_canonical(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _canonical(v) for k, v in value.items()}
    return value


class Proposer(ABC):
    """Proposes points, none of them twice, and keeps what became of them."""

    def __init__(self) -> None:
        self._history: dict[int, tuple[Proposal, Outcome | None]] = {}
        self._seen: set[str] = set()
        self._last = -1

    @property
    def asked(self) -> int:
        """The number of proposals so far, those of earlier sessions included."""
        return len(self._history)

    def propose(self) -> Proposal | None:
        """Return the next proposal; None if the budget is spent or nothing new is left."""
        proposal = self._next(self._last + 1)
        if proposal is not None:
            self._remember(proposal, None)
        return proposal

    def tell(self, number: int, outcome: Outcome) -> None:
        """Learn how a trial ended, in any order; what is told again changes nothing.

        Raises:
            ValueError: no trial of that number was proposed.
        """
        if number not in self._history:
            raise ValueError(f"trial {number} was never proposed; there are {self.asked}")
        proposal, known = self._history[number]
        if known is None:
            self._history[number] = (proposal, outcome)

    def restore(self, history: Sequence[tuple[Proposal, Outcome | None]]) -> None:
        """Take the proposals of an earlier session; None is the outcome of one still running.

        What lies outside the present space counts as asked, but teaches nothing.
        """
        for proposal, outcome in sorted(history, key=lambda entry: entry[0].number):
            self._remember(proposal, outcome)

    def _remember(self, proposal: Proposal, outcome: Outcome | None) -> None:
        self._history[proposal.number] = (proposal, outcome)
        self._last = max(self._last, proposal.number)
        self._seen.add(content_key(proposal.point))

    @abstractmethod
    def _next(self, number: int) -> Proposal | None:
        """Return a proposal of that number."""


class ListProposer(Proposer):
    """Proposes given points in order, each once: the cells of an exact grid.

    Points are known by content: after :meth:`restore` only those run that are not in the history,
    so a wider grid costs its new cells.

    Args:
        points: in the order in which they are to run.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        super().__init__()
        self._left = iter(points)  # each is looked at once: what has been seen stays so

    def _next(self, number: int) -> Proposal | None:
        point = next((p for p in self._left if content_key(p) not in self._seen), None)
        return None if point is None else Proposal(number, dict(point))


class OptunaProposer(Proposer):
    """Proposes by one of Optuna's samplers.

    The study is made anew from the history for each proposal (see :class:`StudyMaker`), and the
    sampler with it, seeded by (seed, number). Optuna's QMC, GP, CMA-ES and NSGA-II know the
    parameters that every trial has; a conditional one is drawn at random, and CMA-ES, which knows
    numbers only, draws a choice so too.

    Args:
        space: what is searched.
        sampler: short name (see :mod:`fltune.search.samplers`).
        sampler_options: arguments of Optuna's sampler.
        budget: proposals in all.
        seed: seed of the proposals.
        directions: ``maximize`` or ``minimize``, per objective.
        worst: the finite scores of a trial that diverged.
        constraints: whether trials come with violations. TPE, GP and NSGA-II use them.
        points: warm points: without a score they are proposed first; with one they are known from
            the start, are never run, and do not count.

    Raises:
        ValueError: a sampler that draws nothing, or is not for so many objectives; a warm point
            outside the space, or with a score that is not one finite number.
    """

    def __init__(
        self,
        space: SearchSpace,
        sampler: str,
        sampler_options: Mapping[str, Any],
        budget: int,
        seed: int,
        directions: Sequence[str],
        worst: Sequence[float],
        constraints: bool = False,
        points: Sequence[WarmPoint] = (),
    ) -> None:
        super().__init__()
        if sampler == GRID:
            raise ValueError("a grid is not drawn; propose its cells by a ListProposer")
        if sampler in SINGLE and len(directions) > 1:
            raise ValueError(f"{sampler} knows one objective; there are {len(directions)}")
        self.space = space
        self.sampler = sampler
        self.options = dict(sampler_options)
        self.budget = budget
        self.seed = seed
        self._maker = StudyMaker(directions, worst, constraints)
        self._objectives = len(directions)
        self._inside: dict[int, PastTrial] = {}
        self._noted: dict[str, Any] = {}
        self._cells: set[str] = set()
        self._first: list[Point] = []
        self._known: list[PastTrial] = []
        for warm in points:
            self._start_from(warm)

    def _start_from(self, warm: WarmPoint) -> None:
        params, distributions = self._drawn(warm.point)
        if warm.score is None:
            self._first.append(dict(warm.point))
            return
        if self._objectives > 1 or not math.isfinite(warm.score):
            raise ValueError(
                f"points: found score {warm.score!r} with {self._objectives} objectives; a score "
                f"is one finite number, of a single objective; else leave it out"
            )
        outcome = Outcome("complete", [warm.score])
        number = -1 - len(self._known)
        self._known.append(PastTrial(number, params, distributions, {}, outcome))
        self._seen.add(content_key(warm.point))
        self._cells.add(content_key(warm.point))

    def _drawn(self, point: Point) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        return self.space.encode(point), self.space.distributions(point)

    def study(self) -> Study:
        """Return the history inside the space as an Optuna study, for its plots and analyses."""
        with quiet():
            return self._maker.make(self._past())[0]

    def _past(self) -> list[PastTrial]:
        return [*self._known, *(self._inside[n] for n in sorted(self._inside))]

    def tell(self, number: int, outcome: Outcome) -> None:
        """Learn how a trial ended; see :meth:`Proposer.tell`."""
        super().tell(number, outcome)
        if number in self._inside:
            known = self._history[number][1]
            self._inside[number] = replace(self._inside[number], outcome=known)

    def _remember(self, proposal: Proposal, outcome: Outcome | None) -> None:
        super()._remember(proposal, outcome)
        self._noted.update(proposal.attrs.get("study", {}))  # the latest word on each key
        try:
            params, distributions = self._drawn(proposal.point)
        except ValueError:
            return  # of an earlier space
        attrs = proposal.attrs.get("trial", {})
        self._inside[proposal.number] = PastTrial(
            proposal.number, params, distributions, attrs, outcome
        )
        self._cells.add(content_key(proposal.point))

    def _next(self, number: int) -> Proposal | None:
        if self.asked >= self.budget:
            return None
        for point in self._first:
            if content_key(point) not in self._seen:
                return Proposal(number, point)
        cells = self.space.cells
        if cells is not None and len(self._cells) >= cells:
            return None
        with quiet():
            return self._draw(number) or self._left_over(number)

    def _draw(self, number: int) -> Proposal | None:
        """Ask the sampler, then chance, until a point is new."""
        from optuna.trial import TrialState

        past = [] if self.sampler == RANDOM else self._past()
        attrs = dict(self._noted)
        study, storage = self._maker.make(past, attrs, self.sampler)
        constant = derive_seed(self.seed, "sequence") % 2**32
        for attempt in range(2 * REASKS):
            seed = derive_seed(self.seed, "proposal", number, attempt) % 2**32
            name, options = (self.sampler, self.options) if attempt < REASKS else (RANDOM, {})
            study.sampler = make_sampler(name, options, self.budget, seed, constant)
            trial = study.ask()
            point = self.space.propose(partial(suggest, trial))
            if content_key(point) not in self._seen:
                return Proposal(number, point, remembered(study, storage, trial, past, attrs))
            study.tell(trial, state=TrialState.FAIL)
        return None

    def _left_over(self, number: int) -> Proposal | None:
        """Return the first cell of a finite space that chance has missed."""
        if self.space.cells is None:
            return None
        left = (point for point in self.space.grid() if content_key(point) not in self._seen)
        point = next(left, None)
        return None if point is None else Proposal(number, point)


def make_proposer(
    method: Method,
    search: SearchSettings,
    budget: int,
    directions: Sequence[str],
    worst: Sequence[float],
) -> Proposer:
    """Return what proposes the values of a method's configs, ``budget`` of them."""
    if method.exact(search):
        return ListProposer(method.space.grid())
    return OptunaProposer(
        method.space,
        search.sampler,
        search.sampler_options,
        budget,
        seed=derive_seed(search.seed, method.name) % 2**32,
        directions=directions,
        worst=worst,
        constraints=bool(search.constraints),
        points=method.space.points,
    )
