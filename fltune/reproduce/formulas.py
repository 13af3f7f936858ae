"""Tables 5 to 7 of the FedCDR paper: how many clients are seen, how evenly, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fltune import dotted
from fltune.algorithms import ALGORITHMS
from fltune.federation.compression import Compressor
from fltune.participation.base import Participation
from fltune.participation.cyclic import ReshuffledCyclic
from fltune.participation.trace import record
from fltune.participation.with_replacement import WithReplacement
from fltune.reproduce.computed import Computed, Setup
from fltune.reproduce.printed import tables
from fltune.theory import unseen_share, visits_for_even_counts

METHODS = {
    "FedAvg": "fedavg",
    "FedProx": "fedprox",
    "SCAFFOLD": "scaffold",
    "FedDC": "feddc",
    "FedCDR": "fedcdr",
}
BYTES = 4
"""Of a number that is sent."""


def coverage_table(setup: Setup) -> Computed:
    """Compute Table 5: clients never selected, as a number and as a percentage."""
    pairs = []
    for row, columns in tables()["Table 5"]["rows"].items():
        rounds = int(_after(row, "R="))
        for column, printed in columns.items():
            share = unseen_share(_after(column, "gamma=") / 100, rounds)
            count = "clients" in row
            ours = round(share * _after(column, "K=")) if count else round(100 * share, 2)
            pairs.append((f"{row}, {column}", printed, ours))
    return _compared(pairs)


def fairness_table(setup: Setup) -> Computed:
    """Compute Table 6: gamma R for visits within a share of their mean, by probability."""
    pairs = []
    for row, columns in tables()["Table 6"]["rows"].items():
        deviation = _after(row, "fairness ") / 100
        for column, printed in columns.items():
            visits = visits_for_even_counts(deviation, _after(column, "") / 100)
            pairs.append((f"{row}, {column}", printed, round(visits, 1)))
    return _compared(pairs)


def cost_table(setup: Setup) -> Computed:
    """Compute Table 7 from what our methods send and the epochs that the experiments give them.

    The printed communication speed-up of FedCDR, 0.5, contradicts the bytes of its own column.
    """
    costs = {name: _cost(setup, name) for name in METHODS}
    table = tables()["Table 7"]["rows"]
    pairs = [
        (f"{row}, {name}", printed, costs[name][row])
        for row, columns in table.items()
        for name, printed in columns.items()
    ]
    return _compared(pairs)


def _cost(setup: Setup, name: str) -> dict[str, Any]:
    down, up = (_vectors(name, way) for way in ("bits_down", "bits_up"))
    one, epochs = sum(_vectors("FedAvg", way) for way in ("bits_down", "bits_up")), _epochs(setup)
    communication, computation = one / (down + up), epochs["FedAvg"] / epochs[name]
    return {
        "Download comm. cost": f"{down * BYTES:g}d",
        "Upload comm. cost": f"{up * BYTES:g}d",
        "Total comm. cost": f"{(down + up) * BYTES:g}d",
        "Comm. speedup": communication,
        "Local epoch": epochs[name],
        "Total comp. cost": f"{epochs[name]}NG",
        "Comp. speedup": computation,
        "Total comm. x comp. speedup": communication * computation,
    }


def _vectors(name: str, way: str) -> float:
    """Return how many model-sized vectors of floats a method sends one way."""
    bits = getattr(ALGORITHMS.load(METHODS[name])(), way)
    plain = Compressor()
    return (bits(2, plain) - bits(1, plain)) / (8 * BYTES)


def _epochs(setup: Setup) -> dict[str, int]:
    """Return the local epochs of the methods in the experiments' common setup."""
    base = setup.raw["experiment"]
    methods = {name.removeprefix("CR+"): m for name, m in setup.raw["methods"].items()}
    laid = {name: dotted.merge(base, methods[name]) for name in METHODS}
    return {name: raw["client"]["epochs"] for name, raw in laid.items()}


def coverage(setup: Setup) -> Computed:
    """Draw cohorts of 25 of 500 clients, with replacement and reshuffled, and count who is seen."""
    clients, drawn, rounds = 500, 25, 20
    unseen: dict[str, list[float]] = {"with replacement": [], "reshuffled": []}
    for seed in range(setup.seeds):
        for name, pattern in (
            ("with replacement", WithReplacement(drawn)),
            ("reshuffled", ReshuffledCyclic(drawn)),
        ):
            unseen[name].append(1 - _seen(pattern, clients, seed, rounds))
    expected = unseen_share(drawn / clients, rounds)
    parts = (coverage_table(setup), fairness_table(setup))
    values = {f"unseen, {name}": shares for name, shares in unseen.items()}
    values["wrong numbers"] = [sum(part.values["wrong numbers"][0] for part in parts)]
    rows = [(name, f"{expected:.4f}" if "with" in name else "0", f"{sum(s) / len(s):.4f}")
            for name, s in unseen.items()]  # fmt: skip
    heads = ("never seen in 20 rounds", "expected", "drawn (mean)")
    return Computed(values, heads, rows, seeds=setup.seeds)


def _seen(pattern: Participation, clients: int, seed: int, rounds: int) -> float:
    cohorts = record(pattern.bind(clients, seed), rounds)
    return len({i for cohort in cohorts for i in cohort}) / clients


def _after(text: str, mark: str) -> float:
    """Return the number that follows a mark in a label of a table."""
    return float(text[text.index(mark) + len(mark) :].split("%")[0].split()[0])


def _compared(pairs: Iterable[tuple[str, Any, Any]]) -> Computed:
    """Return what is printed beside ours, and how many numbers differ."""
    rows, wrong = [], 0
    for label, printed, ours in pairs:
        wrong += ours != printed
        rows.append((label, str(printed), f"{ours:g}" if not isinstance(ours, str) else ours))
    values = {"wrong numbers": [float(wrong)], "numbers": [float(len(rows))]}
    return Computed(values, ("number", "printed", "ours"), rows)
