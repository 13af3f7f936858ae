"""fltune with so many processes, all else as it is by default: FedAvg through ``Trainer.fit``."""

from __future__ import annotations

import sys

import lightning as L
import torch
from rounds import CLASSES, WORKLOADS, Product

from fltune.data.federated import FederatedData, Split
from fltune.federation.allocation import restart
from fltune.federation.processes import Processes
from fltune.federation.quiet import quiet
from peers.network import values
from peers.task import FOREVER, Session, Task


class RoundEnd(L.Callback):
    """Count the rounds, and tell the session of each; the last of the callbacks."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.rounds = 0

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.rounds += 1
        self.session.round_ended()


def federate(task: Task) -> FederatedData:
    """Return the task's samples as fltune's data."""
    train = Split(torch.from_numpy(task.x), torch.from_numpy(task.y))
    unused = Split(train.x[:1], train.y[:1])
    clients = torch.arange(len(train)).split(task.sizes.tolist())
    return FederatedData.from_clients(train, unused, unused, clients, CLASSES)


def main() -> None:
    """Serve the parent's requests."""
    session = Session()
    task = session.task
    product = Product(WORKLOADS[task.name], federate(task), "auto", int(sys.argv[2]))
    trainer, module, end = product.trainer, product.module, RoundEnd(session)
    processes = next(c for c in trainer.callbacks if isinstance(c, Processes))

    def work() -> tuple[int, int]:
        # the module counts samples; the steps are what its rounds ask for
        return task.work(0, end.rounds)[0], module.client_samples

    def about() -> str:
        plural = "es" if processes.used > 1 else ""
        return f"{module.solver.strategy}, {processes.used} process{plural}"

    trainer.callbacks.append(end)
    trainer.fit_loop.max_epochs = FOREVER
    session.start(lambda: values(product.network), work, about)
    with quiet():
        trainer.fit(module, product.datamodule)


if __name__ == "__main__":
    restart()  # as `fltune run` does
    main()
