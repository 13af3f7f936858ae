"""Schedules of one's own: the factor that they return is looked at."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fltune.errors import ConfigError
from fltune.federation.local import LocalSGD
from fltune.federation.schedules import Schedule


@dataclass(frozen=True)
class Own(Schedule):
    returned: object = None

    def __call__(self, round, rounds):
        return self.returned


@pytest.mark.parametrize("returned", [0, 0.5, 2, np.float32(0.25), np.int64(3)])
def test_a_factor_is_a_number_that_is_at_least_0(returned):
    assert LocalSGD(lr=0.5, schedule=Own(returned)).rate(3, 10) == 0.5 * float(returned)


@pytest.mark.parametrize("returned", [None, "half", -0.1, math.nan, math.inf, [1.0]])
def test_anything_else_is_refused_with_the_round_in_which_it_came(returned):
    with pytest.raises(ConfigError, match=r"the factor of Own in round 3 is .*at least 0"):
        LocalSGD(lr=0.5, schedule=Own(returned)).rate(3, 10)
