"""The benchmark of ``strategy: auto`` measures what it says; its figures are nobody's test."""

import pytest

from fltune.federation.losses import cross_entropy
from fltune.federation.strategies import candidates


@pytest.fixture(scope="module")
def bench(load_program):
    return load_program("strategies")


def test_there_are_twenty_rows_of_all_kinds(bench):
    allowed = [candidates(row.network(), cross_entropy) for row in bench.ROWS.values()]
    assert len(allowed) == 20
    assert {"dense" in names for names in allowed} == {True, False}


@pytest.mark.parametrize("name", ["mlp_tiny_few", "residual_few"])
def test_a_row_has_auto_and_the_best_of_what_is_allowed(bench, name):
    row = bench.ROWS[name]
    found = bench.measure(row, turns=1)
    assert list(found["seconds"]) == candidates(row.network(), cross_entropy)
    assert found["seconds"][found["best"]] == min(found["seconds"].values())
    ratio = found["seconds"][found["auto"]] / found["seconds"][found["best"]]
    assert found["ratio"] == pytest.approx(ratio)
