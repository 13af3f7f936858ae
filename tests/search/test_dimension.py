import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.dimension import Dimension
from fltune.search.space import Space

EVERY_KIND = [
    {"grid": [0.5, 1.0, 2.0]},
    {"grid": ["a", True, None]},
    {"choice": [[1, 2], [3], "x"]},
    {"uniform": [-1.0, 1.0]},
    {"loguniform": [0.01, 10]},
    {"int": [1, 9]},
    {"logint": [1, 64]},
]


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        ({"grid": [0.5, 1.0, 2.0]}, [0.5, 0.5, 1.0, 2.0]),
        ({"choice": ["x", [3]]}, ["x", "x", [3], [3]]),
        ({"uniform": [-1.0, 1.0]}, [-1.0, -0.5, 0.0, 1.0]),
        ({"uniform": [0.0, 0.3], "step": 0.1}, [0.0, 0.1, 0.2, 0.3]),
        ({"loguniform": [0.01, 100]}, [0.01, 0.1, 1.0, 100]),
        ({"int": [1, 8]}, [1, 3, 5, 8]),
        ({"int": [2, 8], "step": 2}, [2, 4, 6, 8]),
        ({"logint": [1, 15]}, [1, 2, 4, 15]),
    ],
)
def test_a_share_of_the_way_is_a_value(raw, values):
    dimension = Dimension.parse(raw)
    found = [dimension.at(share) for share in (0.0, 0.25, 0.5, 1 - 2**-53)]
    assert found == pytest.approx(values) if isinstance(values[0], float) else found == values


@given(raw=st.sampled_from(EVERY_KIND), share=st.floats(0, 1, exclude_max=True))
def test_every_share_of_the_way_is_a_value(raw, share):
    dimension = Dimension.parse(raw)
    found = dimension.at(share)
    assert found in dimension or found == pytest.approx(dimension.values[-1])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"grid": []}, "grid is empty; give at least one value"),
        ({"choice": []}, "choice is empty"),
        ({"grid": [1, 2, 1]}, "grid holds 1 twice"),
        ({"choice": [[1, 2], [1, 2]]}, r"choice holds \[1, 2\] twice"),
        ({"uniform": [2, 1]}, r"found uniform: \[2, 1\]; low must be below high"),
        ({"int": [3, 3]}, "low must be below high"),
        ({"loguniform": [0, 1]}, r"found loguniform: \[0, 1\]; a logarithm needs low > 0"),
        ({"logint": [-4, 8]}, "a logarithm needs low > 0"),
        ({"uniform": [1]}, "two numbers belong there"),
        ({"uniform": [1, 2, 3]}, "two numbers belong there"),
        ({"uniform": ["a", 2]}, "two numbers belong there"),
        ({"uniform": [False, True]}, "two numbers belong there"),
        ({"uniform": [0.0, math.inf]}, "two numbers belong there"),
        ({"loguniform": [math.nan, 1.0]}, "two numbers belong there"),
        ({"int": [1, 2.5]}, "both bounds must be whole numbers"),
        ({"logunifrom": [1, 2]}, "unknown kind 'logunifrom'; .*did you mean 'loguniform'"),
        ({"grid": 3}, "found grid: 3; a list belongs there"),
        ({"grid": [1], "choice": [2]}, "write one of grid, choice, uniform"),
        ({}, "write one of"),
        ([1, 2], r"found \[1, 2\]; write one of"),
        (0.5, r"found 0.5; write one of .* such as \{grid: \[0.5, 1, 2\]\}"),
    ],
)
def test_a_wrong_entry_says_what_was_found_and_what_is_allowed(raw, message):
    with pytest.raises(ValueError, match=message):
        Dimension.parse(raw)


@pytest.mark.parametrize("raw", EVERY_KIND, ids=str)
@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_what_optuna_draws_is_decoded_to_a_value_of_the_dimension(raw, sampler):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    space = Space({"x.y": Dimension.parse(raw)})
    study = optuna.create_study(sampler=samplers[sampler](seed=0))
    seen = []
    for n in range(25):
        trial = study.ask(space.distributions())
        value = space.decode(trial.params)["x.y"]
        assert value in space.dimensions["x.y"]
        seen.append(value)
        study.tell(trial, float(n % 3))
    values = next(iter(raw.values()))
    if space.cells is not None:  # every candidate came up, and as it was written
        assert all(v in seen for v in values)
        assert {type(v) for v in seen} == {type(v) for v in values}
    elif "int" in next(iter(raw)):
        assert all(isinstance(v, int) for v in seen)


@given(
    st.lists(
        st.one_of(st.integers(-9, 9), st.text(max_size=3), st.lists(st.integers(0, 3))),
        min_size=1,
        max_size=6,
        unique_by=repr,
    )
)
def test_every_candidate_round_trips_through_its_position(values):
    dimension = Dimension.parse({"choice": values})
    distribution = dimension.distribution()
    for position, value in enumerate(values):
        internal = distribution.to_internal_repr(position)
        assert dimension.decode(distribution.to_external_repr(internal)) == value


def test_an_ordered_grid_has_neighbours_and_a_choice_has_none():
    from optuna.distributions import CategoricalDistribution, IntDistribution

    assert Dimension.parse({"grid": [1, 2, 4]}).distribution() == IntDistribution(0, 2)
    for raw in ({"choice": [1, 2, 4]}, {"grid": ["a", "b"]}):
        assert isinstance(Dimension.parse(raw).distribution(), CategoricalDistribution)


@given(low=st.floats(1e-6, 1e3), factor=st.floats(1.01, 1e4))
def test_logarithmic_distributions_keep_their_bounds(low, factor):
    distribution = Dimension.parse({"loguniform": [low, low * factor]}).distribution()
    assert (distribution.low, distribution.high, distribution.log) == (low, low * factor, True)


@pytest.mark.parametrize(
    ("raw", "value", "edge"),
    [
        ({"grid": [0.5, 1, 2]}, 0.5, "lowest"),
        ({"grid": [2, 0.5, 1]}, 2, "highest"),
        ({"grid": [0.5, 1, 2]}, 1, None),
        ({"grid": [1]}, 1, None),  # nothing was searched
        ({"choice": ["a", "b"]}, "a", None),
        ({"choice": [True, False]}, True, None),
        ({"choice": [[1], [2]]}, [1], None),
        ({"uniform": [0, 1]}, 0.019, "lowest"),
        ({"uniform": [0, 1]}, 0.021, None),
        ({"uniform": [0, 1]}, 0.985, "highest"),
        ({"loguniform": [0.01, 100]}, 0.011, "lowest"),
        ({"loguniform": [0.01, 100]}, 1.0, None),  # in the middle of the decades
        ({"loguniform": [0.01, 100]}, 95.0, "highest"),
        ({"int": [1, 9]}, 9, "highest"),
        ({"logint": [1, 64]}, 1, "lowest"),
        ({"uniform": [0, 1]}, 7.0, None),  # set by hand, outside
    ],
)
def test_edges(raw, value, edge):
    assert Dimension.parse(raw).edge(value) == edge


@pytest.mark.parametrize(
    ("raw", "below", "above"),
    [
        ({"grid": [0.001, 0.01, 1]}, (0.001, 0), (1, 2)),
        ({"loguniform": [0.3, 5.0]}, (0.3, 0), (5, 6)),
        ({"int": [2, 8]}, (2, 1), (8, 9)),
        ({"uniform": [0.0, 1.0]}, (0, -1), (1, 2)),
        ({"uniform": [-2.5, -1.5]}, (-2.5, -3), (-1.5, -1)),
    ],
)
def test_beyond_an_edge_lie_the_next_number_and_the_next_whole_one(raw, below, above):
    dimension = Dimension.parse(raw)
    number, whole = dimension.beyond("lowest")
    assert number < below[0] == pytest.approx(number, rel=0.01, abs=0.01)
    assert whole == below[1]
    assert (number > 0) == (below[0] > 0)  # a rate stays a rate
    number, whole = dimension.beyond("highest")
    assert number > above[0] == pytest.approx(number, rel=0.01)
    assert whole == above[1]


def test_descriptions_are_short():
    assert Dimension.parse({"grid": [0.5, 1]}).describe() == "grid 0.5, 1"
    assert Dimension.parse({"loguniform": [0.10, 5]}).describe() == "loguniform 0.1 .. 5"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"uniform": [0, 1], "step": 0.3}, "found step: 0.3; it does not divide the range 0 .. 1"),
        ({"uniform": [0, 1], "step": 2}, "it does not divide the range"),
        ({"uniform": [0, 1], "step": 0}, "found step: 0; a number above 0 belongs there"),
        ({"uniform": [0, 1], "step": "x"}, "a number above 0 belongs there"),
        ({"int": [0, 3], "step": 1.5}, "found step: 1.5 with int; a whole number belongs there"),
        ({"loguniform": [1, 2], "step": 1}, "found step: 1 with loguniform; a step goes with"),
        ({"grid": [1, 2], "step": 1}, "found step: 1 with grid"),
    ],
)
def test_a_wrong_step_says_why(raw, message):
    with pytest.raises(ValueError, match=message):
        Dimension.parse(raw)


@pytest.mark.parametrize(
    ("raw", "value", "drawn"),
    [
        ({"grid": [0.5, 1, 2]}, 1.0, 1),
        ({"choice": [[1, 2], [3], "x"]}, [3], 1),
        ({"choice": ["a", True, None]}, None, 2),
        ({"uniform": [0, 1]}, 1, 1.0),
        ({"int": [1, 9]}, 3.0, 3),
        ({"uniform": [0, 1], "step": 0.1}, 0.3, 3),
    ],
)
def test_a_value_is_encoded_as_what_optuna_stores(raw, value, drawn):
    dimension = Dimension.parse(raw)
    encoded = dimension.encode(value)
    assert (encoded, type(encoded)) == (drawn, type(drawn))
    assert dimension.distribution()._contains(dimension.distribution().to_internal_repr(encoded))


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ({"grid": [0.5, 1]}, 2),
        ({"grid": [0, 1]}, True),  # true is no number
        ({"choice": [True, "x"]}, 1),
        ({"uniform": [0, 1]}, 1.5),
        ({"uniform": [0, 1]}, "0.5"),
        ({"uniform": [0, 1]}, False),
        ({"int": [1, 9]}, 2.5),
        ({"loguniform": [1, 9]}, math.nan),
    ],
)
def test_a_value_outside_is_not_encoded(raw, value):
    dimension = Dimension.parse(raw)
    with pytest.raises(ValueError, match=r"found .*; allowed: "):
        dimension.encode(value)


@pytest.mark.parametrize(
    "raw", [*EVERY_KIND, {"uniform": [0.0, 1.0], "step": 0.25}, {"int": [1, 9], "step": 2}], ids=str
)
def test_what_is_written_back_is_the_same_dimension(raw):
    dimension = Dimension.parse(raw)
    assert dimension.to_yaml() == raw
    assert Dimension.parse(dimension.to_yaml()) == dimension
