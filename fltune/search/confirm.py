"""On which fresh seeds winners are run again.

Confirmation runs are the only ones that touch test data, and no test score is selected by.
"""

from __future__ import annotations

from collections.abc import Sequence


def fresh_seeds(used: Sequence[int], count: int) -> list[int]:
    """Return the seeds of the confirmation runs: those after the ones that the search used."""
    return [max(used) + i for i in range(1, count + 1)]
