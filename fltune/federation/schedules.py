"""Learning-rate schedules over communication rounds: factors on the rate of round 0.

Every schedule is a frozen dataclass, called with the 0-based round t and the total T.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from fltune.errors import ConfigError
from fltune.parameters import Checked, parameter
from fltune.registry import Registry

SCHEDULES = Registry(
    "schedule",
    {
        "constant": "fltune.federation.schedules:Constant",
        "inverse_sqrt": "fltune.federation.schedules:InverseSqrt",
        "inverse": "fltune.federation.schedules:Inverse",
        "step_decay": "fltune.federation.schedules:StepDecay",
        "halving": "fltune.federation.schedules:Halving",
    },
    bases=("fltune.federation.schedules:Schedule",),
)


class Schedule(Checked, ABC):
    """A factor on a learning rate, as a function of the round."""

    @abstractmethod
    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of 0-based round t out of T = ``rounds``."""

    def factor(self, round: int, rounds: int) -> float:
        """Return the factor, which a schedule of one's own may get wrong.

        Raises:
            ConfigError: it is no finite number that is at least 0.
        """
        found = self(round, rounds)
        try:
            factor = float(found)
        except (TypeError, ValueError):
            factor = math.nan
        if not 0 <= factor < math.inf:
            raise ConfigError(
                f"client.schedule: the factor of {type(self).__name__} in round {round} is "
                f"{found!r}; must be a finite number, at least 0"
            )
        return factor


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate in every round."""

    def __call__(self, round: int, rounds: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """1 / sqrt(t / period + 1), the client rate of the FedSUM family (Table 2) and of FedAWE."""

    period: float = parameter(10.0, "rounds; larger decays later", gt=0)

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of round t."""
        return 1.0 / math.sqrt(round / self.period + 1.0)


@dataclass(frozen=True)
class Inverse(Schedule):
    """1 / (t + 1), as MIFA uses it (Gu et al. 2021)."""

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of round t."""
        return 1.0 / (round + 1)


@dataclass(frozen=True)
class StepDecay(Schedule):
    """1, then 0.1 from T/2 on, then 0.01 from 3T/4 on (FedCDR, equation 113)."""

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of round t; borders are compared in integers."""
        if 2 * round < rounds:
            return 1.0
        return 0.1 if 4 * round < 3 * rounds else 0.1 * 0.1


@dataclass(frozen=True)
class Halving(Schedule):
    """Half the rate every ``every`` rounds, as FedAU's program does (Wang and Ji 2023)."""

    every: int = parameter(100, "rounds between two halvings", ge=1)

    def __call__(self, round: int, rounds: int) -> float:
        """Return the factor of round t."""
        return 0.5 ** (round // self.every)
