"""Sections made from declarations: types, ranges, nearest names, and what pydantic cannot build."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from pydantic import ValidationError

from fltune import schema
from fltune.federation.schedules import InverseSqrt, Schedule
from fltune.parameters import Checked, parameter
from fltune.registry import Registry
from fltune.schema import Named, Parsed, component_model, problems, validate


@dataclass(frozen=True)
class Part(Checked):
    rate: float = parameter(0.5, "a share", symbol="r", ge=0, lt=1)
    count: int | None = parameter(None, "how many", ge=1)
    rates: list[float] = parameter([0.1, 0.2], "shares", gt=0)
    mode: str = parameter("slow", "how", choices=("slow", "quick"))
    flag: bool = parameter(False, "whether")
    schedule: Schedule | None = parameter(None, "over rounds")

    def __post_init__(self):
        super().__post_init__()
        if self.flag and self.count is None:
            raise ValueError("flag needs a count")


def plain(size: int, scale: float = 1.0, device: torch.device | None = None, tag="x", *rest):
    return size, scale, device, tag


@dataclass
class Called:
    name: str = parameter("its own", "a name")
    size: int = parameter(3, "a size")


class Wide:
    """Annotations as torch.optim has them."""

    def __init__(
        self,
        lr: float | torch.Tensor = 0.1,
        betas: tuple[float | torch.Tensor, float] = (0.9, 0.99),
        steps: int | torch.Tensor | None = None,
    ) -> None:
        self.lr, self.betas, self.steps = lr, betas, steps


def errors(target, raw):
    with pytest.raises(ValidationError) as caught:
        validate(component_model(target), raw)
    return problems(caught.value, "part")


def built(target, raw):
    return validate(component_model(target), raw).build()


def test_defaults_are_those_of_the_declaration():
    assert built(Part, {}) == Part()
    one = validate(component_model(Part), {})
    assert one.model_json_schema()["properties"]["rate"]["description"] == "a share"


def test_values_reach_the_constructor():
    raw = {"rate": 0, "count": 3, "rates": [1], "mode": "quick", "flag": True}
    raw["schedule"] = {"name": "inverse_sqrt", "period": 4}
    assert built(Part, raw) == Part(0.0, 3, [1.0], "quick", True, InverseSqrt(4.0))
    assert built(Part, {"schedule": "inverse_sqrt"}).schedule == InverseSqrt()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"rate": 1.0}, "part.rate: found 1.0; should be less than 1"),
        ({"rate": -1}, "part.rate: found -1; should be greater than or equal to 0"),
        ({"rate": float("nan")}, "part.rate: found nan; should be a finite number"),
        ({"rate": float("inf")}, "part.rate: found inf; should be a finite number"),
        ({"rate": "much"}, "part.rate: found 'much'; should be a valid number"),
        ({"rate": True}, "part.rate: found True; should be a number"),
        ({"rate": None}, "part.rate: found None; should be a valid number"),
        ({"rate": [0.1]}, "part.rate: found [0.1]; should be a valid number"),
        ({"count": 1.5}, "part.count: found 1.5; should be a valid integer"),
        ({"count": 0}, "part.count: found 0; should be greater than or equal to 1"),
        ({"count": False}, "part.count: found False; should be a number"),
        ({"rates": [0.1, -1]}, "part.rates.1: found -1; should be greater than 0"),
        ({"rates": 0.1}, "part.rates: found 0.1; should be a valid list"),
        ({"mode": "quik"}, "part.mode: found 'quik'; must be one of slow, quick; did you mean 'qu"),
        ({"rat": 1}, "part.rat: unknown key; did you mean 'rate'?; known: rate, count, rates, mo"),
        ({"xyz": 1}, "part.xyz: unknown key; known: rate, count, rates, mode, flag, schedule"),
        ({"flag": True}, "part: flag needs a count"),
        ({"schedule": "invers_sqrt"}, "part.schedule.name: unknown schedule 'invers_sqrt'"),
        ({"schedule": {"period": 1}}, "part.schedule: no 'name' in {'period': 1}; name a s"),
        ({"schedule": {"name": "inverse_sqrt", "period": 0}}, "part.schedule.period: found 0"),
        ({"schedule": {"name": "inverse_sqrt", "perod": 1}}, "part.schedule.perod: unknown key; d"),
    ],
    ids=str,
)
def test_each_wrong_value_has_its_key(raw, message):
    (found,) = errors(Part, raw)
    assert found.startswith(message)


def test_all_errors_come_at_once():
    keys = [line.split(":")[0] for line in errors(Part, {"rate": 2, "count": 0, "mod": 1})]
    assert sorted(keys) == ["part.count", "part.mod", "part.rate"]


def test_sections_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        validate(component_model(Part), {}).rate = 0.1


def test_a_signature_is_a_declaration_too():
    assert built(plain, {"size": 3}) == (3, 1.0, None, "x")
    assert built(plain, {"size": 3, "scale": 2, "tag": 5}) == (3, 2.0, None, 5)
    assert errors(plain, {}) == ["part.size: missing; required"]
    assert errors(plain, {"size": "x"})[0].startswith("part.size: found 'x'; should be a valid int")


def test_a_type_that_pydantic_cannot_build_is_left_to_the_constructor():
    assert built(plain, {"size": 1, "device": "cpu"}) == (1, 1.0, "cpu", "x")


def test_a_number_or_tensor_is_a_number():
    wide = built(Wide, {"lr": 1, "betas": [0.5, 0.6], "steps": 3})
    assert (wide.lr, wide.betas, wide.steps) == (1.0, (0.5, 0.6), 3)
    keys = [e.split(":")[0] for e in errors(Wide, {"lr": "x", "betas": [0.5, True], "steps": 1.5})]
    assert keys == ["part.lr", "part.betas.1", "part.steps"]
    assert errors(Wide, {"betas": [0.5]})[0].startswith("part.betas.1: missing")


PARTS = Registry("part", {"part": f"{__name__}:Part"}, aliases={"piece": "part"})


def test_names_aliases_and_import_paths():
    parse = Named(PARTS)
    for raw in ("part", "piece", f"{__name__}:Part", {"name": "part", "rate": 0.5}):
        assert parse(raw).build() == Part()
    assert parse("piece").component_name == "piece"
    assert parse({"name": f"{__name__}:plain", "size": 2}).build() == (2, 1.0, None, "x")


def test_the_key_of_the_name_is_the_sections():
    """A constructor's own argument of that name cannot be set from a file."""
    one = Named(PARTS)(f"{__name__}:Called")
    assert one.own == ("size",)
    assert one.build() == Called("its own", 3)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("prt", "unknown part 'prt'; did you mean 'part'.; known: part; or an import path"),
        ("no_such_module:X", "part 'no_such_module:X' cannot be imported: No module named"),
        ("fltune.errors:X", "part 'fltune.errors:X' cannot be imported: .* no attribute 'X'"),
        (3, "found 3; a part is a name or a mapping with 'name' in it"),
        ({"kind": "part"}, "^no 'name' in {'kind': 'part'}; name a part: part; or an import path"),
        ({"name": 3}, "^name is 3; name a part: part; or an import path"),
    ],
    ids=str,
)
def test_names_that_lead_nowhere(raw, message):
    with pytest.raises(Exception, match=message):
        Named(PARTS)(raw)


class Odd:
    """An object whose text says nothing of it."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "Odd()"


def test_the_same_section_is_parsed_once_and_what_only_looks_the_same_is_not():
    parsed, made = Parsed(), []

    def get(raw):
        return parsed.get(raw, lambda: made.append(raw) or raw)

    for raw in ({"a": 1}, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": [1]}):
        assert get(raw)["a"] == raw["a"]
    assert len(made) == 5
    assert [get({"a": Odd(n)})["a"].value for n in (1, 2)] == [1, 2]


def test_a_failure_is_found_again():
    parsed = Parsed()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            parsed.get({}, lambda: 1 / 0)


def test_no_more_is_kept_than_is_said(monkeypatch):
    monkeypatch.setattr(schema, "KEPT", 3)
    parsed = Parsed()
    for n in range(10):
        assert parsed.get({"n": n}, lambda n=n: n) == n
    assert len(parsed._kept) <= 3
