"""Federated data: what there is, and which client holds what.

``datasets`` loads whole data sets as tensors, ``partition`` deals their samples to clients, and
``federated`` holds the result the way the round loop reads it. This module only knows the names,
so that listing them imports nothing.
"""

from fltune.registry import Registry

DATASETS = Registry(
    "data set",
    {
        "digits": "fltune.data.datasets:Digits",
        "mnist": "fltune.data.datasets:MNIST",
        "fashion_mnist": "fltune.data.datasets:FashionMNIST",
    },
)

PARTITIONS = Registry(
    "partition",
    {
        "iid": "fltune.data.partition:Iid",
        "dirichlet_class": "fltune.data.partition:DirichletClass",
    },
    aliases={"dirichlet": "dirichlet_class"},
)
