"""A small search of digits that is disturbed on purpose, and what must be left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fltune.tracking import Store

PATIENCE = 300.0
"""Seconds after which a test gives up waiting; none waits so long where all is well."""

MODULE = '''
import os
import signal
import time

from torch import nn


class Net(nn.Module):
    """Takes its time, a different one at each step, and at width 3 its whole worker with it.

    As what needs too much memory it bears the few samples that it is tried with beforehand.
    """

    def __init__(self, input_shape, num_classes, width: int = 8, pause: float = 0.0):
        super().__init__()
        self.width = width
        self.pause = pause * float(os.environ.get("DROWSY", "1"))
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh())
        self.last = nn.Linear(width, num_classes)

    def forward(self, x):
        if self.training:
            time.sleep(self.pause * (time.time_ns() // 1000 % 100) / 50)
            if self.width == 3 and len(x) > 3:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.last(self.layers(x))
'''

SEARCH: dict[str, Any] = {
    "experiment": {
        "data": {"name": "digits", "clients": 10, "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "model": {"name": "drowsy:Net", "pause": 0.02},
        "participation": {"kind": "uniform", "per_round": 3},
        "client": {"lr": 0.2, "steps": 3, "batch_size": 16},
        "rounds": 8,
        "eval_every": 2,
    },
    "methods": {
        "FedAvg": {
            "server": {"name": "fedavg"},
            "space": {"server.lr": {"loguniform": [0.3, 3.0]}},
        },
        "FedGM": {
            "server": {"name": "fedgm", "nu": 0.9},
            "space": {"server.lr": {"grid": [0.5, 1.0, 1.5]}, "server.beta": {"grid": [0.7, 0.9]}},
        },
    },
    "search": {"trials": 6, "confirm_seeds": 2, "deterministic": True, "batch": 3},
}
TRIALS, RUNS = 12, 16
"""Its trials, and with the confirmations all its runs."""


class Command:
    """One ``python -m fltune ...`` in a process group of its own, as a terminal gives it one.

    Args:
        folder: where it runs; what it prints is kept there.
        arguments: of the command line.
        before: Python to run first, in the same process: how a test makes a disk fill up.
        slower: so many times longer are the pauses of the model.
    """

    def __init__(
        self, folder: Path, *arguments: str, before: str = "", slower: float = 1.0
    ) -> None:
        self._late = time.monotonic() + PATIENCE
        self._out = folder / f"{arguments[0]}-{time.monotonic_ns()}.out"
        self._err = self._out.with_suffix(".err")
        main = "from fltune.cli import main; main()"
        argv = [sys.executable, "-c", f"{before}\n{main}", *arguments]
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment["DROWSY"] = str(slower)
        environment.pop("MLFLOW_TRACKING_URI", None)
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                argv,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def printed(self) -> str:
        return f"{self.out}\n--- stderr ---\n{self.err}"

    @property
    def runs(self) -> bool:
        """Whether it has not ended; one that takes too long fails the test."""
        assert time.monotonic() < self._late, f"does not end:\n{self.printed}"
        return self._process.poll() is None

    def wait(self) -> int:
        """Return the exit code."""
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end:\n{self.printed}") from None

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for something to become true, and return it."""
        late = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert self._process.poll() is None, f"ended before {what}:\n{self.printed}"
            assert time.monotonic() < late, f"waited in vain for {what}:\n{self.printed}"
            time.sleep(0.02)
        return found

    def interrupt(self) -> None:
        """Press Ctrl-C: a terminal sends SIGINT to all processes of the group."""
        os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill the driver, and it alone."""
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """Kill the driver and everything below it, as a machine that goes down."""
        if self._process.poll() is None:
            for pid in [self.pid, *descendants(self.pid)]:
                kill(pid)
            self._process.wait()

    def workers(self) -> list[int]:
        """Return the processes of Ray that are at work on a run; others are idle or Ray's own."""
        busy = "ray::ImplicitFunc.train"
        return [pid for pid in descendants(self.pid) if title(pid).startswith(busy)]


def kill(pid: int) -> None:
    """Kill a process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def title(pid: int) -> str:
    """Return what a process calls itself; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))

    def below(parent: int) -> Iterator[int]:
        for child in children.get(parent, []):
            yield child
            yield from below(child)

    return list(below(pid))


@dataclass
class Night:
    """A search that may be cut off: its folder, its commands, and what it left.

    Attributes:
        folder: where all of it is.
        raw: the search file.
        uri: the tracking store, or none for sqlite.
        name: of the search.
    """

    folder: Path
    raw: dict[str, Any] = field(default_factory=lambda: SEARCH)
    uri: str | None = None
    name: str = "night"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "drowsy.py").write_text(MODULE)
        (self.folder / "two.yaml").write_text(yaml.safe_dump(self.raw, sort_keys=False))
        self.commands: list[Command] = []

    @property
    def state(self) -> Path:
        return self.folder / "mlruns" / "searches" / self.name

    def command(self, *arguments: str, **how: Any) -> Command:
        uri = ["--set", f"tracking.uri={self.uri}"] if self.uri else []
        made = Command(self.folder, *arguments, *uri, **how)
        self.commands.append(made)
        return made

    def search(self, *arguments: str, **how: Any) -> Command:
        return self.command("search", "two.yaml", "--name", self.name, *arguments, **how)

    def resume(self, *arguments: str, **how: Any) -> Command:
        return self.command("resume", self.name, *arguments, **how)

    def done(self, command: Command) -> Command:
        """Wait for a command that is to end well, with nothing of Ray's on the terminal."""
        assert command.wait() == 0, command.printed
        assert command.err == "", command.printed
        silent(command)
        return command

    def end(self) -> None:
        """Leave no process behind."""
        for command in self.commands:
            command.kill_all()

    def lines(self) -> int:
        """Return how many runs have ended."""
        log = self.state / "trials.jsonl"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def ended(self, count: int) -> Callable[[], bool]:
        """Return a condition: that so many runs have ended."""
        return lambda: self.lines() >= count

    def records(self) -> list[dict[str, Any]]:
        """Return every line of the log, doubled ones too."""
        text = (self.state / "trials.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def results(self) -> list[str]:
        """Return what the log of runs says, apart from its order, places and times."""
        return _plain(self.state / "trials.jsonl")

    def decisions(self) -> list[str]:
        """Return what was decided, apart from the methods' order and from seconds."""
        return _plain(self.state / "journal.jsonl")

    def store(self) -> Store:
        """Open the tracking store."""
        uri = self.uri or f"sqlite:///{self.folder / 'mlruns' / 'mlflow.db'}"
        return Store.open(uri, "two", self.folder / "mlruns" / "artifacts")

    def tracked(self) -> dict[str, Any]:
        """Return each run of the store by what it is: its status, tags, params and metrics."""
        store = self.store()
        found: dict[str, Any] = {}
        for run in store.find({}):
            tags = {k: v for k, v in run.tags.items() if k not in ("mlflow.parentRunId", *PLACES)}
            key = " ".join(tags.get(f"fltune.{k}", "?") for k in ("kind", "method", "key"))
            assert key not in found, f"{key} is there twice"
            found[key] = (run.status, tags, run.params, _series(store, run.id))
        return found


PLACES = ("fltune.source", "mlflow.note.content")
"""Tags that tell where a search was, not what it found."""
CLOCKS = ("seconds", "elapsed", "node")
"""Entries of the logs that tell when and where a run was."""


def _plain(log: Path) -> list[str]:
    entries = map(json.loads, log.read_text().splitlines())
    kept = [{k: v for k, v in e.items() if k not in CLOCKS} for e in entries]
    return sorted(json.dumps(entry, sort_keys=True) for entry in kept)


def _series(store: Store, run_id: str) -> dict[str, list[tuple[int, float]]]:
    names = store.client.get_run(run_id).data.metrics
    points = {name: store.client.get_metric_history(run_id, name) for name in names}
    return {name: sorted((p.step, p.value) for p in found) for name, found in points.items()}


def ray_folders() -> set[str]:
    """Return what searches keep in the folder for temporary files."""
    return {path.name for path in Path(tempfile.gettempdir()).glob("fltune-ray-*")}


def silent(command: Command) -> None:
    """Check that nothing of Ray's or of the workers' came through to the terminal."""
    leaks = ("(raylet)", "pid=", "ray::", "WARNING", "Traceback")
    assert not [word for word in leaks if word in command.out], command.printed


def same(night: Night, undisturbed: Night) -> None:
    """Check that a disturbed search found, kept and recorded what the undisturbed one did."""
    assert night.results() == undisturbed.results()
    assert night.decisions() == undisturbed.decisions()
    assert night.tracked() == undisturbed.tracked()
