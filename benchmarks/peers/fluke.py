"""fluke: its own FedAvg, clients and ``FastDataLoader``, all in memory, no logger attached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from fluke.utils import FederationObserver
from torch.nn import CrossEntropyLoss

from peers.network import Network, tensors, values
from peers.task import FOREVER, Session


class Dealt(Server):
    """The server, with the task's cohorts."""

    cohorts: Iterator[list[int]]

    def get_eligible_clients(self, eligible_perc: float) -> Sequence[Client]:
        """Return the clients of the next round."""
        return [self.clients[i] for i in next(self.cohorts)]


class RoundEnd(FederationObserver):
    """Tell the session of every round."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def end_round(self, round: int) -> None:
        """See the class."""
        self.session.round_ended()


def main() -> None:
    """Serve the parent's requests."""
    session = Session()
    task = session.task
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    sgd = OptimizerConfigurator({"name": "SGD", "lr": task.lr})
    clients = []
    for index, (x, y) in enumerate(tensors(task)):
        loader = FastDataLoader(
            *(x, y),
            num_labels=task.classes,
            batch_size=task.batch_size,
            shuffle=True,
            skip_singleton=False,
        )
        clients.append(Client(index, loader, None, sgd, CrossEntropyLoss(), task.epochs))
    network = Network(task.parameters)
    server = Dealt(network, None, clients)
    server.cohorts = task.deal()
    federation = FedAVG(len(clients), None, {}, clients=clients, server=server)
    federation.attach(RoundEnd(session))
    session.start(lambda: values(server.model), Network.work)
    federation.run(FOREVER, task.per_round / task.clients)


if __name__ == "__main__":
    main()
