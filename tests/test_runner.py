import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from quadratics import quadratics
from small_digits import cut_off_and_resumed, experiment

from fltune.errors import ConfigError, DataError
from fltune.experiment import Experiment
from fltune.federation import StopReason
from fltune.federation.quiet import quiet
from fltune.participation.trace import read_rounds
from fltune.pieces import build_participation, load_data
from fltune.runner import build, constant_loss, largest_share, run, save_partition


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
    seen = result.participation
    assert 1 <= seen["tau_avg"] <= seen["tau_max"] <= 4
    assert 4 / 12 < seen["coverage"] <= 1
    assert 0 < seen["count_cv"] < seen["fairness"] <= 2  # 16 visits of 12 clients, 4 at most each
    assert result.strategy == "dense"
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


def model_after(config):
    built = build(config)
    with quiet():
        built.trainer.fit(built.module, built.datamodule)
    return built.module.x


@pytest.mark.parametrize("suffix", [".json", ".csv"])
@pytest.mark.parametrize(
    ("pattern", "extra"),
    [
        ({"kind": "uniform", "per_round": 4}, {}),
        ({"kind": "bernoulli", "probability": 0.05}, {}),
        (
            {"kind": "with_replacement", "per_round": 16, "multiplicity": True},
            {"multiplicity": True},
        ),
    ],
    ids=lambda p: p.get("kind"),
)
def test_a_recorded_run_is_replayed_bit_for_bit(tmp_path, pattern, extra, suffix):
    path = tmp_path / "new" / f"trace{suffix}"
    algorithm = {"name": "fedavg", "weighting": "samples"}
    server = {"name": "fedgm", "beta": 0.5}
    settings = {"algorithm": algorithm, "server": server, "rounds": 6, "dtype": "float32"}
    original = experiment(participation=pattern, **settings)
    first = run(original, save_participation=path)
    rounds = read_rounds(path)
    assert len(rounds) == 6
    assert pattern["kind"] != "bernoulli" or [] in rounds
    assert not extra or any(len(set(cohort)) < len(cohort) for cohort in rounds)
    trace = {"kind": "trace", "file": str(path), **extra}
    replayed = experiment(participation=trace, **settings)
    second = run(replayed)
    for name in ("history", "metrics", "comm", "participation", "client_samples"):
        assert getattr(second, name) == getattr(first, name), name
    assert torch.equal(model_after(replayed), model_after(original))


def test_a_resumed_run_saves_all_its_cohorts(tmp_path):
    checkpoint, trace = tmp_path / "run.ckpt", tmp_path / "trace.json"
    cut_off_and_resumed(experiment(), 3, checkpoint, save_participation=trace)
    pattern = build(experiment()).datamodule.participation
    assert read_rounds(trace) == [next(iter(pattern)) for _ in range(4)]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_run_whose_validation_loss_is_no_number_has_diverged(bad):
    data = load_data(experiment().data, 0)
    spoilt = replace(data, val=replace(data.val, x=torch.full_like(data.val.x, bad)))
    result = run(experiment(rounds=3), data=spoilt)
    assert result.stop_reason is StopReason.DIVERGED
    assert result.message.startswith("diverged by round 2: validation loss ")


def test_a_diverged_run_saves_the_rounds_that_it_made(tmp_path):
    trace = tmp_path / "trace.json"
    result = run(experiment(client={"lr": 1e6}, rounds=30), save_participation=trace)
    assert result.stop_reason is StopReason.DIVERGED
    assert len(read_rounds(trace)) == result.rounds < 5


def test_a_trace_that_cannot_be_saved_stops_the_run_before_it_starts(tmp_path):
    (tmp_path / "file").write_text("")
    reported = []
    for path, message in [
        (tmp_path / "trace.txt", "save_participation: .*found suffix '.txt'"),
        (tmp_path / "file" / "trace.json", "save_participation: .*file"),
    ]:
        with pytest.raises(ConfigError, match=message):
            run(experiment(), on_row=reported.append, save_participation=path)
    delayed = {"kind": "asynchronous", "concurrency": 3, "buffer": 2}
    with pytest.raises(ConfigError, match="a trace holds no delays"):
        run(
            experiment(participation=delayed, algorithm="fedbuff"),
            save_participation=tmp_path / "t.json",
        )
    assert not reported


def test_groups_may_follow_the_labels():
    groups = {"kind": "cycp", "groups": 3, "per_round": 2, "formation": "sorted_by_label"}
    data = {"name": "digits", "clients": 12, "partition": {"kind": "dirichlet", "alpha": 0.1}}
    built = build(experiment(data=data, participation=groups))
    majority = built.datamodule.data.histograms().argmax(1)
    members = built.datamodule.participation.members
    labels = [majority[group].tolist() for group in members]
    assert [y for group in labels for y in group] == sorted(majority.tolist())
    assert run(experiment(data=data, participation=groups)).participation["coverage"] > 0.3


def test_labels_need_classes():
    groups = {"kind": "groups", "groups": 3, "per_round": 1, "formation": "sorted_by_label"}
    regression = quadratics([[[1.0]]] * 3, [[0.0], [1.0], [2.0]])
    with pytest.raises(ConfigError, match="participation: formation = 'sorted_by_label' needs cl"):
        build_participation(experiment(participation=groups), regression)


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


def test_a_slow_start_is_not_called_collapsed():
    """A model may be right three times as often as a constant while its loss is as poor."""
    slow = run(experiment(client={"lr": 0.05, "epochs": 2}, rounds=20, eval_every=20))
    assert slow.metrics["val/loss"] > 0.75 * 2.3
    assert slow.metrics["val/accuracy"] > 0.25
    assert (slow.stop_reason, slow.message) == (StopReason.COMPLETED, "completed 20 rounds")


def test_the_largest_share_is_what_the_most_frequent_class_gets_right():
    data = load_data(experiment().data, 0)
    most = max(int((data.val.y == c).sum()) for c in range(10))
    assert largest_share(data) == pytest.approx(most / len(data.val))
    assert largest_share(quadratics([[[1.0]]], [[1.0]])) == 1.0


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


@pytest.mark.parametrize(
    "data",
    [
        {"name": "digits", "clients": 12, "partition": {"kind": "dirichlet", "alpha": 0.1}},
        {"name": "digits", "clients": 12, "partition_seed": 4},
        {
            "name": "digits",
            "clients": 12,
            "partition": {"kind": "dirichlet_client_lognormal", "allocation": "reuse"},
        },
        {"name": "synthetic", "clients": 12},
    ],
    ids=["dirichlet", "fixed seed", "overlapping", "natural"],
)
def test_a_saved_partition_gives_the_same_run(tmp_path, data):
    path = tmp_path / "part.json"
    recorded = experiment(data=data, seed=3, client={"epochs": 2, "lr": 0.1})
    save_partition(recorded, path)
    reread = recorded.with_values(
        {"data.partition": {"kind": "file", "path": str(path)}, "data.partition_seed": 99}
    )
    runs = [build(e) for e in (recorded, reread)]
    for r in runs:
        r.trainer.fit(r.module, r.datamodule)
    assert runs[0].history.rows == runs[1].history.rows
    assert torch.equal(runs[0].module.x, runs[1].module.x)
    assert runs[0].datamodule.data.report() == runs[1].datamodule.data.report()


def test_a_partition_saved_for_other_data_is_refused(tmp_path):
    path = tmp_path / "part.json"
    save_partition(experiment(), path)
    other = experiment(
        data={"clients": 12, "val_fraction": 0.2, "partition": {"kind": "file", "path": str(path)}}
    )
    with pytest.raises(DataError, match=r"made for 1293 training samples \(name digits, val"):
        run(other)


def test_one_class_is_nothing_to_tell_apart(tmp_path):
    np.savez(tmp_path / "one.npz", x=np.ones((40, 3), np.float32), y=np.zeros(40, np.int64))
    data = {"name": "npz", "path": str(tmp_path / "one.npz"), "clients": 4}
    with pytest.raises(DataError, match="data: npz has one class; a classification needs two"):
        run(Experiment.parse({"data": data, "rounds": 1}))


def test_synthetic_data_has_the_configs_clients():
    data = load_data(experiment(data={"name": "synthetic", "clients": 7}).data, 0)
    assert (data.num_clients, data.val_by_client, data.input_shape) == (7, True, (60,))


@pytest.fixture
def regression(tmp_path):
    """A regression of one number on rows, y = 2 x_0 - x_1."""
    x = np.random.default_rng(0).standard_normal((90, 3))
    np.savez(tmp_path / "rows.npz", x=x, y=2 * x[:, 0] - x[:, 1])
    data = {"name": "npz", "path": str(tmp_path / "rows.npz"), "clients": 6}
    return {"data": data, "loss": "squared_error", "dtype": "float64", "rounds": 20}


def test_linear_fits_a_regression_with_every_strategy(regression):
    client = {"lr": 0.2, "steps": 5, "batch_size": 7}
    base = {**regression, "model": "linear", "client": client}
    every = {s: run({**base, "strategy": s}) for s in ("loop", "stacked", "dense")}
    assert every["loop"].metrics["test/loss"] < 1e-6
    for result in every.values():
        assert result.metrics == pytest.approx(every["loop"].metrics, rel=1e-9)
    exact = {"name": "fedprox", "mu": 0.1, "exact": True}
    assert run({**base, "algorithm": exact}).metrics["test/loss"] < 1e-6


def test_a_model_for_classes_says_that_a_regression_has_none(regression):
    with pytest.raises(ConfigError, match="num_classes is None: take linear, or a model of your"):
        run(regression)


def test_the_final_model_can_be_had(tmp_path):
    """It is the one that was tested: a network of its kind gives the same answers."""
    path = tmp_path / "models" / "mlp.pt"
    job = build(experiment())
    result = run(experiment(), save_model=path)
    saved = torch.load(path, weights_only=True)
    assert saved.keys() == result.state_dict.keys()
    assert all(torch.equal(v, result.state_dict[k]) for k, v in saved.items())
    network, test = job.module.network.eval(), job.datamodule.data.test
    network.load_state_dict(saved)
    right = (network(test.x).argmax(1) == test.y).float().mean()
    assert right.item() == pytest.approx(result.metrics["test/accuracy"])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"save_model: .*file"):
        run(experiment(), save_model=tmp_path / "file" / "mlp.pt")
