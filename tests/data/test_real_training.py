"""The papers' networks learn from real MNIST and CIFAR-10, where these lie beside the checkout."""

import math

import pytest

from fltune.experiment import Experiment
from fltune.runner import run


def test_the_mnist_cnn_passes_95_percent_well_within_60_rounds(real_data_root):
    """Cohorts of 20 out of 100 clients, Dirichlet 0.5: the first pattern of the FedSUM paper."""
    result = run(
        Experiment.parse(
            {
                "data": {
                    "name": "mnist",
                    "root": str(real_data_root),
                    "clients": 100,
                    "partition": {"kind": "dirichlet_client_normalised", "alpha": 0.5},
                },
                "model": "cnn_mnist",
                "participation": {"kind": "uniform", "per_round": 20},
                "client": {"lr": 0.2, "steps": 10, "batch_size": 20},
                "rounds": 28,
                "eval_every": 28,
            }
        )
    )
    assert result.metrics["test/accuracy"] > 0.95
    assert (result.data["train_samples"], result.data["test_samples"]) == (54_000, 10_000)


@pytest.mark.parametrize(
    ("model", "client"),
    [
        ("cnn_cifar", {"lr": 0.15, "steps": 5, "batch_size": 32}),
        ("resnet20", {"lr": 0.02, "steps": 5, "batch_size": 16}),
    ],
)
def test_the_loss_falls_on_augmented_cifar10(real_cifar_root, model, client):
    result = run(
        Experiment.parse(
            {
                "data": {
                    "name": "cifar10",
                    "root": str(real_cifar_root),
                    "verify": False,
                    "limit": 2000,
                    "test_limit": 200,
                    "crop_padding": 4,
                    "flip": True,
                    "clients": 10,
                },
                "model": model,
                "participation": {"kind": "uniform", "per_round": 3},
                "client": client,
                "rounds": 10,
            }
        )
    )
    losses = [row["train/loss"] for row in result.history]
    assert len(losses) == 10
    assert sum(losses[-3:]) < sum(losses[:3])
    assert result.metrics["val/loss"] < math.log(10)  # better than a constant
