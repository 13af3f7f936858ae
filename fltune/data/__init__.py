"""Federated data: what there is, and which client holds what.

A data set (``digits``, ``idx_images``, ``cifar`` ...) loads whole tensors, ``dataset`` holds out
validation samples, ``partition`` deals the rest to clients, and ``federated`` holds the result the
way the round loop reads it. This module only knows the names, so that listing them imports nothing;
a data set is a small object of hyperparameters until ``load()``, and what reads it (scikit-learn,
scipy, Pillow) is imported only then.
"""

from fltune.registry import Registry

DATASETS = Registry(
    "data set",
    {
        "digits": "fltune.data.digits:Digits",
        "mnist": "fltune.data.idx_images:MNIST",
        "fashion_mnist": "fltune.data.idx_images:FashionMNIST",
        "emnist": "fltune.data.idx_images:EMNIST",
        "emnist_by_writer": "fltune.data.by_writer:EMNISTByWriter",
        "cifar10": "fltune.data.cifar:CIFAR10",
        "cifar100": "fltune.data.cifar:CIFAR100",
        "svhn": "fltune.data.svhn:SVHN",
        "synthetic": "fltune.data.synthetic:Synthetic",
        "sst2": "fltune.data.sst2:SST2",
        "npz": "fltune.data.arrays:Npz",
        "image_folder": "fltune.data.image_folder:ImageFolder",
    },
    bases=("fltune.data.dataset:Dataset",),
)

PARTITIONS = Registry(
    "partition",
    {
        "iid": "fltune.data.partition:Iid",
        "dirichlet_class": "fltune.data.dirichlet_class:DirichletClass",
        "dirichlet_client_normalised": "fltune.data.dirichlet_client:DirichletClientNormalised",
        "dirichlet_client_equal": "fltune.data.dirichlet_client:DirichletClientEqual",
        "dirichlet_client_lognormal": "fltune.data.dirichlet_client:DirichletClientLognormal",
        "shards": "fltune.data.shards:Shards",
        "natural": "fltune.data.natural:Natural",
        "file": "fltune.data.from_file:FromFile",
    },
    aliases={"dirichlet": "dirichlet_class", "by_writer": "natural"},
    bases=("fltune.data.partition:Partition",),
)
