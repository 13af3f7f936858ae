"""What one trial was: its config, how it stood against the others, why it ended, how to run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from fltune.errors import ConfigError, nearest
from fltune.report.spark import finite_values, spark
from fltune.report.table import short
from fltune.search.candidate import Candidate
from fltune.search.lane import Lane
from fltune.search.record import TrialRecord

WIDTH = 60
"""Characters of a curve in the terminal."""


def parse_trial(text: str) -> tuple[str, str, int]:
    """Split ``SEARCH/METHOD#NUMBER``.

    Raises:
        ConfigError: it is not written so.
    """
    search, slash, rest = text.partition("/")
    method, hash_, number = rest.rpartition("#")
    if not (search and slash and method and hash_ and number.isdecimal()):
        raise ConfigError(f"found {text!r}; write SEARCH/METHOD#NUMBER, such as digits/FedGM#12")
    return search, method, int(number)


def find_trial(lanes: Mapping[str, Lane], method: str, number: int) -> tuple[Lane, Candidate]:
    """Return a trial by its method and number.

    Raises:
        ConfigError: there is none.
    """
    if method not in lanes:
        known = ", ".join(lanes)
        raise ConfigError(f"no method {method!r}{nearest(method, lanes)}; known: {known}")
    lane = lanes[method]
    if number not in lane.candidates:
        there = f"0 to {max(lane.candidates)}" if lane.candidates else "none so far"
        raise ConfigError(f"{method} has no trial {number}; there are {there}")
    return lane, lane.candidates[number]


def explain(lane: Lane, candidate: Candidate, frozen: Path, console: Console) -> dict[str, Any]:
    """Print what is known of a trial; return the same in plain values."""
    runs = sorted(candidate.runs, key=lambda r: r.seed)
    rank = next((i for i, c in enumerate(lane.front, 1) if c.number == candidate.number), None)
    command = alone(lane, candidate, frozen)
    several = len(lane.judge.directions) > 1
    found = {
        "method": lane.method.name,
        "trial": candidate.number,
        "values": candidate.values,
        "meaning": _meaning(lane, candidate),
        "status": candidate.status,
        "scores": list(candidate.scores),
        "rank": None if several else rank,
        "of": len(lane.front),
        "on_front": rank is not None if several else None,
        "reason": _reason(candidate, runs),
        "ranks_by_round": _ranks(lane, candidate),
        "clients_by_round": _judges(runs[0]) if runs else {},
        "command": command,
    }
    _print(found, runs, lane, console)
    return found


def alone(lane: Lane, candidate: Candidate, frozen: Path) -> str:
    """Return the command that runs the trial alone, with the same numbers.

    Of a trial that ran in a pack they are the same up to the order of floating-point sums.

    It is run on the first seed. Empty for a config whose tied value cannot be computed.
    """
    try:
        point = lane.method.space.resolve(candidate.values, _beside(lane, candidate))
    except ValueError:
        return ""
    values = {**point, "seed": lane.seeds[0]}
    sets = " ".join(f"--set {shlex.quote(f'{k}={json.dumps(v)}')}" for k, v in values.items())
    method = shlex.quote(lane.method.name)
    return f"python -m fltune run {shlex.quote(str(frozen))} --method {method} {sets}"


def _beside(lane: Lane, candidate: Candidate) -> dict[str, Any]:
    """Return what its trials set beside its point; one without trials is confirmed only."""
    return lane.beside if candidate.seeds or candidate.runs else {}


def _reason(candidate: Candidate, runs: Sequence[TrialRecord]) -> str:
    """Say why a trial ended; of several runs the one that decided, which need not be the first."""
    if candidate.rejected:
        return candidate.rejected
    decided = next((run.message for run in runs if run.status == candidate.status), None)
    if not candidate.seeds and not runs:
        return "there is no other config to choose: it is confirmed without a trial"
    if decided is None:
        return "it has not ended yet"
    return decided if candidate.feasible else f"{decided}; it breaks a constraint"


def _meaning(lane: Lane, candidate: Candidate) -> dict[str, Any]:
    """Return what follows from the drawn values: ties, pairs, and stages written out."""
    try:
        readable = lane.method.space.readable(candidate.values, _beside(lane, candidate))
    except ValueError:
        return {}
    return {k: v for k, v in readable.items() if candidate.values.get(k) != v}


def _ranks(lane: Lane, candidate: Candidate) -> dict[int, tuple[int, int]]:
    """Return, for rounds that doubled since the last one, its rank among all that came so far."""
    own = lane.scores_by_round(candidate.runs[0]) if candidate.runs else {}
    others = [lane.scores_by_round(c.runs[0]) for c in lane.tried if c.runs]
    sign = -1.0 if lane.search.maximize else 1.0
    ranks, due = {}, 0
    for round in sorted(own):
        if round >= due or round == max(own):
            there = sorted(sign * scores[round] for scores in others if round in scores)
            ranks[round] = (there.index(sign * own[round]) + 1, len(there))
            due = 2 * round
    return ranks


def _judges(run: TrialRecord) -> dict[int, int]:
    """Return how many clients judged, by the first round that so many did; {} if all always do."""
    first: dict[int, int] = {}
    for row in run.rows:
        if "val/clients" in row:
            first.setdefault(int(row["val/clients"]), int(row["round"]))
    return {round: clients for clients, round in first.items()}


def _print(
    found: Mapping[str, Any], runs: Sequence[TrialRecord], lane: Lane, console: Console
) -> None:
    def say(text: str) -> None:
        console.print(escape(text), highlight=False, soft_wrap=True)

    place = f", rank {found['rank']} of {found['of']} completed" if found["rank"] else ""
    if found["on_front"]:
        place = f", one of {found['of']} on the Pareto front"
    say(f"{found['method']} #{found['trial']}: {found['status']}{place}")
    for key, value in found["values"].items():
        say(f"  {key} = {short(value)}")
    for key, value in found["meaning"].items():
        say(f"  so that {key} = {short(value)}")
    say(f"  {found['reason']}")
    if found["ranks_by_round"]:
        ranks = "  ".join(f"{r}: {a}/{b}" for r, (a, b) in found["ranks_by_round"].items())
        say(f"  rank by round  {ranks}")
    if found["clients_by_round"]:
        judged = "  ".join(f"{r}: {k}" for r, k in found["clients_by_round"].items())
        say(f"  clients by round  {judged}")
    for run in runs:
        for metric in dict.fromkeys([lane.search.goals[0].metric, "train/loss"]):
            say(f"  {metric:14} seed {run.seed}  {curve([r.get(metric) for r in run.rows])}")
    if found["command"]:
        say(f"run it alone:\n  {found['command']}")


def curve(values: Sequence[float | None]) -> str:
    """Return a curve as bars between its lowest and highest value, which are named."""
    known = finite_values(values)
    if not known:
        return "no values"
    range_ = f"{min(known):.4g} .. {max(known):.4g}"
    return f"{spark(known, WIDTH)}  {range_}, last {known[-1]:.4g}"
