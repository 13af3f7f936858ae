"""A library that runs and can be asked for rounds: the parent's side of ``benchmarks/peers.py``."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

BENCHMARKS = Path(__file__).parents[1]
PATIENCE = 120.0
"""Seconds without an answer after which a driver is given up."""
FAREWELL = 30.0
"""Seconds that a driver has to end what it started."""


class DriverError(Exception):
    """A driver died or fell silent; the message says how."""


@dataclass(frozen=True)
class Block:
    """What a driver answers to a request for rounds.

    Attributes:
        seconds: of each round but the first.
        steps, samples: of the clients, in all rounds of the block.
    """

    seconds: list[float]
    steps: int
    samples: int


@dataclass(eq=False)
class Candidate:
    """A driver's process.

    Attributes:
        name: the library's.
        threads: torch threads; None where the library sees to it.
        processes: of fltune, on the driver's command line; None where the library sees to it.
        blocks: what it has answered, block by block; the warm-up is not among it.
        about: what it says of how it works, once it has been asked for its parameters.
    """

    name: str
    threads: int | None
    python: Path
    module: str
    task: Path
    paths: str = ""
    processes: int | None = None
    blocks: list[Block] = field(default_factory=list)
    about: str = ""

    @property
    def label(self) -> str:
        """The library, and how many threads it has."""
        counted = {None: "", 1: ", 1 thread"}.get(self.threads, f", {self.threads} threads")
        return f"{self.name}{counted}"

    @property
    def log(self) -> Path:
        """Where its standard error goes."""
        return self.task.with_name(f"{self.module}-{self.threads}-{self.processes}.log")

    def start(self) -> None:
        """Start the process; :meth:`answer` then says when it is ready."""
        environment = dict(os.environ)
        environment.pop("OMP_NUM_THREADS", None)
        environment.update(
            PYTHONPATH=os.pathsep.join(filter(None, [str(BENCHMARKS), self.paths])),
            FLWR_TELEMETRY_ENABLED="0",
        )
        if self.threads is not None:
            environment["OMP_NUM_THREADS"] = str(self.threads)
        options = [] if self.processes is None else [str(self.processes)]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [self.python, "-m", f"peers.{self.module}", self.task, *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                cwd=self.task.parent,
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, request: Mapping[str, Any]) -> None:
        """Send a request.

        Raises:
            DriverError: the driver has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise DriverError(self._last_words()) from error

    def answer(self) -> dict[str, Any]:
        """Return the next answer; what a library itself prints is passed over.

        Raises:
            DriverError: the driver has ended, or says nothing for too long.
        """
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                raise DriverError(f"no answer for {PATIENCE:.0f} s") from None
            if line is None:
                raise DriverError(self._last_words())
            if line.startswith("{"):
                return json.loads(line)

    def run(self, rounds: int) -> Block:
        """Make ``rounds`` timed rounds, after one that is not timed."""
        self.ask({"rounds": rounds})
        return Block(**self.answer())

    def parameters(self) -> list[np.ndarray]:
        """Return the server's model as it is now."""
        path = self.log.with_suffix(".npz")
        self.ask({"save": str(path)})
        self.about = self.answer()["about"]
        with np.load(path) as stored:
            return [stored[f"arr_{i}"] for i in range(len(stored.files))]

    def stop(self, farewell: float = FAREWELL) -> None:
        """Hang up; end the process, and all that it started, if it does not leave in time."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has left, and a request lies unread
            self._process.stdin.close()
        try:
            self._process.wait(timeout=farewell)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_words(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "it ended without a word")[:200]
