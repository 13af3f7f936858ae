"""Series and claims of experiments that were never run, written by hand."""

from fltune.reproduce.claims import Claim
from fltune.reproduce.readings import Evidence, Series
from fltune.search.record import TrialRecord


def run(seed, accuracy=0.8, status="complete", curve=(), bits=100.0, values=None, **metrics):
    """A confirmed run; its curve is of val/accuracy, a round each, and every round sends bits."""
    rows = [
        {"round": i, "val/accuracy": v, "comm/up_bits": i * bits, "comm/down_bits": i * bits}
        for i, v in enumerate(curve, start=1)
    ]
    found = {"test/accuracy": accuracy, **metrics}
    return TrialRecord(
        "any",
        "confirmation",
        0,
        values or {},
        seed,
        status=status,
        rows=rows,
        metrics=found if status == "complete" else {},
        comm={"up_bits": bits},
        participation={"coverage": 1.0},
    )


def series(name, runs, rounds=10, lost=False, plan=None, **cell):
    """A method in a cell; ``plan`` is what its file says of it beside the rounds."""
    title = f"{name} @ {', '.join(cell.values())}" if cell else name
    return Series(title, name, cell, rounds, runs, lost, **(plan or {}))


def accuracies(name, values, **cell):
    """A series whose runs, on seeds 1, 2, ..., end with these test accuracies."""
    return series(name, [run(i, v) for i, v in enumerate(values, start=1)], **cell)


def evidence(*every):
    return Evidence(every)


def claim(statistic="level", of="A", **keys):
    if not {"above", "below"} & set(keys):
        keys["above"] = 0.0
    return Claim(says="so", statistic=statistic, of=of, **keys)
