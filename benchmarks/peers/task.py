"""What a driver is asked to train, and how it answers: the child's side of ``benchmarks/peers.py``.

A driver builds its library's federation once, and lets the library make rounds without end. At the
end of each it calls :meth:`Session.round_ended`, which takes the time and, when a block is full,
answers and waits for the next request. So every library is timed by the same lines, from one
round's end to the next one's, inside whatever loop it brings.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOREVER = 1_000_000
"""Rounds for libraries that want a number."""


@dataclass(frozen=True, eq=False)
class Task:
    """A workload, in arrays.

    Attributes:
        name: of the workload.
        classes: labels are 0 to ``classes - 1``.
        epochs, batch_size, lr: of the clients' SGD; the last batch of an epoch may be partial.
        x: [n, *shape] float32, the samples of client 0, then those of client 1, ...
        y: [n] int64.
        sizes: [N] samples of each client.
        cohorts: [R, M] clients of each round, dealt again from the first when they are used up.
        parameters: initial weight and bias of each layer, as PyTorch shapes them. A weight of four
            dimensions is a convolution with padding, followed by ReLU and a maximum over 2 x 2; one
            of two is a linear map, followed by ReLU unless it is the last.
    """

    name: str
    classes: int
    epochs: int
    batch_size: int
    lr: float
    x: np.ndarray
    y: np.ndarray
    sizes: np.ndarray
    cohorts: np.ndarray
    parameters: Sequence[np.ndarray]

    def save(self, path: Path) -> None:
        """Write one ``.npz`` file."""
        scalars = {k: getattr(self, k) for k in ("name", "classes", "epochs", "batch_size", "lr")}
        arrays = {k: getattr(self, k) for k in ("x", "y", "sizes", "cohorts")}
        np.savez(path, np.array(json.dumps(scalars)), *self.parameters, **arrays)

    @classmethod
    def load(cls, path: Path) -> Task:
        """Read what :meth:`save` wrote."""
        with np.load(path) as stored:
            scalars = json.loads(str(stored["arr_0"]))
            arrays = {k: stored[k] for k in ("x", "y", "sizes", "cohorts")}
            count = sum(name.startswith("arr_") for name in stored.files)
            parameters = [stored[f"arr_{i}"] for i in range(1, count)]
        return cls(**scalars, **arrays, parameters=parameters)

    @property
    def clients(self) -> int:
        """N."""
        return len(self.sizes)

    @property
    def per_round(self) -> int:
        """M, the clients in a cohort."""
        return self.cohorts.shape[1]

    def rows(self, client: int) -> slice:
        """Return where a client's samples are."""
        end = int(self.sizes[: client + 1].sum())
        return slice(end - int(self.sizes[client]), end)

    def deal(self) -> Iterator[list[int]]:
        """Yield the cohorts, round by round, without end."""
        for cohort in itertools.cycle(self.cohorts):
            yield cohort.tolist()

    def work(self, first: int, rounds: int) -> tuple[int, int]:
        """Return local steps and samples of ``rounds`` rounds from round ``first`` on."""
        cohorts = self.cohorts[np.arange(first, first + rounds) % len(self.cohorts)]
        sizes = self.sizes[cohorts]
        steps = -(sizes // -self.batch_size) * self.epochs
        return int(steps.sum()), int(sizes.sum()) * self.epochs


class Session:
    """A driver's talk with the parent: requests on standard input, answers on standard output.

    Whatever a library prints goes to standard error instead.

    Attributes:
        task: the workload, from the file named on the command line.
    """

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self.task = Task.load(Path(sys.argv[1]))
        self._ends: list[float] = []

    def start(
        self,
        parameters: Callable[[], Sequence[np.ndarray]],
        work: Callable[[], tuple[int, int]],
        about: Callable[[], str] = str,
    ) -> None:
        """Say that all is built, and wait for the first request.

        Args:
            parameters: returns the server's model as :attr:`Task.parameters` has it.
            work: returns the local steps and the samples so far, counted where they are made.
            about: returns a few words on how the library works.
        """
        self._parameters, self._work, self._about = parameters, work, about
        self._answer({"ready": True})
        self._await_rounds()

    def round_ended(self) -> None:
        """Take the time; answer if this was the last round asked for."""
        self._ends.append(time.perf_counter())
        if len(self._ends) < self._wanted:
            return
        steps, samples = (now - before for now, before in zip(self._work(), self._before))  # noqa: B905
        seconds = [end - start for start, end in itertools.pairwise(self._ends)]
        self._answer({"seconds": seconds, "steps": steps, "samples": samples})
        self._await_rounds()

    def _await_rounds(self) -> None:
        """Do what is asked until it is rounds; leave when the parent has hung up."""
        for line in iter(sys.stdin.readline, ""):
            request = json.loads(line)
            if "rounds" in request:
                self._wanted = request["rounds"] + 1  # the first one's start is not timed
                self._before, self._ends = self._work(), []
                return
            np.savez(request["save"], *self._parameters())
            self._answer({"about": self._about()})
        raise SystemExit(0)

    def _answer(self, answer: Mapping[str, Any]) -> None:
        print(json.dumps(answer), file=self._answers, flush=True)
