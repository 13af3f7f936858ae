import math

import pytest

from fltune.report.spark import finite_values, spark


def test_a_curve_goes_from_the_lowest_bar_to_the_highest():
    assert spark([0.0, 0.5, 1.0], 10) == "▁▅█"


@pytest.mark.parametrize("width", [1, 2, 7, 24])
def test_a_long_curve_is_thinned_to_its_width(width):
    drawn = spark([float(i) for i in range(100)], width)
    assert len(drawn) == width
    if width > 1:
        assert (drawn[0], drawn[-1]) == ("▁", "█")


def test_what_is_no_number_has_no_bar():
    assert finite_values([1.0, None, math.nan, math.inf, 2.0]) == [1.0, 2.0]
    assert spark([1.0, None, math.nan, math.inf, 2.0], 10) == "▁█"
    assert spark([], 5) == ""
    assert spark([0.3] * 3, 5) == "▁▁▁"
