"""A method that takes values over from another one's winner (:mod:`fltune.search.scenarios`).

It waits until that winner is known, searches what is left of its own space, and starts anew if a
later extension of the search finds another winner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from fltune.search.bequest import bequest, heir_of_first
from fltune.search.jobs import DONE, Job, Journal
from fltune.search.lane import Lane
from fltune.search.method import Method
from fltune.search.record import TrialRecord
from fltune.search.settings import SearchSettings


class HeirLane(Lane):
    """A lane whose method inherits values.

    Args:
        method: what is tuned; says from whom and what it inherits.
        search: budget, and how the winner is chosen.
        journal: where decisions go first.
        source: the lane of the method that it inherits from.
    """

    def __init__(
        self, method: Method, search: SearchSettings, journal: Journal, source: Lane
    ) -> None:
        assert method.inherit is not None
        self.source = source
        self.whole = method
        self._begun = False
        super().__init__(method, search, journal)

    def next(self) -> Job | str | None:
        """Return the next job; None while the source's winner is not known."""
        if not self.source.settled or self._undecided:
            return None
        values = self._bequest()
        if values is None:  # the source has no winner: there is nothing to compare
            return DONE
        if not self._begun or values != self.inherited:
            self.journal({"event": "inherited", "method": self.method.name, "values": values})
            self._inherit(values, self.first + len(self.candidates))
        return super().next()

    @property
    def planned(self) -> int:
        """Configs that it will try; what it takes over is not searched, whatever it will be."""
        return super().planned if self._begun else self._planned_at_first

    @cached_property
    def _planned_at_first(self) -> int:
        return heir_of_first(self.whole, self.source.method).trials(self.search)

    @property
    def _undecided(self) -> bool:
        """Whether several winners of the source are confirmed, and it is open which is reported."""
        source = self.source
        return len(source.winners) > 1 and source.done_confirmations < source.planned_confirmations

    def _bequest(self) -> dict[str, Any] | None:
        best = self.source.chosen
        return None if best is None else bequest(self.whole, self.source.method, best.values)

    def _inherit(self, values: Mapping[str, Any], first: int) -> None:
        """Begin the search of what is not inherited; numbers go on where an earlier one ended."""
        closed = self.closed
        super().__init__(self.whole.fixing(values), self.search, self.journal, values, first)
        self._begun, self.closed = True, closed

    def restore(self, journal: Sequence[Mapping[str, Any]], runs: Sequence[TrialRecord]) -> None:
        """Take up the work after the last inheritance; what was before it counts no more."""
        begun = [i for i, entry in enumerate(journal) if entry["event"] == "inherited"]
        if not begun:
            return
        numbers = [e["number"] for e in journal[: begun[-1]] if e["event"] == "proposed"]
        self._inherit(journal[begun[-1]]["values"], max(numbers, default=-1) + 1)
        own = [run for run in runs if run.number >= self.first]
        super().restore(journal[begun[-1] + 1 :], own)
