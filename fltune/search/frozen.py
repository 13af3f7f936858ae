"""A past trial as Optuna keeps it, shared by all studies that are made of one history."""

from __future__ import annotations

import copy
from typing import Any

from optuna.trial import FrozenTrial, create_trial


class SharedTrial(FrozenTrial):
    """A trial that has ended, or counts as running, and that nobody changes.

    A storage takes a deep copy of each trial that is added to it. Of this one it gets another shell
    around the same values: with thousands of trials the copies would take longer than the sampler.
    """

    @classmethod
    def make(cls, **what: Any) -> SharedTrial:
        """Return a trial; the arguments, and what is refused, are ``optuna.create_trial``'s."""
        shared = cls.__new__(cls)
        shared.__dict__.update(vars(create_trial(**what)))
        return shared

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedTrial:
        return copy.copy(self)
