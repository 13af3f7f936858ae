"""What becomes of BatchNorm's running statistics in rounds."""

import pytest
import torch
from quadratics import trainer
from torch import nn

from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.scaffold import Scaffold
from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import FederatedDataModule, FederatedModule, LocalSGD, RoundCheckpoint
from fltune.federation.losses import cross_entropy
from fltune.participation.trace import Trace
from fltune.runner import build, run
from fltune.server.fedgm import FedGM, FedSGD

SIZES = (5, 1, 4)
"""With batches of two: one sample left over, one sample in all, and none left over."""
START = torch.tensor([0.0] * 6 + [1.0] * 6, dtype=torch.float64)
"""The statistics of :func:`first` before anything has passed through it."""


def dense(momentum=0.1):
    layers = [nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=momentum), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(4, 3))


def first(momentum=0.1):
    """A network whose statistics are those of its inputs, whatever its parameters."""
    return nn.Sequential(nn.BatchNorm1d(6, momentum=momentum), nn.Linear(6, 3))


def conv():
    layers = [nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, (2, 3)), nn.BatchNorm2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(2, 3))


class Job:
    """A run of three clients, built anew as a new process would."""

    def __init__(
        self,
        network=dense,
        cohorts=([0, 1, 2],) * 3,
        policy="average",
        algorithm=None,
        server=None,
        path=None,
        weighting="uniform",
        rounds=None,
        strategy="auto",
        **sgd,
    ):
        random, n = torch.Generator().manual_seed(0), sum(SIZES)
        self.x = torch.randn(n, 6, generator=random, dtype=torch.float64)
        split = Split(self.x, torch.arange(n) % 3)
        held = list(torch.arange(n).split(list(SIZES)))
        data = FederatedData.from_clients(split, split, split, held, 3)
        torch.manual_seed(0)
        sgd = LocalSGD(**{"lr": 0.1, "epochs": 1, "batch_size": 2, **sgd})
        self.module = FederatedModule(
            network().double(),
            cross_entropy,
            algorithm or FedAvg(weighting=weighting),
            sgd,
            3,
            len(cohorts),
            3,
            batch_norm=policy,
            strategy=strategy,
        )
        pattern = Trace([list(c) for c in cohorts]).bind(3, 0)
        self.source = FederatedDataModule(data, pattern, sgd, 0, torch.float64)
        saving = [RoundCheckpoint(path)] if path else []
        server = server or FedSGD()
        self.trainer = trainer(rounds or len(cohorts), server, *saving, limit_val_batches=1.0)

    def fit(self, resume_from=None):
        self.trainer.fit(self.module, self.source, ckpt_path=resume_from, weights_only=True)
        return self

    @property
    def statistics(self):
        return self.module.flat.read_statistics()


def of_inputs(x):
    """Running statistics of one batch, from 0 and 1, with momentum 0.1."""
    return torch.cat([0.1 * x.mean(0), 0.9 + 0.1 * x.var(0)])


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_average_is_that_of_the_cohort_with_its_weights(weighting):
    """Whatever the server optimizer does to the model."""
    options = {"batch_size": None, "cohorts": ([0, 2],), "weighting": weighting}
    job = Job(first, server=FedGM(lr=3.0, beta=0.9, nu=0.5), **options).fit()
    zero, two = of_inputs(job.x[:5]), of_inputs(job.x[6:])
    share = {"uniform": 1 / 2, "samples": 5 / 9}[weighting]
    torch.testing.assert_close(job.statistics, share * zero + (1 - share) * two)


def test_every_client_starts_from_the_global_statistics():
    job = Job(first, ([0, 2], [0, 2]), batch_size=None).fit()
    once = (of_inputs(job.x[:5]) + of_inputs(job.x[6:])) / 2
    batches = once - 0.9 * START  # 0.1 of what the two batches' own statistics average to
    torch.testing.assert_close(job.statistics, 0.9 * once + batches)


def test_an_empty_round_leaves_the_statistics_and_a_single_sample_too():
    once = Job(first, ([0],)).fit().statistics
    assert torch.equal(Job(first, ([0], [])).fit().statistics, once)
    assert torch.equal(Job(first, ([0], [1])).fit().statistics, once)


def test_a_client_without_a_step_keeps_the_statistics_it_got():
    job = Job(first, ([0, 2],), batch_size=None)
    job.source.work.amount = lambda round, clients: torch.tensor([1, 0])
    job.fit()
    torch.testing.assert_close(job.statistics, (of_inputs(job.x[:5]) + START) / 2)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_client_does_not_feel_its_cohort(momentum):
    """Not its statistics either, to the last bit; counters of batches do not leak."""

    def solved(cohort):
        job = Job(lambda: dense(momentum), (cohort,))
        drawn = job.source.cohort(0, cohort)
        problem = job.module.algorithm.local_problem(job.module.x, {}, {}, None)
        solve = job.module.solver.solve
        return solve(problem, drawn.data, drawn.plan, 0.1, drawn.keys)

    together = solved([0, 1, 2])
    for client in range(3):
        alone = solved([client])
        assert torch.equal(alone.statistics[0], together.statistics[client])
        assert torch.equal(alone.end[0], together.end[client])
    assert not torch.equal(together.statistics[0], together.statistics[2])


def test_the_gradient_at_the_start_leaves_no_trace_in_the_statistics():
    """SCAFFOLD's option I passes all samples through the model once more."""
    plain, extra = (
        Job(first, ([0, 2],), algorithm=Scaffold(option=option)).fit() for option in ("II", "I")
    )
    assert torch.equal(plain.statistics, extra.statistics)


@pytest.mark.parametrize("network", [dense, first, conv])
@pytest.mark.parametrize("policy", ["average", "batch_statistics"])
@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_a_client_with_one_sample_ends_no_run(network, policy, batch_size):
    job = Job(network, policy=policy, batch_size=batch_size).fit()
    assert job.module.x.isfinite().all()
    assert job.trainer.callback_metrics["val/loss"].isfinite()
    assert (job.statistics.numel() > 0) == (policy == "average")


def test_validation_goes_by_the_averaged_statistics():
    job = Job(first).fit()
    layer, network = job.module.network[0], job.module.network
    assert torch.equal(layer.running_mean, job.statistics[:6])
    network.eval()
    normal = (job.x - job.statistics[:6]) / (job.statistics[6:] + layer.eps).sqrt()
    expected = network[1](layer.weight * normal + layer.bias)
    torch.testing.assert_close(network(job.x), expected)
    loss = cross_entropy(expected, torch.arange(len(job.x)) % 3).mean()
    torch.testing.assert_close(job.trainer.callback_metrics["val/loss"].double(), loss.detach())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_resumed_run_has_the_same_statistics_bit_for_bit(tmp_path, momentum):
    options = {"network": lambda: dense(momentum), "cohorts": ([0, 1], [2], [], [0, 2], [1, 2])}
    whole = Job(**options, server=FedGM(0.8, 0.9, 0.7)).fit()
    path = tmp_path / "run.ckpt"
    Job(**options, server=FedGM(0.8, 0.9, 0.7), path=path, rounds=2).fit()
    resumed = Job(**options, server=FedGM(0.8, 0.9, 0.7), path=path).fit(path)
    assert torch.equal(resumed.statistics, whole.statistics)
    assert torch.equal(resumed.module.x, whole.module.x)
    start = Job(**options).statistics
    assert not torch.equal(whole.statistics, start)


def test_statistics_are_paid_for():
    with_them, without = (
        Job(first, policy=p).fit().module for p in ("average", "batch_statistics")
    )
    visits = 3 * 3
    assert with_them.bits_up - without.bits_up == visits * 32 * 12
    assert with_them.bits_down - without.bits_down == visits * 32 * 12


def test_batch_norm_is_for_the_loop():
    assert Job().module.solver.strategy == "loop"
    with pytest.raises(ValueError, match=r"layer '1' \(BatchNorm\) would count the padding"):
        Job(strategy="stacked")
    own = nn.Sequential(nn.Linear(6, 3), nn.InstanceNorm1d(3, track_running_stats=True))
    with pytest.raises(ValueError, match=r"layer '1' \(InstanceNorm1d\) would count"):
        Job(lambda: own, strategy="stacked")


# through the config


def experiment(**changes):
    raw = {
        "data": {"name": "digits", "clients": 8},
        "model": {"name": "fltune.models.mlp:FedTorchMLP", "hidden": [8]},
        "client": {"steps": 2, "batch_size": 16},
        "rounds": 2,
        "device": "cpu",
    }
    return Experiment.parse({**raw, **changes})


def tracked(input_shape, num_classes):
    return nn.Sequential(nn.BatchNorm1d(input_shape[0]), nn.Linear(input_shape[0], num_classes))


def test_the_config_says_what_becomes_of_statistics():
    own = {"model": f"{__name__}:tracked"}
    with pytest.raises(ConfigError, match=r"model: layer '0' \(BatchNorm1d\) keeps running stat"):
        build(experiment(**own))
    averaged = run(experiment(**own, batch_norm="average"))
    dropped = run(experiment(**own, batch_norm="batch_statistics"))
    assert averaged.strategy == dropped.strategy == "loop"
    assert averaged.metrics["train/loss"] == dropped.metrics["train/loss"]  # the same training
    assert averaged.metrics["val/loss"] != dropped.metrics["val/loss"]
    with pytest.raises(ConfigError, match="batch_norm: found 'drop'; should be 'refuse', 'batch_s"):
        experiment(batch_norm="drop")


def test_batch_norm_without_statistics_needs_no_policy():
    assert run(experiment()).strategy == "loop"
    with pytest.raises(ConfigError, match=r"model: strategy = 'stacked' pads partial batches"):
        build(experiment(strategy="stacked"))
