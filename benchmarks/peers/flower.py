"""Flower: its message-based FedAvg in the simulation engine, with a Ray actor per core.

A node trains whichever client the message names, so that the cohorts are the task's; every actor
holds the task and one network for as long as it lives.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor

from peers.network import Network, tensors
from peers.task import FOREVER, Session, Task

TASK = "FLOWER_PEER_TASK"
"""Environment variable with the task's file, for the actors."""

client_app = ClientApp()


@functools.cache
def held() -> tuple[Task, list[tuple[Tensor, Tensor]], Network]:
    """Return what an actor keeps: the task, the clients' samples, a network to train."""
    torch.set_num_threads(1)
    task = Task.load(Path(os.environ[TASK]))
    return task, tensors(task), Network(task.parameters)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of a message on the client that it names; answer with the model."""
    task, clients, network = held()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=task.lr)
    x, y = clients[message.content["config"]["client"]]
    before = Network.work()
    for _ in range(task.epochs):
        for rows in torch.randperm(len(y)).split(task.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    steps, samples = (now - then for now, then in zip(Network.work(), before, strict=True))
    metrics = MetricRecord({"weight": 1, "steps": steps, "samples": samples})
    content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


class Dealt(FedAvg):
    """FedAvg with the task's cohorts; its rounds end where it would set up the evaluation."""

    def __init__(self, session: Session, initial: ArrayRecord) -> None:
        super().__init__(fraction_evaluate=0.0, weighted_by_key="weight")
        self.session, self.arrays = session, initial
        self.cohorts: Iterator[list[int]] = session.task.deal()
        self.steps = self.samples = 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model to every node, to each for another client of the cohort."""
        messages = []
        for node, client in zip(grid.get_node_ids(), next(self.cohorts), strict=True):
            content = RecordDict({"arrays": arrays, "config": ConfigRecord({"client": client})})
            messages.append(
                Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node)
            )
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the models, and add up what was done."""
        replies = list(replies)
        broken = [reply.error.reason for reply in replies if reply.has_error()]
        if broken:
            raise RuntimeError(f"{len(broken)} clients failed: {broken[0]}")
        arrays, _ = super().aggregate_train(server_round, replies)
        for reply in replies:
            self.steps += int(reply.content["metrics"]["steps"])
            self.samples += int(reply.content["metrics"]["samples"])
        self.arrays = arrays
        return arrays, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Evaluate nothing; tell the session."""
        self.session.round_ended()
        return []


def main() -> None:
    """Serve the parent's requests."""
    session = Session()
    os.environ[TASK] = str(Path(sys.argv[1]).resolve())
    strategy = Dealt(session, ArrayRecord(Network(session.task.parameters).state_dict()))
    server_app, cores = ServerApp(), os.cpu_count() or 1

    @server_app.main()
    def serve(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < session.task.per_round:
            time.sleep(0.1)  # they are still connecting
        session.start(
            lambda: [a.numpy() for a in strategy.arrays.to_torch_state_dict().values()],
            lambda: (strategy.steps, strategy.samples),
            lambda: f"Ray, {cores} actors",
        )
        strategy.start(grid, strategy.arrays, num_rounds=FOREVER)

    run_simulation(
        server_app,
        client_app,
        num_supernodes=session.task.per_round,
        backend_config={
            "init_args": {"num_cpus": cores, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
        },
    )


if __name__ == "__main__":
    from peers.flower import main  # by its own name: actors import what the messages refer to

    main()
