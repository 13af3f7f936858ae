"""The winners' runs on fresh seeds, and which of several winners is the best on them.

These runs are the only ones that touch test data, and no test score is selected by.
"""

from __future__ import annotations

from collections.abc import Sequence

from fltune.search.candidate import Candidate
from fltune.search.record import TrialRecord


class Confirmation:
    """The runs of a method's winners on fresh seeds.

    Args:
        used: the seeds of the search.
        count: fresh seeds; they are those after the ones that the search used.

    Attributes:
        seeds: the fresh ones.
        runs: all that ended. Some may be of an earlier winner, or of a seed that is searched on by
            now: an extension keeps them, and they do not count.
    """

    def __init__(self, used: Sequence[int], count: int) -> None:
        self.seeds = [max(used) + i for i in range(1, count + 1)]
        self.runs: list[TrialRecord] = []

    def of(self, candidate: Candidate) -> list[TrialRecord]:
        """Return a candidate's runs, by seed."""
        own = [r for r in self.runs if r.number == candidate.number and r.seed in self.seeds]
        return sorted(own, key=lambda run: run.seed)

    def missing(self, winners: Sequence[Candidate]) -> list[tuple[Candidate, int]]:
        """Return what is still to be run, and on which seed."""
        done = {(run.number, run.seed) for run in self.runs}
        return [(c, seed) for c in winners for seed in self.seeds if (c.number, seed) not in done]

    def best(self, winners: Sequence[Candidate], worst: float, maximize: bool) -> Candidate | None:
        """Return the winner with the best mean score; the first one before any was run.

        Args:
            winners: best first.
            worst: what counts where a run has no score.
            maximize: whether a larger score is better.
        """

        def mean(candidate: Candidate) -> float:
            counted = [worst if run.score is None else run.score for run in self.of(candidate)]
            mean = sum(counted) / len(counted) if counted else worst
            return mean if maximize else -mean

        return max(winners, key=mean) if winners else None
