"""Server optimizers: Lightning callbacks that move the model along the pseudo-gradient."""

from fltune.registry import Registry

SERVERS = Registry(
    "server optimizer",
    {
        "fedavg": "fltune.server.fedgm:FedSGD",
        "fedgm": "fltune.server.fedgm:FedGM",
        "fedavgm": "fltune.server.fedgm:FedAvgM",
        "fednag": "fltune.server.fedgm:FedNAG",
        "multistage": "fltune.server.multistage:MultistageFedGM",
        "fedadagrad": "fltune.server.adaptive:FedAdagrad",
        "fedadam": "fltune.server.adaptive:FedAdam",
        "fedyogi": "fltune.server.adaptive:FedYogi",
        "shb": "fltune.server.quasi_hyperbolic:SHB",
        "nag": "fltune.server.quasi_hyperbolic:NAG",
        "snv": "fltune.server.quasi_hyperbolic:SNV",
        "pid": "fltune.server.quasi_hyperbolic:PID",
        "accsgd": "fltune.server.quasi_hyperbolic:AccSGD",
        "triple_momentum": "fltune.server.quasi_hyperbolic:TripleMomentum",
        "robust_momentum": "fltune.server.quasi_hyperbolic:RobustMomentum",
    },
    aliases={"fedsgd": "fedavg"},
    bases=("fltune.server.base:ServerOptimizer", "torch.optim:Optimizer"),
)
