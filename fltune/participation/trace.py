"""Recorded traces: the cohorts of every round, given in the config or in a file.

Two kinds of file. CSV has the header ``round,client`` and a row per client that takes part; rounds
are numbered from 0 without a gap, and an empty round is a row without a client:

    round,client
    0,3
    0,7
    1,
    2,0

JSON is a list with a list of ids for each round, or an object that has it under ``rounds``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fltune.parameters import parameter
from fltune.participation.base import Participation

HEADER = ["round", "client"]


@dataclass(eq=False)
class Trace(Participation):
    """Cohorts as they were recorded; after the last one the trace starts again.

    Attributes:
        cohorts: the recorded ids of each round.

    Raises:
        ValueError: rounds and a file, or neither; a file that cannot be read as a trace; an empty
            trace; a client id outside 0..N-1, or one that stands twice in a round without
            ``repeats`` or ``multiplicity``.
    """

    rounds: list[list[int]] | None = parameter(
        None, "client ids of each round; [] is an empty round"
    )
    repeats: bool = parameter(
        False, "whether a client may stand twice in a round, as in a buffer of asynchronous updates"
    )
    file: str | None = parameter(None, "a .csv or .json file that holds the rounds, instead")
    multiplicity: bool = parameter(
        False,
        "whether a client that stands m times in a round works once, with m times the aggregation "
        "weight (a record of with_replacement)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.rounds is None) == (self.file is None):
            found = "neither" if self.file is None else "both"
            raise ValueError(f"a trace has rounds or a file of them, one of the two; found {found}")
        if self.repeats and self.multiplicity:
            raise ValueError(
                "repeats and multiplicity are both true: a client that stands twice either works "
                "twice or has twice the weight"
            )
        self.cohorts = read_rounds(self.file) if self.file is not None else self.rounds or []

    def check(self, num_clients: int) -> None:
        """Refuse ids that are no client of the population."""
        where = f"{self.file}: " if self.file is not None else ""
        if not self.cohorts:
            raise ValueError(f"{where}rounds is empty: a trace needs at least one round")
        for t, cohort in enumerate(self.cohorts):
            wrong = [i for i in cohort if not 0 <= i < num_clients]
            if wrong:
                raise ValueError(
                    f"{where}rounds[{t}] names client {wrong[0]}; ids are 0..{num_clients - 1}"
                )
            if len(set(cohort)) < len(cohort) and not (self.repeats or self.multiplicity):
                raise ValueError(
                    f"{where}rounds[{t}] names a client twice: {cohort}; allow it with repeats: "
                    "true (it works twice) or multiplicity: true (it has twice the weight)"
                )

    @property
    def merges_repeats(self) -> bool:
        """Whether repeated ids are weights, and not separate pieces of work."""
        return self.multiplicity

    def draw(self, round: int, random: torch.Generator) -> Tensor:
        """Return the recorded ids of round t."""
        return torch.tensor(self.cohorts[round % len(self.cohorts)], dtype=torch.int64)


def record(pattern: Participation, rounds: int) -> list[list[int]]:
    """Return the cohorts of the next rounds of a bound pattern, which moves on by as many.

    A pattern's cohorts depend on its seed alone: one that is bound anew gives those of a whole run.
    """
    return [cohort for _ in range(rounds) for cohort in pattern]


def read_rounds(path: str | Path) -> list[list[int]]:
    """Return the cohorts that a .csv or .json file holds.

    Raises:
        ValueError: naming the file and the line or entry, if it cannot be read as a trace.
    """
    path = Path(path).expanduser()
    read = {".csv": _read_csv, ".json": _read_json}[trace_suffix(path)]
    try:
        return read(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: is no plain text: {error}") from None


def write_rounds(path: str | Path, rounds: Iterable[list[int]]) -> None:
    """Write cohorts to a .csv or .json file, from which ``kind: trace`` replays them.

    Raises:
        ValueError: another suffix.
        OSError: the file cannot be written.
    """
    path = Path(path).expanduser()
    write: dict[str, Callable[[Iterable[list[int]]], str]] = {".csv": _as_csv, ".json": _as_json}
    text = write[trace_suffix(path)](rounds)
    path.write_text(text, encoding="utf-8")


def trace_suffix(path: str | Path) -> str:
    """Return the suffix of a trace file.

    Raises:
        ValueError: it is neither .csv nor .json.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".json"):
        raise ValueError(f"{path}: found suffix {suffix!r}; a trace is a .csv or a .json file")
    return suffix


def _read_csv(path: Path) -> list[list[int]]:
    rounds: list[list[int]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        if header != HEADER:
            raise ValueError(
                f"{path}, line 1: found {','.join(header)!r}; the header is {','.join(HEADER)!r}"
            )
        for row in rows:
            if row:
                _add(rounds, row, f"{path}, line {rows.line_num}")
    return rounds


def _add(rounds: list[list[int]], row: list[str], where: str) -> None:
    """Put one row of a CSV file into its round."""
    values = [value.strip() for value in row]
    if len(values) != 2 or not values[0].isdecimal() or not (values[1] or "0").isdecimal():
        raise ValueError(
            f"{where}: found {','.join(row)!r}; should be a round and a client id, whole numbers "
            "from 0, or a round alone ('3,') that is empty"
        )
    t = int(values[0])
    if t not in (len(rounds), len(rounds) - 1):
        raise ValueError(
            f"{where}: found round {t}; rounds go from 0 upwards without a gap, and {len(rounds)} "
            f"is next (write '{len(rounds)},' for a round that is empty)"
        )
    if t == len(rounds):
        rounds.append([])
    if values[1]:
        rounds[t].append(int(values[1]))


def _read_json(path: Path) -> list[list[int]]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}, column {error.colno}: is no JSON: {error.msg}"
        ) from None
    rounds = found.get("rounds") if isinstance(found, dict) else found
    if not isinstance(rounds, list):
        raise ValueError(
            f"{path}: found {type(found).__name__}; should be a list of rounds, or an object with "
            "that list under 'rounds'"
        )
    for t, cohort in enumerate(rounds):
        whole = isinstance(cohort, list) and all(type(i) is int for i in cohort)
        if not whole:
            raise ValueError(f"{path}, rounds[{t}]: found {cohort!r}; should be a list of ids")
    return rounds


def _as_csv(rounds: Iterable[list[int]]) -> str:
    rows = [f"{t},{i}" for t, ids in enumerate(rounds) for i in (map(str, ids) if ids else [""])]
    return "\n".join([",".join(HEADER), *rows]) + "\n"


def _as_json(rounds: Iterable[list[int]]) -> str:
    lines = ",\n".join(json.dumps(cohort) for cohort in rounds)
    return f'{{"rounds": [\n{lines}\n]}}\n'
