"""A whole search over digits without Ray: four methods, every run trained, all in a store."""

from __future__ import annotations

from pathlib import Path

from fltune.runner import run
from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.jobs import experiment_of
from fltune.search.search import sync
from fltune.search.state import SearchState
from fltune.search.trainable import Sender

RATES = {"server.lr": {"loguniform": [0.3, 3.0]}, "client.lr": {"loguniform": [0.05, 0.5]}}
RAW = {
    "experiment": {
        "data": {"name": "digits", "clients": 20, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "model": {"name": "mlp", "hidden": [16]},
        "participation": {"kind": "uniform", "per_round": 4},
        "client": {"lr": 0.2, "epochs": 1, "batch_size": 16},
        "rounds": 6,
        "eval_every": 2,
    },
    "methods": {
        "FedAvg": {"space": RATES},
        "FedGM": {"server": {"name": "fedgm"}, "space": RATES},
        "FedProx": {"algorithm": {"name": "fedprox"}, "space": RATES},
        "SCAFFOLD": {"algorithm": {"name": "scaffold"}, "space": RATES},
    },
    "search": {"trials": 10, "sampler": "random", "confirm_seeds": 2},
}


def search_digits(root: Path, name: str = "digits") -> list[str]:
    """Run it below a folder, send it to the store there; return the settings that find it."""
    settings = [f"tracking.root={root}"]
    config = SearchConfig.parse({**RAW, "tracking": {"root": str(root), "experiment": "digits"}})
    state = SearchState(root / "searches" / name)
    state.lock()
    state.freeze(config.as_yaml(experiment="digits"))
    campaign = Campaign(config, state, lambda event, record: None)
    number = 0
    while isinstance(job := campaign.next(str(number)), dict):
        campaign.started(str(number))
        for report in _reports(job, config):
            campaign.reported(str(number), report)
        campaign.ended(str(number))
        number += 1
    state.finish(campaign.seconds)
    state.release()
    sync(name, settings)
    return settings


def _reports(job, config):
    experiment, found = experiment_of(job), []
    sender = Sender(config.settings.search, experiment, found.append)
    result = run(experiment, test=job["test"], on_row=sender.add)
    final = ("metrics", "comm", "participation", "client_samples", "seconds", "strategy")
    last = {name: getattr(result, name) for name in final}
    ended = {"finished": True, "status": "complete", "message": result.message}
    return [*found, {**sender.rest(False), "round": result.rounds, **ended, **last}]
