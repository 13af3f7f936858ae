"""pfl-research: its simulated backend in one process, users' tensors sliced into batches once.

It does not shuffle: a user's batches are the same in every epoch.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

from peers.network import Network, tensors, values
from peers.task import FOREVER, Session


class Trained(Network):
    """The network with the two functions that the library asks of a model."""

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return what the users minimize."""
        return F.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Return nothing: nothing is evaluated."""
        return {}


class RoundEnd(TrainingProcessCallback):
    """Tell the session of every round."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Go on, with nothing to report."""
        self.session.round_ended()
        return False, Metrics()


def main() -> None:
    """Serve the parent's requests."""
    session = Session()
    task = session.task
    network = Trained(task.parameters)
    average = torch.optim.SGD(network.parameters(), lr=1.0)
    model = PyTorchModel(network, torch.optim.SGD, average)
    users = [PyTorchTensorDataset(list(own)) for own in tensors(task)]
    cohorts = itertools.chain.from_iterable(task.deal())
    data = FederatedDataset(users.__getitem__, lambda: next(cohorts))
    session.start(lambda: values(network), Network.work)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=FOREVER,
            evaluation_frequency=FOREVER,
            train_cohort_size=task.per_round,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_num_epochs=task.epochs,
            local_learning_rate=task.lr,
            local_batch_size=task.batch_size,
        ),
        callbacks=[RoundEnd(session)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
