import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.condition import Condition
from fltune.search.dimension import Dimension
from fltune.search.entries import Fixed, Paired, Tied
from fltune.search.expression import Expression
from fltune.search.space import Space
from fltune.search.stages import Lengths, PerStage


def test_a_grid_is_every_cell_once_the_last_dimension_fastest():
    space = Space(
        {"a": Dimension.parse({"grid": [1, 2]}), "b": Dimension.parse({"choice": ["x", [0], None]})}
    )
    assert space.cells == 6
    assert list(space.grid()) == [{"a": a, "b": b} for a in (1, 2) for b in ("x", [0], None)]


@given(st.lists(st.integers(1, 4), max_size=4))
def test_cells_count_the_grid(sizes):
    space = Space({f"d{i}": Dimension("grid", tuple(range(n))) for i, n in enumerate(sizes)})
    cells = [tuple(cell.values()) for cell in space.grid()]
    assert len(cells) == len(set(cells)) == space.cells == math.prod(sizes)
    assert cells == sorted(cells)


@pytest.mark.parametrize("raw", [{"uniform": [0, 1]}, {"int": [1, 3]}])
def test_a_range_has_no_grid(raw):
    space = Space({"a": Dimension.parse({"grid": [1]}), "b": Dimension.parse(raw)})
    assert space.cells is None
    with pytest.raises(ValueError, match="b is a range; an exact grid needs grid or choice"):
        list(space.grid())


def test_edges_of_a_space_name_only_what_lies_on_a_border():
    space = Space(
        {
            "a": Dimension.parse({"grid": [1, 2, 3]}),
            "b": Dimension.parse({"uniform": [0, 1]}),
            "c": Dimension.parse({"choice": ["x", "y"]}),
        }
    )
    assert space.edges({"a": 3, "b": 0.5, "c": "y"}) == {"a": "highest"}
    assert space.edges({"a": 2, "b": 0.0, "c": "x"}) == {"b": "lowest"}


SWITCHED = Space(
    {
        "server.name": Dimension.parse({"choice": ["fedgm", "fedadam"]}),
        "server.beta": Dimension.parse({"grid": [0.7, 0.9]}),
        "client.momentum": Dimension.parse({"grid": [0.0, 0.5]}),
        "server.tau": Dimension.parse({"grid": [0.1, 0.01, 0.001]}),
        "client.lr": Fixed(0.2),
        "server.lr": Tied(Expression("rounds * client.lr")),
    },
    when={
        "server.beta": (Condition("server.name", "fedgm"),),
        "client.momentum": (Condition("server.beta", "> 0.8"),),
        "server.tau": (Condition("server.name", ["fedadam", "fedyogi"]),),
    },
    own={"server.name": "fedgm", "server.beta": 0.5, "rounds": 10, "data.clients": 20},
    sections={"server.name": {}},
)
CELLS = [
    {"server.name": "fedgm", "server.beta": 0.7},
    {"server.name": "fedgm", "server.beta": 0.9, "client.momentum": 0.0},
    {"server.name": "fedgm", "server.beta": 0.9, "client.momentum": 0.5},
    *({"server.name": "fedadam", "server.tau": tau} for tau in (0.1, 0.01, 0.001)),
]


def test_a_parameter_that_does_not_count_is_not_in_the_grid():
    assert list(SWITCHED.grid()) == CELLS
    assert SWITCHED.cells == len(CELLS)


def test_only_what_counts_is_drawn():
    asked = []

    def draw(name, distribution):
        asked.append(name)
        return 1 if name == "server.name" else 0

    point = SWITCHED.propose(draw)
    assert point == {"server.name": "fedadam", "server.tau": 0.1}
    assert asked == ["server.name", "server.tau"]
    assert list(SWITCHED.distributions(point)) == asked
    assert SWITCHED.encode(point) == {"server.name": 1, "server.tau": 0}


def test_values_are_the_point_with_what_is_fixed_and_tied():
    assert SWITCHED.resolve(CELLS[1]) == {**CELLS[1], "client.lr": 0.2, "server.lr": 2.0}


def test_another_component_comes_as_its_whole_section():
    values = SWITCHED.resolve(CELLS[3])
    assert values == {
        "server": {"name": "fedadam"},
        "server.tau": 0.1,
        "client.lr": 0.2,
        "server.lr": 2.0,
    }
    assert next(iter(values)) == "server"  # before what is assigned inside it


def test_what_a_partial_point_leaves_open_keeps_its_own_value():
    space = Space(
        {
            "a": Dimension.parse({"grid": [1, 2]}),
            "b": Tied(Expression("10 * a")),
            "c": Tied(Expression("10 / d")),
            "d": Dimension.parse({"grid": [1, 2]}),
            "e": Paired("a", (1, 2), ("x", "y")),
            "f": Dimension.parse({"grid": [1, 2]}),
        },
        when={"f": (Condition("a", 7),)},
        own={"a": 7},
    )
    assert space.resolve({}) == {"b": 70}  # d has no value of its own, 7 no partner
    assert space.resolve({"d": 5, "seed": 3}) == {"b": 70, "c": 2.0, "d": 5, "seed": 3}
    assert space.resolve({"a": 2, "d": 1}) == {"a": 2, "b": 20, "c": 10.0, "d": 1, "e": "y"}


def test_a_person_reads_ties_and_lists_and_not_what_they_are_made_of():
    space = Space(
        {
            "s.stages": Dimension.parse({"grid": [2, 3]}),
            "s.lr": Tied(Expression("2 * s.stages")),
            "s.stage_ends": Lengths("s", "free"),
            "s.nu": Fixed(0.5),
        },
        own={"rounds": 10},
    )
    point = {"s.stages": 3, "s.stage_ends.1": 0.5, "s.stage_ends.2": 0.5}
    assert space.readable(point) == {"s.stages": 3, "s.lr": 6, "s.stage_ends": [3, 6, 10]}
    assert space.resolve(point) == {**space.readable(point), "s.nu": 0.5}


def test_what_cannot_be_computed_at_a_point_says_so():
    space = Space(
        {
            "a": Dimension.parse({"uniform": [0, 1]}),
            "b": Tied(Expression("1 / a")),
            "c": Dimension.parse({"grid": [1]}),
        },
        when={"c": (Condition("b", "> 0"),)},
    )
    with pytest.raises(ValueError, match=r"^b: 1 / a: .*division by zero \(at a = 0.0\)$"):
        space.resolve({"a": 0.0})
    assert space.propose(lambda name, _: 0.0) == {"a": 0.0}  # a condition on nothing does not hold


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"server.name": "fedgm"}, "^server.beta: missing; allowed: grid 0.7, 0.9$"),
        ({**CELLS[0], "server.beta": 0.8}, "^server.beta: found 0.8; allowed: grid 0.7, 0.9$"),
        ({**CELLS[0], "server.tau": 0.1}, "^server.tau: counts only when server.name = fedadam or"),
        ({**CELLS[0], "server.bta": 0.1}, "^server.bta: not drawn at this point; did you mean 's"),
        ({**CELLS[0], "client.lr": 0.1}, "^client.lr: not searched; the space says fixed 0.2$"),
        ({}, "^server.name: missing; .*; server.beta: missing"),
    ],
)
def test_a_point_outside_the_space_is_refused_by_name(point, message):
    with pytest.raises(ValueError, match=message):
        SWITCHED.encode(point)


def test_a_circle_is_named():
    entries = {"a": Tied(Expression("b")), "b": Fixed(1), "c": Fixed(2)}
    when = {"b": (Condition("c", 2),), "c": (Condition("a", 1),)}
    with pytest.raises(ValueError, match=r"^depends on itself: a -> b -> c -> a$"):
        Space(entries, when)


def test_the_order_is_the_files_where_nothing_depends():
    space = Space(
        {"a": Tied(Expression("c + d")), **{n: Dimension.parse({"grid": [1, 2]}) for n in "bcd"}}
    )
    assert space.order == ("c", "d", "a", "b")
    assert list(space.dimensions) == ["b", "c", "d"]


def test_cells_are_counted_without_walking_them():
    wide = {f"d{i}": Dimension("grid", tuple(range(100))) for i in range(30)}
    switch = {"s": Dimension.parse({"choice": ["x", "y"]}), "n": Tied(Expression("d0 + d1"))}
    space = Space({**wide, **switch}, when={"d29": (Condition("s", "x"),)})
    assert space.cells == 100**30 + 100**29


def test_a_condition_on_a_tie_hangs_on_what_the_tie_reads():
    space = Space(
        {
            "a": Dimension.parse({"grid": [1, 2, 3]}),
            "b": Dimension.parse({"grid": [1, 2]}),
            "product": Tied(Expression("a * b")),
            "twice": Tied(Expression("2 * product")),
            "c": Dimension.parse({"grid": ["x", "y", "z"]}),
        },
        when={"c": (Condition("twice", ">= 8"),)},
    )
    cells = list(space.grid())
    assert [cell for cell in cells if "c" not in cell] == [
        {"a": 1, "b": 1},
        {"a": 1, "b": 2},
        {"a": 2, "b": 1},
        {"a": 3, "b": 1},
    ]
    assert space.cells == len(cells) == 4 + 2 * 3


def test_cells_count_lists_whose_length_is_searched():
    space = Space(
        {
            "s.stages": Dimension.parse({"grid": [1, 2, 3]}),
            "s.betas": PerStage("s", Dimension.parse({"choice": [0.5, 0.9]})),
        }
    )
    assert space.cells == 2 + 4 + 8 == len(list(space.grid()))


def test_an_entry_says_when_it_counts():
    assert SWITCHED.describe()["client.momentum"] == "grid 0.0, 0.5 when server.beta > 0.8"
    assert SWITCHED.describe()["server.lr"] == "tied rounds * client.lr"


def test_only_what_is_drawn_at_a_point_has_edges():
    assert SWITCHED.edges(CELLS[3]) == {"server.tau": "highest"}
    assert SWITCHED.edges(CELLS[0]) == {"server.beta": "lowest"}
