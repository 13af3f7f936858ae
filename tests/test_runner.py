import subprocess
import sys

import pytest
import torch

from fltune.errors import ConfigError, DataError
from fltune.experiment import Experiment
from fltune.federation import StopReason
from fltune.runner import build, constant_loss, load_data, run


def experiment(**changes):
    raw = {
        "data": {"name": "digits", "clients": 12},
        "model": {"name": "mlp", "hidden": [8]},
        "participation": {"kind": "uniform", "per_round": 4},
        "rounds": 4,
        "device": "cpu",
    }
    return Experiment.parse({**raw, **changes})


def test_the_same_seed_gives_the_same_numbers():
    first = run(experiment(seed=3))
    torch.rand(5)  # nobody's business
    again = run(experiment(seed=3))
    assert again.history == first.history
    assert again.metrics == first.metrics
    other = run(experiment(seed=4))
    assert other.metrics["val/loss"] != first.metrics["val/loss"]


def test_a_run_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    run(experiment(model={"name": "mlp", "dropout": 0.5}))
    assert torch.equal(torch.get_rng_state(), state)


def test_result():
    reported = []
    result = run(experiment(eval_every=3, client={"epochs": 2}), on_row=reported.append)
    assert result.stop_reason is StopReason.COMPLETED
    assert result.message == "completed 4 rounds"
    assert result.rounds == 4
    assert [row["round"] for row in result.history] == [3, 4]
    assert reported == result.history
    names = ["train/loss", "val/loss", "val/accuracy", "test/loss", "test/accuracy"]
    assert sorted(result.metrics) == sorted(names)
    assert result.metrics["val/accuracy"] == result.history[-1]["val/accuracy"]
    d = 64 * 8 + 8 + 8 * 10 + 10
    assert result.comm == {"up_bits": 32 * d * 4 * 4, "down_bits": 32 * d * 4 * 4}
    assert result.client_samples == result.history[-1]["client_samples"]
    assert result.client_samples / 2 / 16 == pytest.approx(result.data["size_mean"], rel=0.02)
    assert 1 <= result.participation["tau_avg"] <= result.participation["tau_max"] <= 4
    assert result.strategy == "stacked"
    assert result.seconds > 0


def test_the_test_split_is_only_touched_when_asked():
    result = run(experiment(), test=False)
    assert not any(name.startswith("test/") for name in result.metrics)


def test_methods_of_a_comparison_share_model_data_and_cohorts():
    runs = [
        build(experiment(server={"name": "fedgm", "lr": 3.0}, client={"lr": 0.5})),
        build(experiment(strategy="loop", rounds=9)),
        build(experiment(algorithm={"name": "fedavg", "weighting": "samples"})),
    ]
    for other in runs[1:]:
        assert torch.equal(other.module.x, runs[0].module.x)
        assert torch.equal(other.datamodule.data.order, runs[0].datamodule.data.order)
    cohorts = [[next(iter(r.datamodule.participation)) for _ in range(5)] for r in runs]
    assert cohorts[0] == cohorts[1] == cohorts[2]
    other_seed = build(experiment(seed=1))
    assert not torch.equal(other_seed.module.x, runs[0].module.x)
    assert not torch.equal(other_seed.datamodule.data.order, runs[0].datamodule.data.order)
    assert torch.equal(other_seed.datamodule.data.val.x, runs[0].datamodule.data.val.x)


def test_the_partition_can_be_held_fixed_over_seeds():
    data = {"name": "digits", "clients": 12, "partition_seed": 5}
    one, other = experiment(data=data, seed=0), experiment(data=data, seed=1)
    assert load_data(one.data, 0) is load_data(other.data, 1)


def test_strategies_agree():
    stacked = run(experiment(dtype="float64", strategy="stacked"))
    loop = run(experiment(dtype="float64", strategy="loop"))
    assert loop.metrics == pytest.approx(stacked.metrics, rel=1e-5)
    assert (loop.strategy, stacked.strategy) == ("loop", "stacked")


def test_constant_loss_is_the_entropy_of_the_labels():
    data = load_data(experiment().data, 0)
    assert constant_loss(data) == pytest.approx(2.3, abs=0.01)  # ten classes, nearly balanced


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "mlp", "hidden": [0]}}, r"model: hidden = \[0\]: every size must be"),
        ({"model": {"name": "builtins:list"}}, "model: builtins:list made a list"),
        ({"model": {"name": "torch.nn:BatchNorm1d", "num_features": 64}}, "running statistics"),
    ],
    ids=str,
)
def test_models_that_do_not_build(changes, message):
    with pytest.raises(ConfigError, match=message):
        build(experiment(**changes))


def test_more_clients_than_samples():
    with pytest.raises(DataError, match="5000 clients cannot share 1293 samples"):
        run(experiment(data={"name": "digits", "clients": 5000}))


def test_divergence_is_a_result_with_finite_history():
    result = run(experiment(client={"lr": 1e6}, rounds=30, eval_every=10))
    assert result.stop_reason is StopReason.DIVERGED
    assert "diverged in round" in result.message
    assert result.rounds < 5
    assert not any(name.startswith("test/") for name in result.metrics)


def test_a_short_run_is_not_called_collapsed():
    result = run(experiment(client={"lr": 1e-6}, rounds=2))
    assert result.stop_reason is StopReason.COMPLETED
    slow = run(experiment(client={"lr": 1e-6}, rounds=20, eval_every=20))
    assert slow.stop_reason is StopReason.COLLAPSED
    assert "hardly better than 2.30" in slow.message


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_momentum_bears_a_server_rate_that_breaks_fedavg(seed):
    """Sun et al. (2024), remark 4.5, on digits: at eta = 5 FedAvg collapses; FedGM trains."""

    def at_five(**server):
        settings = {
            "data": {
                "name": "digits",
                "clients": 100,
                "val_fraction": 0.1,
                "partition": {"kind": "dirichlet", "alpha": 0.5},
            },
            "model": {"name": "mlp", "hidden": [64, 32]},
            "participation": {"kind": "uniform", "per_round": 5},
            "client": {"epochs": 3, "batch_size": 8, "lr": 0.2},
            "rounds": 150,
            "eval_every": 5,
            "seed": seed,
            "device": "cpu",
            "server": {"lr": 5.0, **server},
        }
        return run(Experiment.parse(settings), test=False)

    fedavg = at_five(name="fedavg")
    assert fedavg.stop_reason in (StopReason.COLLAPSED, StopReason.DIVERGED)
    assert "collapsed" in fedavg.message or "diverged" in fedavg.message
    fedgm = at_five(name="fedgm", beta=0.95, nu=0.95)
    assert fedgm.stop_reason is StopReason.COMPLETED
    last = [row["val/accuracy"] for row in fedgm.history[-5:]]
    assert sum(last) / 5 > 0.9
    assert last[-1] > 0.9
    assert fedavg.metrics.get("val/accuracy", 0) < 0.5


def test_the_round_loop_imports_without_the_search():
    heavy = "{'ray', 'optuna', 'mlflow', 'pydantic'}"
    code = f"import sys, fltune.federation; assert not {heavy} & set(sys.modules), 'too heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_config_may_be_a_plain_mapping():
    raw = {"data": {"clients": 5}, "model": {"hidden": [8]}, "rounds": 2, "device": "cpu"}
    assert run(raw).metrics == run(Experiment.parse(raw)).metrics
    with pytest.raises(ConfigError, match="rouds: unknown key; did you mean 'rounds'"):
        run({"rouds": 3})
