"""Lanes of a small search, whose runs end as a test says; nothing is trained."""

from fltune.search.config import SearchConfig
from fltune.search.jobs import DONE
from fltune.search.lane import Lane
from fltune.search.record import TrialRecord

RAW = {
    "experiment": {
        "data": {"name": "digits", "clients": 20},
        "participation": {"kind": "uniform", "per_round": 5},
        "server": {"name": "fedgm"},
        "client": {"lr": 0.1, "steps": 2},
        "rounds": 4,
    },
    "methods": {
        "FedGM": {"space": {"server.lr": {"grid": [0.5, 1.0, 2.0]}}},
        "FedAvg": {"server": {"name": "fedavg"}, "space": {"server.lr": {"grid": [0.5, 1.0]}}},
    },
    "search": {"trials": 4, "confirm_seeds": 2},
}


UNTUNED = {**RAW, "methods": {"FedGM": {"space": {"server.lr": {"grid": [2.0]}}}}}
"""A search with nothing to choose."""


def make_lanes(raw=None, **search):
    config = SearchConfig.parse({**(raw or RAW), "search": {**RAW["search"], **search}})
    return {
        name: Lane(method, config.settings.search, lambda event: None)
        for name, method in config.methods.items()
    }


def take(lane):
    """Begin the next run of a lane; None if there is none now."""
    job = lane.next()
    if job is None or job == DONE:
        return None
    return TrialRecord(job["method"], job["kind"], job["number"], job["searched"], job["seed"])


def end(lane, record, score, status="complete", test=None, **changes):
    record.status, record.scores = status, [] if score is None else [score]
    record.seconds, record.rows = 10.0, [{"round": r, "val/accuracy": score or 0.0} for r in (2, 4)]
    if test is not None:
        record.metrics = {"test/accuracy": test, "val/accuracy": score}
    for name, value in changes.items():
        setattr(record, name, value)
    lane.ended(record)


def finish(lane, score):
    """Run a lane to its end; ``score`` gives (validation, test) of a record."""
    while (record := take(lane)) is not None:
        val, test = score(record)
        end(lane, record, val, test=test if record.kind == "confirmation" else None)
