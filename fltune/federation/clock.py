"""The simulated clock: how many seconds a round would take if the clients were real.

Nothing here is measured. A synchronous round lasts as long as its slowest client, who downloads,
works and uploads one after the other, and then the server's own time:

    max_i (latency_i + bits_down / down_i + K_i s_i + n_i s'_i + bits_up / up_i) + server_seconds

with K_i local steps at s_i seconds and n_i processed samples at s'_i seconds. Clients that left the
round (dropped stragglers) hold it up no longer; an empty round lasts ``server_seconds``.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from fltune.parameters import Checked, check_one_each, parameter
from fltune.randomness import client_normals
from fltune.registry import Registry

if TYPE_CHECKING:
    from fltune.federation.cohort import Cohort

CLOCKS = Registry(
    "clock",
    {
        "none": "fltune.federation.clock:Clock",
        "constant": "fltune.federation.clock:ConstantClock",
        "lognormal": "fltune.federation.clock:LognormalClock",
        "per_client": "fltune.federation.clock:ClockPerClient",
    },
    bases=("fltune.federation.clock:Clock",),
)

MEGABIT = 1e6


@dataclass(frozen=True)
class Visit:
    """What the active clients of one round do.

    Attributes:
        round: 0-based t; -1 for a method's initial visit by all.
        clients: int64 [C].
        steps: int64 [C], local steps K_i.
        samples: int64 [C], samples processed.
        down, up: bits to and from each client.
    """

    round: int
    clients: Tensor
    steps: Tensor
    samples: Tensor
    down: float
    up: float

    @classmethod
    def of(cls, cohort: Cohort, down: float, up: float, passes: int = 0) -> Visit | None:
        """Return what a cohort does; None of one without clients.

        Args:
            cohort: of the round.
            down, up: see the attributes.
            passes: over all samples of each client, besides its local steps.
        """
        plan = cohort.plan
        if plan is None:
            return None
        samples = plan.count.sum(0) + passes * cohort.sizes
        return cls(cohort.round, cohort.clients, plan.steps, samples, down, up)


@dataclass(frozen=True)
class Speeds:
    """How quick the clients of a round are; numbers, or float64 [C].

    Attributes:
        step, sample: seconds of a local step, and of a processed sample.
        down, up: bits per second; infinite where transfer takes no time.
        latency: seconds before anything happens.
        slowness: factor on all of it in this round.
    """

    step: Tensor | float
    sample: Tensor | float
    down: Tensor | float
    up: Tensor | float
    latency: Tensor | float
    slowness: Tensor | float = 1.0


@dataclass(eq=False)
class Clock(Checked):
    """No clock: a run has no simulated time."""

    runs: ClassVar[bool] = False

    def bind(self, num_clients: int, seed: int) -> Clock:
        """Set the population and the run's seed. Returns self.

        Raises:
            ValueError: the clock does not fit so many clients.
        """
        self.check(num_clients)
        self.num_clients = num_clients
        self.seed = seed
        return self

    def check(self, num_clients: int, asynchronous: bool = False) -> None:
        """Raise ValueError if this does not fit the clients or the pattern.

        Args:
            num_clients: N.
            asynchronous: whether the participation pattern says itself what the time is.
        """
        if asynchronous and self.runs:
            raise ValueError("the participation pattern has a time of its own; leave the clock out")

    def lasts(self, visit: Visit | None) -> float:
        """Return the seconds that a round takes; None is an empty round."""
        return 0.0


@dataclass(eq=False)
class RunningClock(Clock, ABC):
    """The rule above; subclasses say how quick clients are.

    The defaults are round numbers of a phone on a home network; no paper prescribes them.
    """

    server_seconds: float = parameter(0.0, "the server's own time in every round", ge=0)

    runs: ClassVar[bool] = True

    @abstractmethod
    def speeds(self, round: int, clients: Tensor) -> Speeds:
        """Return the speeds of the clients of round t (ids int64 [C])."""

    def lasts(self, visit: Visit | None) -> float:
        """Return the seconds of the slowest client and the server."""
        if visit is None:
            return self.server_seconds
        s = self.speeds(visit.round, visit.clients)
        work = visit.steps.double() * s.step + visit.samples.double() * s.sample
        seconds = s.slowness * (s.latency + visit.down / s.down + work + visit.up / s.up)
        return float(seconds.max()) + self.server_seconds


def _per_second(mbps: float | None) -> float:
    return math.inf if mbps is None else mbps * MEGABIT


@dataclass(eq=False)
class ConstantClock(RunningClock):
    """All clients are equally quick."""

    seconds_per_step: float = parameter(0.01, "to compute one local step", ge=0)
    seconds_per_sample: float = parameter(0.0, "to compute one sample, besides", ge=0)
    down_mbps: float | None = parameter(20.0, "megabits per second; null: no time is lost", gt=0)
    up_mbps: float | None = parameter(5.0, "megabits per second; null: no time is lost", gt=0)
    latency_seconds: float = parameter(0.0, "from the round's start to a client's", ge=0)

    def speeds(self, round: int, clients: Tensor) -> Speeds:
        """Return the same numbers for everybody."""
        return Speeds(
            self.seconds_per_step,
            self.seconds_per_sample,
            _per_second(self.down_mbps),
            _per_second(self.up_mbps),
            self.latency_seconds,
        )


@dataclass(eq=False)
class LognormalClock(ConstantClock):
    """Clients differ for the whole run: log-normal around medians, which are the other numbers.

    Client i computes exp(speed_sigma z_i) times as slowly as the median and transfers
    exp(bandwidth_sigma z'_i) times as quickly, down and up alike; z_i, z'_i are normal numbers of
    (seed, i), the speeds those of ``participation: asynchronous``. With jitter the whole time of
    client i in round t has a factor exp(jitter_sigma z_it) too.
    """

    speed_sigma: float = parameter(0.5, "spread of clients' speeds; 0: all alike", ge=0)
    bandwidth_sigma: float = parameter(0.5, "spread of clients' bandwidths; 0: all alike", ge=0)
    jitter_sigma: float = parameter(0.0, "spread of a client's rounds; 0: all alike", ge=0)

    def bind(self, num_clients: int, seed: int) -> Clock:
        """Draw every client's speed and bandwidth too."""
        everyone = torch.arange(num_clients)
        z = client_normals(seed, "speed", 0, everyone)
        self._slow = (self.speed_sigma * z).exp()
        z = client_normals(seed, "bandwidth", 0, everyone)
        self._wide = (self.bandwidth_sigma * z).exp()
        return super().bind(num_clients, seed)

    def speeds(self, round: int, clients: Tensor) -> Speeds:
        """Return the clients' own speeds, and this round's jitter."""
        medians = super().speeds(round, clients)
        slow, wide = self._slow[clients], self._wide[clients]
        jitter = self.jitter_sigma * client_normals(self.seed, "jitter", round, clients)
        return Speeds(
            medians.step * slow,
            medians.sample * slow,
            medians.down * wide,
            medians.up * wide,
            medians.latency,
            jitter.exp(),
        )


@dataclass(eq=False)
class ClockPerClient(RunningClock):
    """Each client has numbers of its own, one entry per client.

    Raises:
        ValueError: a list that is not as long as there are clients.
    """

    seconds_per_step: list[float] = parameter([], "to compute one local step; []: none", ge=0)
    seconds_per_sample: list[float] = parameter(
        [], "to compute one sample, besides; []: none", ge=0
    )
    down_mbps: list[float] = parameter([], "megabits per second; []: no time is lost", gt=0)
    up_mbps: list[float] = parameter([], "megabits per second; []: no time is lost", gt=0)
    latency_seconds: list[float] = parameter([], "from the round's start; []: none", ge=0)

    def check(self, num_clients: int, asynchronous: bool = False) -> None:
        """Refuse lists that do not fit the population."""
        super().check(num_clients, asynchronous)
        for f in dataclasses.fields(self):
            given = getattr(self, f.name)
            if isinstance(given, list) and given:
                check_one_each(f.name, given, num_clients)

    def speeds(self, round: int, clients: Tensor) -> Speeds:
        """Return the clients' own numbers."""

        def of(values: list[float], otherwise: float = 0.0) -> Tensor | float:
            return torch.tensor(values, dtype=torch.float64)[clients] if values else otherwise

        return Speeds(
            of(self.seconds_per_step),
            of(self.seconds_per_sample),
            MEGABIT * of(self.down_mbps, math.inf),
            MEGABIT * of(self.up_mbps, math.inf),
            of(self.latency_seconds),
        )
