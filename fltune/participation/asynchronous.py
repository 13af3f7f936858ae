"""Asynchronous arrivals: clients work at their own pace, the server steps when a buffer is full.

FedBuff's setting (Nguyen et al. 2022, Algorithm 1), as events in simulated time:

    M clients are at work at any time
    a job lasts  seconds * exp(speed_sigma z_i) * exp(jitter_sigma z_job)
    an update arrives; when Z are in, the server makes a round: its version v goes up by one
    the slot is given at once to an idle client, drawn uniformly, who fetches the newest model

An update carries its delay, the version that it meets minus the version that it was fetched from;
without discarded updates the mean over a long run is (M - 1) / Z. A client may stand twice in a
buffer. Who works when does not depend on the method: only what is discarded does.

FedBuff itself discards nothing; a simulation keeps a limited number of past models. Discarded are
the updates of slow clients first, so that many of them bias the model towards fast clients. Their
number is in ``participation/discarded``, and :meth:`Asynchronous.warnings` foresees it.
"""

from __future__ import annotations

import bisect
import heapq
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fltune.parameters import check_at_most, parameter
from fltune.participation.base import Arrivals, Participation
from fltune.randomness import client_normals, generator

Job = tuple[float, int, int, int]
"""When it ends, its number, the client, the version that it was fetched from."""


@dataclass(eq=False)
class Asynchronous(Participation):
    """Cohorts are the Z updates that fill a buffer, with their delays and the time.

    An update from a model older than ``max_delay``, or than the method keeps, is discarded when it
    arrives: its traffic counts, its local work is not simulated.

    A job's time does not depend on local work or model size. The clients' speeds are those of
    ``clock: lognormal`` under the same seed and sigma: with ``seconds`` = K ``seconds_per_step``
    and no transfer times there, synchronous rounds of K steps compare by ``clock/seconds``.

    Raises:
        ValueError: more clients at work than there are.
    """

    concurrency: int = parameter(10, "clients at work at any time", symbol="M", ge=1)
    buffer: int = parameter(10, "updates that make a round", symbol="Z", ge=1)
    seconds: float = parameter(1.0, "median time from a client's fetch to its arrival", gt=0)
    speed_sigma: float = parameter(0.5, "spread of clients' speeds; 0: all alike", ge=0)
    jitter_sigma: float = parameter(0.25, "spread of a client's jobs; 0: all alike", ge=0)
    max_delay: int | None = parameter(
        None, "rounds; older updates are discarded; null: as many as the method keeps models", ge=0
    )

    asynchronous: ClassVar[bool] = True

    def check(self, num_clients: int) -> None:
        """Refuse more clients at work than there are."""
        check_at_most("concurrency", self.concurrency, num_clients)

    def bind(self, num_clients: int, seed: int, histograms: Tensor | None = None) -> Participation:
        """Draw the clients' speeds; nobody is at work yet."""
        super().bind(num_clients, seed, histograms)
        z = client_normals(seed, "speed", 0, torch.arange(num_clients))
        self._slow = (self.speed_sigma * z).exp().tolist()
        self._jobs: list[Job] = []
        self._started = 0
        self._now = 0.0
        self._longest = self.max_delay
        self._discarded = 0
        self._arrivals: Arrivals | None = None
        return self

    def admit(self, oldest: int) -> None:
        """Discard what is older than the method keeps; refuse one that keeps nothing.

        Raises:
            ValueError: the method ignores delays, or keeps fewer models than ``max_delay`` says.
        """
        if not oldest:
            raise ValueError(
                "updates start from models of past rounds, and the method keeps none; take one "
                "that does, such as fedbuff with window > 1"
            )
        if self.max_delay is not None and self.max_delay > oldest:
            raise ValueError(
                f"max_delay = {self.max_delay} is more than {oldest}, the age of the oldest model "
                "that the method keeps"
            )
        self._longest = oldest if self.max_delay is None else self.max_delay

    def warnings(self, oldest: int) -> list[str]:
        """Say so where many updates, more than some 6 to 9%, would be discarded.

        A job meets (M - 1) / Z new versions on average; one that is a standard deviation slower
        than the median, more by that factor. The warning is that the latter would be too old.
        """
        longest = oldest if self.max_delay is None else self.max_delay
        mean = (self.concurrency - 1) / self.buffer
        slow = mean * math.exp(math.hypot(self.speed_sigma, self.jitter_sigma))
        if slow <= longest:
            return []
        return [
            f"participation: updates are about {mean:.3g} rounds old on average, and those of slow "
            f"clients {slow:.3g}; all that are older than {longest} are discarded, which biases "
            "the model towards fast clients: keep more models (algorithm.window), or take a "
            "larger buffer or fewer clients at work"
        ]

    def _start(self, version: int, busy: list[int]) -> None:
        """Give a slot to an idle client; ``busy`` are the ids at work, ascending, updated here."""
        random = generator(self.seed, "asynchronous job", self._started)
        rank = int(torch.randint(self.num_clients - len(busy), (), generator=random))
        # busy[i] - i clients before busy[i] are idle: the search finds who is busy before the one
        # of this rank, however many clients there are
        before = bisect.bisect_right(range(len(busy)), rank, key=lambda i: busy[i] - i)
        client = rank + before
        jitter = self.jitter_sigma * torch.randn((), generator=random, dtype=torch.float64)
        ends = self._now + self.seconds * self._slow[client] * float(jitter.exp())
        heapq.heappush(self._jobs, (ends, self._started, client, version))
        self._started += 1
        busy.insert(before, client)

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Let time pass until Z updates are in; return their clients, ascending."""
        busy = sorted(client for _, _, client, _ in self._jobs)
        while len(self._jobs) < self.concurrency:  # at the very start
            self._start(round, busy)
        taken: list[tuple[int, int]] = []
        discarded = 0
        while len(taken) < self.buffer:
            self._now, _, client, version = heapq.heappop(self._jobs)
            busy.remove(client)
            if self._longest is None or round - version <= self._longest:
                taken.append((client, round - version))
            else:
                discarded += 1
            stepped = len(taken) == self.buffer  # the server steps before the slot is given away
            self._start(round + stepped, busy)
        taken.sort(key=lambda update: update[0])
        clients, delays = torch.tensor(taken).T
        self._discarded += discarded
        self._arrivals = Arrivals(delays, discarded, self._now)
        return clients

    @property
    def arrivals(self) -> Arrivals | None:
        """Delays, discarded updates and time of the cohort just drawn."""
        return self._arrivals

    def report(self) -> dict[str, float]:
        """Return the updates discarded so far too."""
        return {**super().report(), "discarded": self._discarded}

    def state_dict(self) -> dict[str, Any]:
        """Return the jobs at work too."""
        own = {"jobs": list(self._jobs), "started": self._started, "now": self._now}
        return {**super().state_dict(), **own, "discarded": self._discarded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the jobs at work."""
        super().load_state_dict(state)
        self._jobs = [tuple(job) for job in state["jobs"]]
        self._started = state["started"]
        self._now = state["now"]
        self._discarded = state["discarded"]
