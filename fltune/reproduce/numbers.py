"""Tables as the paper prints them: each of its numbers beside ours.

A claim says how two numbers relate; here the numbers themselves stand. Nothing is judged: levels
depend on what a paper leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fltune.report.statistics import Interval
from fltune.reproduce import printed
from fltune.reproduce.claims import Numbers
from fltune.reproduce.judge import number
from fltune.reproduce.readings import Evidence, Series, read

NOTE = (
    "Ours: mean ± half the 95% interval over the seeds that did not diverge. Theirs, in brackets, "
    "as printed: where there is a ±, it is their standard deviation."
)


@dataclass(frozen=True)
class NumbersTable:
    """A printed table with ours in it.

    Attributes:
        title: the paper's number of it, and what is read from our runs.
        heads, rows: the cells.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def problems(key: str, wanted: Numbers, planned: Evidence) -> list[str]:
    """Return what a section names that is not printed or that there is not, with dotted keys."""
    rows = rows_of(wanted, planned)
    wrong = printed.problems(key, wanted.table, rows, wanted.columns)
    if wrong:
        return wrong
    if not rows:
        return [f"{key}.rows: no method is called as a row of {wanted.table}; say which is which"]
    places = [{**row, **column} for row in rows.values() for column in wanted.columns.values()]
    for place in places:
        one = _at(planned, place)
        if one is None:
            where = ", ".join(place.values()) or "all"
            wrong.append(f"{key}: there is no method of ours at {where}")
        else:
            wrong += one.problems(key, wanted)
    return list(dict.fromkeys(wrong))


def rows_of(wanted: Numbers, planned: Evidence) -> dict[str, dict[str, str]]:
    """Return by printed label what of ours a row is."""
    methods = {one.method for one in planned.series.values()}
    there = printed.tables().get(wanted.table, {"rows": {}})["rows"]
    return wanted.rows or {row: {"method": row} for row in there if row in methods}


def fill(wanted: Numbers, found: Evidence) -> NumbersTable:
    """Return the table; a place that was not run is a dash."""
    rows = []
    for label, row in rows_of(wanted, found).items():
        cells = []
        for head, column in wanted.columns.items():
            one = _at(found, {**row, **column})
            theirs = printed.text(wanted.table, label, head)
            cells.append("-" if one is None else f"{_ours(one, wanted)} ({theirs})")
        rows.append([label, *cells])
    return NumbersTable(f"{wanted.table}: {wanted.reading}", ["", *wanted.columns], rows)


def _at(evidence: Evidence, place: Mapping[str, str]) -> Series | None:
    """Return the only series at a method and labels; None if there is none, or more than one."""
    found = [
        one
        for one in evidence.series.values()
        if place.items() <= {**one.cell, "method": one.method}.items()
    ]
    return found[0] if len(found) == 1 else None


def _ours(one: Series, wanted: Numbers) -> str:
    """Return what our runs of a series have: mean, interval, and who is not in it."""
    if one.lost:
        return "diverged"
    every = read(one, wanted, ())
    ended = {run.seed for run in one.runs if run.status == "complete"}
    values = [v for seed, v in every.items() if seed in ended]
    counted = [v for v in values if wanted.take != "rounds" or v <= one.rounds]
    never, diverged = len(values) - len(counted), len(every) - len(ended)
    missing = [f"{never} never"] * bool(never) + [f"{diverged} diverged"] * bool(diverged)
    if never and not counted:
        return f">{one.rounds}"
    shown = mean_and_half(counted)
    return f"{shown}, {' and '.join(missing)} of {len(every)}" if missing else shown


def mean_and_half(values: Sequence[float]) -> str:
    """Return mean ± half the 95% interval; the number alone of one seed, a dash of none."""
    interval = Interval.of(values)
    if interval is None:
        return "-"
    if interval.seeds == 1:
        return number(interval.mean)
    half = interval.high - interval.mean
    digits = 4 if abs(interval.mean) < 10 else 1
    return f"{interval.mean:.{digits}f} ± {half:.{digits}f}"
