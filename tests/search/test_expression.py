import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.search.expression import FUNCTIONS, OPERATORS, Expression

VALUES = {
    "client.lr": 0.005,
    "rounds": 100,
    "data.clients": 20,
    "x": -2,
    "name": "fedgm",
    "on": True,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.01 / client.lr", 2.0),
        ("3", 3),
        (" -x ** 2 ", -4.0),
        ("(-x) ** 2 - +1", 3.0),
        ("2 ** 3 ** 2", 512.0),
        ("sqrt(data.clients * 5)", 10.0),
        ("log(exp(1))", 1.0),
        ("min(rounds, 7, x)", -2),
        ("max(1e-3, client.lr)", 0.005),
        ("abs(x)", 2),
        ("round(rounds / 3)", 33),
        ("round(rounds / 3, 2)", 33.33),
        ("int(rounds / 8)", 12),
    ],
)
def test_formulas(text, value):
    result = Expression(text).evaluate(VALUES.__getitem__)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found ''; a formula belongs there"),
        (3, "found 3; a formula belongs there"),
        ("1 +", r"at position \d: cannot be read \(invalid syntax\); allowed: numbers"),
        ("1\0", "at position 1: cannot be read"),
        ("client.lr // 2", "at position 1: an operator that is not allowed; allowed: numbers, dot"),
        ("1 if x else 2", "at position 1: not allowed"),
        ("2 * [1][0]", "at position 5: not allowed"),
        ("x == 1", "at position 1: not allowed"),
        ("not x", "at position 1: not allowed"),
        ("~x", "at position 1: not allowed"),
        ("1 + 'a'", "at position 5: 'a' is no number"),
        ("True", "at position 1: True is no number"),
        ("1j", "at position 1: 1j is no number"),
        ("1 + sqr(x)", "at position 5: unknown function sqr; did you mean 'sqrt'"),
        ("x.real()", "at position 1: unknown function x.real"),
        ("(lambda: 1)()", r"at position 1: unknown function \?"),
        ("__import__('os')", "at position 1: unknown function __import__"),
        ("sqrt()", "at position 1: sqrt takes 1 numbers, by place"),
        ("log(1, 2)", "at position 1: log takes 1 numbers"),
        ("min(x)", "at position 1: min takes 2 or more numbers"),
        ("round(x, ndigits=1)", "at position 1: round takes 1 or 2 numbers, by place"),
        ("max(*x)", "at position 1: max takes 2 or more"),
        ("max(*x, 1)", "at position 5: not allowed"),
        ("(x := 1)", "at position 2: not allowed"),
        ("f'{x}'", "at position 1: not allowed"),
        ("(" * 400 + "1", "longer than 300 characters"),
        ("(" * 290 + "1", "at position .*: cannot be read"),
    ],
)
def test_what_is_not_arithmetic_is_refused_with_its_position(text, message):
    with pytest.raises(ValueError, match=message):
        Expression(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / (x + 2)", r"1 / \(x \+ 2\): division by zero \(at x = -2\)"),
        ("sqrt(x)", r"sqrt\(x\): math domain error|sqrt\(x\): expected a nonneg"),
        ("log(x + 2)", r"log\(x \+ 2\): .* \(at x = -2\)"),
        ("x ** 0.5", r"x \*\* 0.5: .* \(at x = -2\)"),
        ("exp(rounds * 99)", "math range error|overflow"),
        ("9 ** 9 ** 9 ** 9", "overflow|range error|out of range"),
        ("1e308 * 10", "the result is inf$"),
        ("round(x, 0.5)", "cannot be interpreted as an integer"),
        ("name + 1", "name is 'fedgm', not a number"),
        ("on + 1", "on is True, not a number"),
    ],
)
def test_what_has_no_finite_value_says_where(text, message):
    with pytest.raises(ValueError, match=message):
        Expression(text).evaluate(VALUES.__getitem__)


def test_names_are_found_once_each_in_order():
    assert Expression("b.c + a * max(b.c, -d.e.f)").names == ("b.c", "a", "d.e.f")


def test_a_formula_travels_to_other_processes():
    formula = Expression("0.01 / client.lr")
    again = pickle.loads(pickle.dumps(formula))
    assert again == formula
    assert again.evaluate(VALUES.__getitem__) == 2.0


formulas = st.recursive(
    st.one_of(
        st.integers(0, 99).map(str),
        st.floats(0.001, 99).map(repr),
        st.sampled_from(["a", "b.c"]),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda text: f"-{text}"),
        st.tuples(st.sampled_from(["abs", "sqrt", "exp"]), inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]})"
        ),
    ),
    max_leaves=8,
)


@given(text=formulas, a=st.floats(-9, 9), c=st.floats(-9, 9))
def test_arithmetic_is_pythons(text, a, c):
    """Against Python's own evaluation of the same text, with b.c as an attribute of an object."""

    class B:
        pass

    b = B()
    b.c = c
    if len(text) > 300:
        return
    names = {"a": a, "b": b, "sqrt": math.sqrt, "exp": math.exp}
    try:
        expected = eval(text, names)
    except (ArithmeticError, ValueError):
        expected = math.nan
    if math.isfinite(expected):
        assert Expression(text).evaluate({"a": a, "b.c": c}.__getitem__) == expected
    else:
        with pytest.raises(ValueError, match=":"):
            Expression(text).evaluate({"a": a, "b.c": c}.__getitem__)


def test_every_function_and_operator_is_named_in_the_message():
    with pytest.raises(ValueError, match="allowed") as caught:
        Expression("x = 1")
    for name in FUNCTIONS:
        assert name in str(caught.value)
    assert len(OPERATORS) == 5
    assert "+ - * / **" in str(caught.value)
