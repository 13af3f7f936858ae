"""A panel that grows: who judges depends on the round alone, however the run is made."""

import lightning as L
import pytest
from judged import changed

from fltune.experiment import Experiment
from fltune.federation import chunks
from fltune.federation.quiet import quiet
from fltune.packing import run_pack
from fltune.runner import build, run

GROWTH = {1: 2, 3: 5, 6: None}
ASKED = [2, 2, 5, 5, 5, 12]


def asking(clients, **changes):
    return changed({"val_clients": clients}, **{"rounds": 6, **changes})


@pytest.fixture(scope="module")
def grown():
    return run(asking(GROWTH))


def asked(result):
    return [row["val/clients"] for row in result.history]


@pytest.mark.parametrize("clients", [2, 5, None])
def test_a_round_is_judged_as_by_a_fixed_panel_of_its_size(grown, clients):
    fixed = run(asking(clients))
    assert asked(grown) == ASKED
    for row, whole, count in zip(grown.history, fixed.history, ASKED, strict=True):
        assert row["train/loss"] == whole["train/loss"]
        assert "val/clients" not in whole
        if count == (clients or 12):
            for name in ("val/accuracy", "val/loss", "val/accuracy_se", "val/loss_se"):
                assert row[name] == pytest.approx(whole[name], rel=1e-5)
    if clients is None:
        assert grown.by_client["client"] == fixed.by_client["client"]
        assert grown.by_client["correct"] == fixed.by_client["correct"]
        assert grown.data == fixed.data
        assert grown.metrics["test/loss"] == fixed.metrics["test/loss"]


def test_it_does_not_mind_small_chunks_nor_rounds_without_evaluation(grown, monkeypatch):
    monkeypatch.setattr(chunks, "EVALUATION_CHUNK", 7)
    seldom = run(asking(GROWTH, eval_every=2))
    assert [row["round"] for row in seldom.history] == [2, 4, 6]
    for row, whole in zip(seldom.history, grown.history[1::2], strict=True):
        assert row["val/clients"] == whole["val/clients"]
        assert row["val/loss"] == pytest.approx(whole["val/loss"], rel=1e-5)


def test_one_client_at_first_has_no_standard_error_yet():
    result = run(asking({1: 1, 4: 3}))
    assert ["val/loss_se" in row for row in result.history] == [False] * 3 + [True] * 3
    assert len(result.by_client["client"]) == result.data["val_clients"] == 3


class CutOff(L.Callback):
    """Kills the run in the middle of a round."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if batch.round == 4:
            raise RuntimeError("killed")


def test_a_resumed_run_asks_the_same_clients(grown, tmp_path):
    path = tmp_path / "run.ckpt"
    cut = build(Experiment.parse(asking(GROWTH)), callbacks=[CutOff()], checkpoint=path)
    with pytest.raises(RuntimeError, match="killed"), quiet():
        cut.trainer.fit(cut.module, cut.datamodule)
    again = run(asking(GROWTH), checkpoint=path, resume=True)
    assert again.history == grown.history
    assert again.by_client == grown.by_client


@pytest.mark.parametrize(("rounds", "last"), [(2, 2), (4, 5), (6, 12)])
def test_a_run_that_has_ended_is_validated_by_those_of_its_last_round(rounds, last):
    built = build(Experiment.parse(asking(GROWTH, rounds=rounds)))
    with quiet():
        built.trainer.fit(built.module, built.datamodule)
        (found,) = built.trainer.validate(built.module, built.datamodule, verbose=False)
    assert found["val/clients"] == last
    assert found["val/loss"] == pytest.approx(built.history.rows[-1]["val/loss"])
    assert len(built.scores.latest["client"]) == last


def test_runs_of_a_pack_and_of_several_processes_ask_the_same(grown):
    rates = (0.2, 0.05)
    configs = [Experiment.parse(asking(GROWTH, client={"lr": lr})) for lr in rates]
    for packed in run_pack(configs):
        assert asked(packed) == ASKED
    first = run_pack(configs)[0]
    for row, whole in zip(first.history, grown.history, strict=True):
        assert row["val/loss"] == pytest.approx(whole["val/loss"], rel=1e-4)
    assert first.by_client["samples"] == grown.by_client["samples"]
    assert run(asking(GROWTH), processes=2).history == grown.history
