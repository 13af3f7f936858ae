"""The contract of a participation pattern.

A pattern is a torch Sampler that yields one cohort per epoch, because an epoch is a round. It draws
from a stream of its own, (seed, "participation", t), so that every method of a comparison sees the
same cohorts, and it can say how long clients were away and how evenly they had their turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import Sampler

from fltune.errors import RunFailedError
from fltune.parameters import Checked
from fltune.participation.turns import Turns
from fltune.randomness import generator


@dataclass(frozen=True)
class Arrivals:
    """What a pattern with a time of its own says of the cohort just drawn.

    Attributes:
        delays: int64 [C], age in rounds of the model that each update started from, in the order
            of the cohort.
        discarded: updates that arrived for this round but were too old.
        seconds: simulated time of the round, from the start of the run.
    """

    delays: Tensor
    discarded: int
    seconds: float


def one_each(each: list[float] | None, otherwise: float, num_clients: int) -> Tensor:
    """Return a number for each client, float64 [N]; the same for all where none are listed."""
    if each is not None:
        return torch.tensor(each, dtype=torch.float64)
    return torch.full((num_clients,), otherwise, dtype=torch.float64)


@dataclass(eq=False)
class Participation(Checked, Sampler[list[int]], ABC):
    """Base of all patterns: a sampler of cohorts, resumable, with its delays and counts.

    Subclasses are dataclasses of hyperparameters and implement :meth:`draw`. One that keeps
    anything from a draw to the next extends :meth:`state_dict`; the cohorts of the others may be
    drawn before their turn. Empty cohorts are legal. Bind it to a population before use.

    Attributes:
        num_clients: N.
        seed: the run's seed.
        round: the next 0-based round t.
        turns: who had a turn so far, how evenly, and how long others waited for theirs.
        asynchronous: whether the pattern says itself how old updates are and what the time is, see
            :attr:`arrivals`; the sections ``delays`` and ``clock`` have no say then.
        of_a_run: attributes that :meth:`bind` sets, so that no hyperparameter can have their names.
    """

    asynchronous: ClassVar[bool] = False
    of_a_run: ClassVar[tuple[str, ...]] = ("num_clients", "seed", "round", "turns")

    def bind(self, num_clients: int, seed: int, histograms: Tensor | None = None) -> Participation:
        """Set the population; start at round 0. Returns self.

        Args:
            num_clients: N.
            seed: the run's seed.
            histograms: int64 [N, classes], samples of each class that each client holds, for
                patterns that depend on it; None for a regression.

        Raises:
            ValueError: the pattern cannot be drawn from so many clients, or not without classes.
        """
        self.check(num_clients)
        self.num_clients = num_clients
        self.seed = seed
        self.round = 0
        self._ahead: deque[Tensor] = deque()
        self.turns = Turns(num_clients)
        return self

    def check(self, num_clients: int) -> None:
        """Raise ValueError if this pattern does not fit so many clients."""

    @property
    def merges_repeats(self) -> bool:
        """What an id that stands twice in a cohort means.

        True: one piece of work with twice the aggregation weight. False, the default: two pieces.
        """
        return False

    def admit(self, oldest: int) -> None:
        """Raise ValueError if this does not go with a method that keeps models so many rounds."""

    def warnings(self, oldest: int) -> list[str]:
        """Return what a user should know before running this pattern so, a sentence each.

        Args:
            oldest: the age in rounds of the oldest model that the method keeps.
        """
        return []

    @property
    def arrivals(self) -> Arrivals | None:
        """Delays and time of the cohort just drawn; None unless ``asynchronous``."""
        return None

    @abstractmethod
    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the ids of the clients active in round t, int64 [C], in any order.

        A list, an array and whole numbers of another width do as well. An id that stands twice
        counts twice, see :attr:`merges_repeats`.
        """

    @property
    def foreseeable(self) -> bool:
        """Whether cohorts may be drawn before their turn.

        Not those of a pattern with a state of its own: a checkpoint would find it ahead of time.
        """
        return type(self).state_dict is Participation.state_dict

    def upcoming(self, count: int) -> list[list[int]]:
        """Return the cohorts of the next rounds without moving on; each is drawn once.

        Raises:
            RunFailedError: the pattern returned no ids, or some of no client.
        """
        while len(self._ahead) < count:
            self._ahead.append(self._drawn(self.round + len(self._ahead)))
        following = enumerate(islice(self._ahead, count), start=self.round)
        return [self._listed(round, cohort) for round, cohort in following]

    def _drawn(self, round: int) -> Tensor:
        """Return the cohort of a round, ascending."""
        drawn = self.draw(round, generator(self.seed, "participation", round))
        if not (isinstance(drawn, Tensor) and drawn.dtype == torch.int64 and drawn.ndim == 1):
            drawn = self._as_ids(round, drawn)
        return drawn.sort().values

    def _listed(self, round: int, cohort: Tensor) -> list[int]:
        """Return the ids of a cohort; the ends of what is sorted tell whether all are clients."""
        ids: list[int] = cohort.tolist()
        if ids and not 0 <= ids[0] <= ids[-1] < self.num_clients:
            wrong = ids[0] if ids[0] < 0 else ids[-1]
            raise self._refused(round, f"names client {wrong}")
        return ids

    def _as_ids(self, round: int, drawn: Any) -> Tensor:
        """Return whole numbers that came in another form, int64 [C].

        Raises:
            RunFailedError: they are no ids.
        """
        numbers = drawn
        if not isinstance(drawn, Tensor):
            try:
                numbers = torch.as_tensor(drawn.tolist() if hasattr(drawn, "tolist") else drawn)
            except (TypeError, ValueError, RuntimeError):
                raise self._refused(round, f"is a {type(drawn).__name__}") from None
        if numbers.shape == (0,) and not isinstance(drawn, Tensor):  # torch calls [] floating
            return numbers.long()
        if numbers.dtype == torch.bool:
            raise self._refused(round, "is a mask; take mask.nonzero().flatten()")
        if numbers.is_floating_point() or numbers.is_complex() or numbers.ndim != 1:
            found = f"has shape {tuple(numbers.shape)} and type {numbers.dtype}"
            raise self._refused(round, found)
        return numbers.long()

    def _refused(self, round: int, found: str) -> RunFailedError:
        return RunFailedError(
            f"participation: what {type(self).__name__} drew in round {round} {found}; must be "
            f"ids of clients, whole numbers in 0..{self.num_clients - 1}"
        )

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the cohort of the next round, ascending ids, and move on by one round.

        Raises:
            RunFailedError: the pattern returned no ids, or some of no client.
        """
        cohort = self._ahead.popleft() if self._ahead else self._drawn(self.round)
        ids = self._listed(self.round, cohort)
        self.turns.add(cohort)
        self.round += 1
        yield ids

    def __len__(self) -> int:
        """One cohort per epoch."""
        return 1

    def report(self) -> dict[str, float]:
        """Return the delays and counts of the rounds drawn so far, by name."""
        return self.turns.report()

    def state_dict(self) -> dict[str, Any]:
        """Return what resuming needs: plain numbers and tensors."""
        return {"round": self.round, **self.turns.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where :meth:`state_dict` was taken."""
        self.round = state["round"]
        self._ahead.clear()
        self.turns.load_state_dict(state, self.round)
