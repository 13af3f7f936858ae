import pytest

from fltune.search.condition import Condition, parse_conditions


@pytest.mark.parametrize(
    ("test", "met", "missed"),
    [
        ("fedadam", ["fedadam"], ["fedgm", None, 1]),
        (0.5, [0.5], [0.6, "0.5"]),
        (1, [1, 1.0], [True, "1"]),
        (True, [True], [1, 1.0, False]),
        (None, [None], [0, False]),
        ([0.5, 0.9], [0.5, 0.9], [0.7]),
        ([None, "x"], [None, "x"], ["y"]),
        ("> 0", [0.1, 5], [0, -1, True, "a", None]),
        (">=2", [2, 3], [1.9]),
        ("< 1e-3", [0.0], [0.001]),
        ("<= 1", [1], [1.1]),
        ("!= fedavg", ["fedgm", 3], ["fedavg"]),
        ("!= 0", [0.1, "x"], [0, 0.0]),
    ],
)
def test_conditions(test, met, missed):
    condition = Condition("a.b", test)
    assert all(map(condition.holds, met))
    assert not any(map(condition.holds, missed))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("server.name", "found when: 'server.name'; write {other.parameter: value}"),
        ({}, "found when: {}"),
        ({"a": []}, r"when a: found \[\]; write a value, a list"),
        ({"a": {"b": 1}}, "when a: found {'b': 1}"),
        ({"a": "> many"}, "when a: found '> many'; compare with a number"),
        ({"a": "<"}, "when a: found '<'; compare with a number"),
    ],
)
def test_a_wrong_condition_says_what_was_found(raw, message):
    with pytest.raises(ValueError, match=message):
        parse_conditions(raw)


def test_conditions_read_back_in_words():
    first, second, third = parse_conditions({"a": ["x", "y"], "b.c": "> 0", "d": 1})
    assert first.describe() == "a = x or y"
    assert second.describe() == "b.c > 0"
    assert third.describe() == "d = 1"
