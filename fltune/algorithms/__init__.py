"""Federated algorithms, one file each; see :mod:`fltune.algorithms.base` for the contract."""

from fltune.registry import Registry

ALGORITHMS = Registry(
    "algorithm",
    {
        "fedavg": "fltune.algorithms.fedavg:FedAvg",
    },
)
