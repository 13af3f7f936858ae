"""Several processes for the local work of one run.

A :class:`Team` is this process and its workers, started once for a run. Samples, parameters and
batches lie in shared memory (:mod:`fltune.federation.shared`); a round costs one small message to
each worker and one back. Whole bundles are shared out (:mod:`fltune.federation.bundles`), so that
the numbers of a run do not depend on how many processes there are.

Workers are children (:mod:`fltune.federation.child`) that run
:mod:`fltune.federation.parallel_worker`. Needs Linux; elsewhere a run has one process.
"""

from __future__ import annotations

import os
import pickle
import weakref
from dataclasses import dataclass, fields
from multiprocessing.connection import wait
from typing import Any

import torch
from torch import Tensor

from fltune.data.augmentation import Augmentation
from fltune.data.federated import Split
from fltune.errors import ConfigError, RunFailedError
from fltune.federation.bundles import ROWS, Work, put, share_out, solve_bundles
from fltune.federation.child import Child, ChildLostError, end
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalResult, LocalSGD, Losses
from fltune.federation.shared import Layout, SharedMemory, lay_out
from fltune.federation.strategies import STRATEGIES

OUT = "out."
"""What the names of answers begin with in the shared memory of a round."""
PROBLEM = "problem."
"""What the names of a local problem's tensors begin with."""
_PROGRAM = "fltune.federation.parallel_worker"


@dataclass(frozen=True)
class Samples:
    """Message to a worker: where the training samples lie."""

    layout: Layout
    augmentation: Augmentation | None


@dataclass(frozen=True)
class Errand:
    """Message to a worker: its share of a cohort.

    Attributes:
        strategy: how to solve it.
        layout: of the round's memory, inputs and answers.
        problem: the parts of the local problem that are no tensors.
        lr: client learning rate of this round.
        share: its bundles.
    """

    strategy: str
    layout: Layout
    problem: dict[str, Any]
    lr: float
    share: list[list[int]]


@dataclass(frozen=True)
class Answer:
    """Message from a worker: done; or, in words, why not."""

    error: str = ""


def possible() -> bool:
    """Whether runs on this system can have several processes."""
    return hasattr(os, "memfd_create")


class Team:
    """This process and its workers, who together solve the local problems of cohorts.

    Starting takes seconds, in the background: ask :meth:`ready`, or :meth:`wait`. Workers end with
    this process, whatever ends it.

    Args:
        network: the model, pickled for the workers; its class must be one that can be imported.
        losses: per-sample losses.
        sgd: the clients' optimizer.
        processes: all of them, this one included; at least 2.

    Raises:
        ConfigError: the network or the losses cannot be pickled.
        RunFailedError: the system starts no more processes.
    """

    def __init__(self, network: FlatNetwork, losses: Losses, sgd: LocalSGD, processes: int) -> None:
        self.processes = processes
        self._workers: list[Child] = []
        self._data: Split | None = None
        try:
            setting = pickle.dumps((network, losses, sgd, torch.get_num_threads()))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"processes: found {processes}, but the model cannot be sent to other processes "
                f"({error}); define it in a module that can be imported, or use one process"
            ) from error
        self._samples, self._round, kept = SharedMemory(), SharedMemory(), SharedMemory()
        kept.store(setting)  # a pipe would make us wait until the worker has imported torch
        memories = (kept, self._samples, self._round)
        self.close = weakref.finalize(self, _end, self._workers, memories)
        try:
            for _ in range(processes - 1):
                files = [memory.file for memory in memories]
                self._workers.append(Child(_PROGRAM, *files, files=files))
        except OSError as error:
            self.close()
            raise RunFailedError(
                f"a worker process of this run cannot be started ({error.strerror}); run again "
                "with fewer processes"
            ) from error
        self._waiting = list(self._workers)

    def ready(self) -> bool:
        """Whether all workers have started.

        Raises:
            RunFailedError: one of them could not.
        """
        for worker in [w for w in self._waiting if w.connection.poll()]:
            self._receive(worker)
            self._waiting.remove(worker)
        return not self._waiting

    def wait(self) -> Team:
        """Wait until all workers have started.

        Raises:
            RunFailedError: one of them could not.
        """
        while not self.ready():
            wait([worker.connection for worker in self._waiting])
        return self

    def solve(self, strategy: str, work: Work) -> LocalResult:
        """Solve the local problems of a cohort; every process takes a share.

        Raises:
            RunFailedError: a worker ended, or could not do its share.
        """
        shares = share_out(strategy, work, self.processes)
        busy = [(w, s) for w, s in zip(self._workers, shares[1:], strict=True) if s]
        if not busy:
            return solve_bundles(strategy, work)
        try:
            return self._solve(strategy, work, shares[0], busy)
        except BaseException:
            self.close()  # workers that still do their share would answer the next question
            raise

    def _solve(
        self,
        strategy: str,
        work: Work,
        own: list[Tensor],
        busy: list[tuple[Child, list[Tensor]]],
    ) -> LocalResult:
        if work.data is not self._data:
            self._lay_out_samples(work.data)
        whole = work.room(strategy)
        layout, shared, numbers = self._lay_out_round(work, whole)
        for worker, share in busy:
            places = [clients.tolist() for clients in share]
            self._send(worker, Errand(strategy, layout, numbers, work.lr, places))
        for clients in own:
            put(whole, clients, STRATEGIES[strategy](*work.part(clients)))
        for worker, share in busy:
            self._receive(worker)
            answered = torch.cat(share).tolist()
            for name in ROWS:
                if OUT + name in shared:
                    _copy_rows(getattr(whole, name), shared[OUT + name], answered)
        return whole

    def _lay_out_samples(self, data: Split) -> None:
        tensors = {"x": data.x, "y": data.y}
        layout, size = lay_out(tensors)
        _write(self._samples, layout, size, tensors)
        for worker in self._workers:
            self._send(worker, Samples(layout, data.augmentation))
        self._data = data

    def _lay_out_round(
        self, work: Work, whole: LocalResult
    ) -> tuple[Layout, dict[str, Tensor], dict[str, Any]]:
        """Write what the workers need; return where it is, the tensors, and the plain numbers."""
        problem = {f.name: getattr(work.problem, f.name) for f in fields(work.problem)}
        inputs = {PROBLEM + k: v for k, v in problem.items() if isinstance(v, Tensor)}
        inputs |= {f.name: getattr(work.plan, f.name) for f in fields(work.plan)}
        inputs |= {"keys": work.keys, "statistics": work.network.read_statistics()}
        answers = {OUT + name: getattr(whole, name) for name in ROWS}
        outputs = {k: v for k, v in answers.items() if v is not None}
        layout, size = lay_out({**inputs, **outputs})
        shared = _write(self._round, layout, size, inputs)
        numbers = {k: v for k, v in problem.items() if not isinstance(v, Tensor)}
        return layout, shared, numbers

    def _send(self, worker: Child, message: Samples | Errand) -> None:
        try:
            worker.send(message)
        except ChildLostError as how:
            raise _lost(how) from None

    def _receive(self, worker: Child) -> None:
        try:
            answer: Answer = worker.receive()
        except ChildLostError as how:
            raise _lost(how) from None
        if answer.error:
            raise RunFailedError(
                f"a worker process of this run failed: {answer.error}\nrun with processes: 1 to "
                "see whether it is the worker's own"
            )


def _write(
    memory: SharedMemory, layout: Layout, size: int, values: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Copy tensors into shared memory; return all tensors of the layout there."""
    memory.reserve(size)
    shared = memory.tensors(layout)
    for name, value in values.items():
        shared[name].copy_(value)
    return shared


def _copy_rows(to: Tensor, source: Tensor, places: list[int]) -> None:
    for i in places:  # rows are long: one by one each is copied once, by an index twice
        to[i].copy_(source[i])


def _end(workers: list[Child], memories: tuple[SharedMemory, ...]) -> None:
    end(workers)
    for memory in memories:
        memory.close()


def _lost(how: ChildLostError) -> RunFailedError:
    return RunFailedError(
        f"a worker process of this run was ended {how}; if it was short of memory, run again with "
        "fewer processes"
    )
