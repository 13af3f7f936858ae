"""Metrics client by client: they add up to the pooled ones, and their spread is its error."""

import lightning as L
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from judged import RAW, changed

from fltune.experiment import Experiment
from fltune.federation import chunks
from fltune.federation.evaluation import ClientScores, standard_error
from fltune.packing import run_pack
from fltune.runner import build, run

NATURAL = {"data": {"name": "synthetic", "clients": 12, "val_fraction": 0.2}}


@pytest.mark.parametrize("raw", [RAW, {**RAW, **NATURAL}], ids=["of clients", "of a natural pool"])
@pytest.mark.parametrize("chunk", [4096, 7])
def test_what_clients_say_adds_up_to_the_pooled_metrics(raw, chunk, monkeypatch):
    monkeypatch.setattr(chunks, "EVALUATION_CHUNK", chunk)
    result = run(raw)
    table = {name: np.array(column) for name, column in result.by_client.items()}
    n = table["samples"]
    assert n.sum() == result.data["val_samples"]
    assert len(n) == result.data["val_clients"] <= 12
    accuracy = table["correct"].sum() / n.sum()
    assert result.metrics["val/accuracy"] == pytest.approx(accuracy, rel=1e-6)
    loss = (table["loss"] * n).sum() / n.sum()
    assert result.metrics["val/loss"] == pytest.approx(loss, rel=1e-5)
    rest = table["correct"] - accuracy * n
    error = np.sqrt(len(n) / (len(n) - 1) * (rest**2).sum()) / n.sum()
    assert result.metrics["val/accuracy_se"] == pytest.approx(error, rel=1e-5)
    assert all(row["val/loss_se"] > 0 for row in result.history)


def test_a_clients_numbers_are_those_of_its_own_samples():
    built = build(Experiment.parse(RAW))
    built.trainer.fit(built.module, built.datamodule)
    data, network = built.datamodule.data, built.module.network.eval()
    table = built.scores.latest
    for i, loss, correct in zip(table["client"], table["loss"], table["correct"], strict=True):
        own = data.val_owner == i
        with torch.no_grad():
            output = network(data.val.x[own])
        assert correct == int((output.argmax(1) == data.val.y[own]).sum())
        mean = torch.nn.functional.cross_entropy(output, data.val.y[own]).item()
        assert loss == pytest.approx(mean, rel=1e-5)


def test_a_pool_knows_no_clients_and_trains_the_same():
    pool = run(changed({"val_from": "pool"}))
    assert pool.by_client == {}
    assert not [key for row in pool.history for key in row if key.endswith("_se")]


def test_a_panel_changes_what_is_validated_and_nothing_else():
    all_of_them, few = run(RAW), run(changed({"val_clients": 3}))
    rows = zip(few.history, all_of_them.history, strict=True)
    assert all(a["train/loss"] == b["train/loss"] for a, b in rows)
    for name in ("test/accuracy", "test/loss"):
        assert few.metrics[name] == all_of_them.metrics[name]
    for name in ("samples", "correct"):
        whole = dict(zip(all_of_them.by_client["client"], all_of_them.by_client[name], strict=True))
        assert few.by_client[name] == [whole[i] for i in few.by_client["client"]]
    assert len(few.by_client["client"]) == 3
    assert few.metrics["val/accuracy"] != all_of_them.metrics["val/accuracy"]


def test_one_client_has_no_standard_error():
    result = run(changed({"val_clients": 1}))
    assert len(result.by_client["client"]) == 1
    assert not [name for name in result.metrics if name.endswith("_se")]


def test_a_regression_has_losses_alone():
    scores = ClientScores(torch.tensor([3, 0, 3, 0]), classes=False)
    logged = {}

    class Module(L.LightningModule):
        def log(self, name, value, **more):
            logged[name] = value

    module = Module()
    scores.on_validation_epoch_start(None, module)
    for part in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0])):
        batch = (torch.zeros(len(part), 1), torch.zeros(len(part), 1))
        outputs = {"losses": part, "output": torch.zeros(len(part), 1)}
        scores.on_validation_batch_end(None, module, outputs, batch, 0)
    scores.on_validation_epoch_end(None, module)
    assert scores.latest == {"client": [0, 3], "samples": [2, 2], "loss": [3.0, 2.0]}
    assert logged == {"val/loss_se": pytest.approx(0.5)}  # std of (3, 2) is sqrt(1/2), over sqrt 2


def test_the_last_evaluation_survives_a_checkpoint(tmp_path):
    path = tmp_path / "run.ckpt"
    whole = run(RAW, checkpoint=path)
    again = run(RAW, checkpoint=path, resume=True)
    assert again.by_client == whole.by_client
    assert again.history == whole.history


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.integers(1, 50))
def test_clients_of_one_size_have_the_textbook_error_of_their_means(means, size):
    means = np.array(means)
    samples = np.full(len(means), float(size))
    expected = means.std(ddof=1) / np.sqrt(len(means))
    assert standard_error(means * size, samples) == pytest.approx(expected, abs=1e-9)


def test_it_is_the_spread_of_the_mean_over_clients_drawn_anew():
    # 40 of many clients, sizes 1 to 20, larger clients are better. Of 4000 repetitions the spread
    # of the weighted mean is known to 3 % at 2.7 sigma (1 / sqrt(2 * 4000) each); the estimate is
    # biased by O(1/C), some percent.
    rng = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(4000):
        samples = rng.integers(1, 21, 40).astype(float)
        totals = samples * (0.3 + 0.02 * samples + rng.normal(0, 0.2, 40))
        found.append(totals.sum() / samples.sum())
        errors.append(standard_error(totals, samples))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.08)


def test_a_diverged_model_has_no_number_and_warns_of_nothing():
    with np.errstate(all="raise"):
        assert np.isnan(standard_error(np.array([1.0, np.inf]), np.ones(2)))


def test_runs_of_a_pack_ask_their_clients_too():
    configs = [Experiment.parse(changed(client={"lr": lr})) for lr in (0.2, 0.05)]
    for packed, config in zip(run_pack(configs), configs, strict=True):
        alone = run(config)
        assert packed.by_client["samples"] == alone.by_client["samples"]
        assert packed.by_client["loss"] == pytest.approx(alone.by_client["loss"], rel=1e-4)
        assert packed.metrics["val/loss_se"] == pytest.approx(alone.metrics["val/loss_se"])
