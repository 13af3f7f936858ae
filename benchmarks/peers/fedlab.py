"""FedLab: its standalone pipeline, server handler and serial trainer, with batches by index.

A ``torch.utils.data.DataLoader`` would collate sample by sample; the trainer takes any iterable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch import Tensor

from peers.network import Network, tensors, values
from peers.task import FOREVER, Session


class Batches:
    """A client's batches, shuffled anew by every pass."""

    def __init__(self, x: Tensor, y: Tensor, batch_size: int) -> None:
        self.x, self.y, self.batch_size = x, y, batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.randperm(len(self.y)).split(self.batch_size):
            yield self.x[rows], self.y[rows]


class Clients:
    """The data set as the trainer asks for it."""

    def __init__(self, own: list[tuple[Tensor, Tensor]]) -> None:
        self.own = own

    def get_dataloader(self, id: int, batch_size: int) -> Batches:
        """Return a client's batches."""
        return Batches(*self.own[id], batch_size)


class Dealt(SyncServerHandler):
    """The server, with the task's cohorts."""

    cohorts: Iterator[list[int]]

    def sample_clients(self) -> list[int]:
        """Return the clients of the next round."""
        return next(self.cohorts)


class Pipeline(StandalonePipeline):
    """The loop, which calls ``evaluate`` at the end of each round."""

    session: Session

    def evaluate(self) -> None:
        """Evaluate nothing; tell the session."""
        self.session.round_ended()


def main() -> None:
    """Serve the parent's requests."""
    logging.getLogger().setLevel(logging.WARNING)
    session = Session()
    task = session.task
    network = Network(task.parameters)
    handler = Dealt(network, global_round=FOREVER, sample_ratio=task.per_round / task.clients)
    handler.cohorts = task.deal()
    trainer = SGDSerialClientTrainer(network, task.clients)
    trainer.setup_dataset(Clients(tensors(task)))
    trainer.setup_optim(task.epochs, task.batch_size, task.lr)
    pipeline = Pipeline(handler, trainer)
    pipeline.session = session
    session.start(lambda: values(handler.model), Network.work)
    pipeline.main()


if __name__ == "__main__":
    main()
