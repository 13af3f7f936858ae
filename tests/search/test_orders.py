"""The runs of a search by kinds of work, and what is timed for them."""

import pytest
from small_search import DIGITS

from fltune.search.config import SearchConfig
from fltune.search.orders import KINDS, Book, order_of, stand_ins
from fltune.search.workload import Work


def ordered(methods, **sections):
    book = Book()
    config = SearchConfig.parse({**DIGITS, "methods": methods, **sections})
    made = {n: order_of(m, config, 2, book) for n, m in config.methods.items()}
    return made, book


def of(room, kind="a"):
    return Work(kind, 1.0, 1.0, 1.0, float(room), 10, 10)


def test_methods_and_cells_of_equal_work_are_timed_once():
    rates = {"space": {"server.lr": {"loguniform": [0.1, 1.0]}}}
    scenarios = {
        "alpha": {"mild": {"data.partition.alpha": 1.0}, "harsh": {"data.partition.alpha": 0.5}},
        "rate": {"slow": {"client.lr": 0.01}, "quick": {"client.lr": 0.1}},
    }
    methods = {
        "A": {"server": {"name": "fedgm", "beta": 0.5}, **rates},
        "B": {"server": {"name": "fedgm", "beta": 0.9}, **rates},
    }
    orders, book = ordered(methods, scenarios=scenarios, search={"pack": 1})
    assert len(orders) == 8
    assert len(book.questions) == 1


def test_packs_are_timed_besides_runs_alone():
    space = {"space": {"server.lr": {"grid": [0.1, 0.2, 0.3, 0.4]}}}
    orders, book = ordered({"A": space}, search={"pack": 3})
    assert [q.pack for q in book.questions] == [1, 3]
    (part,) = orders["A"].parts
    assert (part.alone, part.together, part.pack) == (0, 1, 3)


def test_trials_of_several_kinds_of_work_have_their_shares():
    space = {"client.steps": {"grid": [1, 50]}, "server.lr": {"grid": [1.0, 2.0]}}
    orders, book = ordered({"A": {"space": space}}, search={"pack": 4})
    parts = orders["A"].parts
    assert [p.share for p in parts] == [0.5, 0.5]
    assert [p.pack for p in parts] == [2, 2]  # only trials of one kind go together
    assert 40 < parts[1].client_samples / parts[0].client_samples <= 50  # batches may be partial
    assert len(book.questions) == 4


def test_what_is_taken_over_is_spread_over_what_may_be_found():
    methods = {
        "Mild": {"space": {"client.steps": {"grid": [1, 50]}}},
        "Harsh": {"space": {"client.steps": {"grid": [1, 50]}}, "inherit": {"from": "Mild"}},
    }
    orders, book = ordered(methods, search={"pack": 1})
    assert (orders["Harsh"].inherits, len(book.questions)) == ("Mild", 2)
    for mild, harsh in zip(orders["Mild"].parts, orders["Harsh"].parts, strict=True):
        assert (mild.share, mild.alone) == (harsh.share, harsh.alone)


def test_rounds_and_evaluations_are_each_trials_own():
    space = {"rounds": {"grid": [4, 8]}}
    orders, book = ordered({"A": {"space": space}}, search={"pack": 1})
    assert [(p.rounds, p.whole) for p in orders["A"].parts] == [(4, 4), (8, 8)]
    assert len(book.questions) == 1
    fixed = {"space": {"server.lr": {"grid": [1.0]}}}
    (part,) = ordered({"A": fixed}, search={"rounds": 3})[0]["A"].parts
    assert (part.rounds, part.whole) == (3, 8)


def test_a_large_space_is_judged_by_some_of_its_points():
    space = {"client.steps": {"logint": [1, 100]}, "server.lr": {"loguniform": [0.1, 1.0]}}
    orders, book = ordered({"A": {"space": space}}, search={"trials": 50, "pack": 1})
    parts = orders["A"].parts
    assert sum(p.share for p in parts) == pytest.approx(1)
    assert len(book.questions) == KINDS
    steps = sorted(q.experiment.client.steps for q in book.questions)
    assert steps[0] < 10 < steps[-1]


def test_one_of_its_size_stands_for_work_that_is_not_timed():
    rooms = [10, 1000, 11, 20, 2000, 100, 200]
    found = stand_ins([of(room) for room in rooms])
    assert len(set(found)) == KINDS
    assert found[0] == found[2]  # equal but for chance
    stands = [rooms[place] for place in found]
    assert [s for _, s in sorted(zip(rooms, stands, strict=True))] == sorted(stands)


def test_few_kinds_stand_for_themselves():
    assert stand_ins([of(10), of(20), of(10), of(10, kind="b")]) == [0, 1, 0, 3]
    assert stand_ins([of(10)]) == [0]
