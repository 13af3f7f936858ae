"""How long a large search takes to compare, and to show in MLflow.

    python benchmarks/compare_large.py
    python benchmarks/compare_large.py --trials 300 --points 200 --json

A search of a few methods is written through the real campaign, state and recorder, with runs whose
curves are made up: nothing is trained. Then

    write       the logs of all runs                       (not bounded: a search writes as it goes)
    send        all runs to a fresh MLflow store           (likewise)
    table       python -m fltune compare NAME              in a process of its own
    compare     python -m fltune compare NAME --html ...   likewise
    page        MLflow's page of the search's run, from its address to its text and child runs
    runs        MLflow's table of the runs

Of the commands the processor time is told too: on a machine with other work it says more than the
clock. Page and runs are measured in Chromium, and left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.jobs import Job
from fltune.search.search import sync
from fltune.search.state import SearchState
from fltune.tracking import Store, resolve_uri, ui_command, ui_environment

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests' browser
from browser import CHROMIUM, Browser

NAME = "large"
METHODS = ("FedAvg", "FedGM", "FedProx")
SPACE = {
    "server.lr": {"loguniform": [0.1, 10.0]},
    "client.lr": {"loguniform": [0.01, 1.0]},
    "client.momentum": {"uniform": [0.0, 0.9]},
}
PORT = 5098


def config_of(root: Path, trials: int, points: int) -> SearchConfig:
    """Return the config of the search, ``trials`` over all methods."""
    servers = {"FedGM": {"server": {"name": "fedgm"}}}
    algorithms = {"FedProx": {"algorithm": {"name": "fedprox"}}}
    return SearchConfig.parse(
        {
            "experiment": {"rounds": points, "data": {"name": "digits", "clients": 50}},
            "methods": {
                name: {**servers.get(name, {}), **algorithms.get(name, {}), "space": SPACE}
                for name in METHODS
            },
            "search": {
                "trials": math.ceil(trials / len(METHODS)),
                "sampler": "random",
                "confirm_seeds": 3,
            },
            "tracking": {"root": str(root), "experiment": NAME},
        }
    )


def result_of(job: Job, points: int) -> dict[str, Any]:
    """Return what a worker would report: a curve that rises faster the better the values are."""
    values, luck = job["searched"], 0.01 * (job["seed"] % 7)
    far = abs(math.log(values["server.lr"] / 1.5)) + abs(math.log(values["client.lr"] / 0.1))
    best, lost = 0.95 / (1 + 0.2 * far) + luck, values["server.lr"] * values["client.lr"] > 1
    rows = [
        {
            "round": float(t),
            "train/loss": 2.3 * math.exp(-t / 50) + far / 10,
            "val/loss": 2.4 * math.exp(-t / 50) + far / 10,
            "val/accuracy": best * (1 - math.exp(-4 * t / points)),
            "comm/up_bits": 1e6 * t,
            "comm/down_bits": 1e6 * t,
            "client_samples": 500.0 * t,
        }
        for t in range(1, (points // 3 if lost else points) + 1)
    ]
    score = 0.0 if lost else rows[-1]["val/accuracy"]
    metrics = {k: rows[-1][k] for k in ("val/accuracy", "val/loss", "train/loss")}
    tested = {"test/accuracy": score - 0.01, "test/loss": 0.5} if job["test"] else {}
    return {
        "round": points,
        "finished": True,
        "status": "diverged" if lost else "complete",
        "message": "diverged" if lost else f"completed {points} rounds",
        "scores": [score],
        "violations": [],
        "rows": rows,
        "metrics": {**metrics, **tested},
        "comm": {"up_bits": 1e6 * points, "down_bits": 1e6 * points},
        "participation": {"tau_max": 9, "tau_avg": 3.0, "coverage": 1.0},
        "client_samples": 500 * points,
        "seconds": 1.0,
        "strategy": "none",
    }


def write_search(root: Path, trials: int, points: int) -> int:
    """Write the logs of a finished search; return how many runs it has."""
    config = config_of(root, trials, points)
    state = SearchState(root / "searches" / NAME)
    state.lock()
    state.freeze(config.as_yaml(experiment=NAME))
    campaign, made = Campaign(config, state, lambda event, record: None), 0
    while isinstance(job := campaign.next(str(made)), dict):
        campaign.started(str(made))
        campaign.reported(str(made), result_of(job, points))
        campaign.ended(str(made))
        made += 1
    state.finish(campaign.seconds)
    state.release()
    return made


def time_compare(root: Path, *options: str) -> tuple[float, float]:
    """Return the seconds of the command, imports included: by the clock, and of the processor."""
    command = [sys.executable, "-m", "fltune", "compare", NAME, *options]
    command += ["--set", f"tracking.root={root}"]
    started, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return time.perf_counter() - started, spent


def time_ui(root: Path) -> dict[str, float]:
    """Return the seconds until MLflow's pages show what they are opened for."""
    uri = resolve_uri(None, root, environ={})
    store = Store.open(uri, NAME, root / "artifacts")
    (parent,) = store.find({"fltune.kind": "search"})
    argv = ui_command(uri, PORT, root / "artifacts")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(argv, env={**os.environ, **ui_environment(uri)}, **silent)
    home = f"http://127.0.0.1:{PORT}/"
    try:
        while True:
            try:
                urllib.request.urlopen(home, timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        with Browser(root / "profile") as browser:
            runs = f"{home}#/experiments/{store.experiment_id}/runs"
            browser.open(home, 1600).wait("document.body.innerText.includes('Experiments')")
            shown = "document.body.innerText.includes"
            return {
                "page": _until(
                    browser, f"{runs}/{parent.id}", f"{shown}('is best of') && {shown}('FedProx')"
                ),
                "runs": _until(browser, runs, f"{shown}('matching runs')"),
            }
    finally:
        server.terminate()
        server.wait(30)


def _until(browser: Browser, url: str, condition: str) -> float:
    started = time.perf_counter()
    browser.open(url, 1600).wait(condition)
    return time.perf_counter() - started


def measure(trials: int, points: int) -> dict[str, float]:
    """Return all times, in seconds, and the sizes on the disk, in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        started = time.perf_counter()
        runs = write_search(root, trials, points)
        written = time.perf_counter()
        sync(NAME, [f"tracking.root={root}"])
        sent = time.perf_counter()
        found = {"runs_made": float(runs), "write": written - started, "send": sent - written}
        found["table"], found["table_cpu"] = time_compare(root)
        page = ("--html", str(root / "compare.html"))
        found["compare"], found["compare_cpu"] = time_compare(root, *page)
        found["store_mib"] = (root / "mlflow.db").stat().st_size / 2**20
        found["html_mib"] = (root / "compare.html").stat().st_size / 2**20
        return found | (time_ui(root) if CHROMIUM else {})


def main() -> None:
    """Measure, and print a line per number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300, help="over all methods")
    parser.add_argument("--points", type=int, default=200, help="evaluated rounds of each")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    chosen = parser.parse_args()
    found = measure(chosen.trials, chosen.points)
    for name, value in found.items():
        print(f"{name:10} {value:8.2f}")
    if chosen.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
