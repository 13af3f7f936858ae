"""Federated algorithms, one file each; see :mod:`fltune.algorithms.base` for the contract."""

from fltune.registry import Registry

ALGORITHMS = Registry(
    "algorithm",
    {
        "fedavg": "fltune.algorithms.fedavg:FedAvg",
        "fedsum_b": "fltune.algorithms.fedsum:FedSUMB",
        "fedsum": "fltune.algorithms.fedsum:FedSUM",
        "fedsum_cr": "fltune.algorithms.fedsum:FedSUMCR",
        "scaffold": "fltune.algorithms.scaffold:Scaffold",
        "mifa": "fltune.algorithms.mifa:MIFA",
        "fedvarp": "fltune.algorithms.fedvarp:FedVARP",
        "fedau": "fltune.algorithms.fedau:FedAU",
        "fedawe": "fltune.algorithms.fedawe:FedAWE",
        "fedpaq": "fltune.algorithms.fedpaq:FedPAQ",
        "fedcom": "fltune.algorithms.fedcom:FedCOM",
        "fedgate": "fltune.algorithms.fedgate:FedGATE",
        "fedcomgate": "fltune.algorithms.fedcomgate:FedCOMGATE",
        "fedcomgate_sparse": "fltune.algorithms.fedcomgate_sparse:SparseFedCOMGATE",
        "fedprox": "fltune.algorithms.fedprox:FedProx",
        "feddc": "fltune.algorithms.feddc:FedDC",
        "fednova": "fltune.algorithms.fednova:FedNova",
        "fedcdr": "fltune.algorithms.fedcdr:FedCDR",
        "feddr": "fltune.algorithms.fedcdr:FedDR",
        "autonomous": "fltune.algorithms.autonomous:Autonomous",
        "fedbuff": "fltune.algorithms.fedbuff:FedBuff",
    },
    bases=("fltune.algorithms.base:Algorithm",),
)
