"""Evaluation: in chunks that fit, whose size no metric depends on."""

import pytest
import torch
from torch import nn

from fltune.data.federated import Split
from fltune.experiment import Experiment
from fltune.federation import chunks
from fltune.federation.chunks import (
    EVALUATION_BYTES,
    EVALUATION_CHUNK,
    Chunks,
    GrowingChunks,
    MixedChunks,
    samples_at_once,
)
from fltune.runner import build, run


def images(n=10):
    return Split(torch.randn(n, 3, 8, 8), torch.arange(n) % 2)


def test_wide_layers_make_small_chunks():
    network = nn.Sequential(nn.Conv2d(3, 512, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512 * 64, 2))
    assert samples_at_once(network, images()) == EVALUATION_BYTES // (4 * 512 * 64)
    network[0] = nn.Conv2d(3, 1, 1)
    network[3] = nn.Linear(64, 2)
    assert samples_at_once(network, images()) == EVALUATION_CHUNK
    assert samples_at_once(network, images(0)) == EVALUATION_CHUNK


def test_one_sample_at_least(monkeypatch):
    monkeypatch.setattr(chunks, "EVALUATION_BYTES", 10)
    assert samples_at_once(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), images()) == 1


def test_looking_leaves_no_trace():
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2))
    before = {k: v.clone() for k, v in network.state_dict().items()}
    samples_at_once(network, images())
    assert network.training
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())
    assert not any(m._forward_hooks for m in network.modules())


def test_chunks_are_the_split():
    split = images()
    parts = list(Chunks(split, 4))
    assert [len(y) for _, y in parts] == [4, 4, 2]
    assert torch.equal(torch.cat([x for x, _ in parts]), split.x)
    assert parts[0][0].data_ptr() == split.x.data_ptr()


def test_growing_chunks_are_as_many_as_count_each_time():
    split, counts = images(), iter([3, 10])
    growing = GrowingChunks(split, 4, lambda: next(counts))
    assert [len(y) for _, y in growing] == [3]
    assert torch.equal(torch.cat([x for x, _ in growing]), split.x)


def test_mixed_chunks_are_alike_whatever_the_order_of_a_file():
    y = torch.arange(10).repeat_interleave(100)  # one class after another
    parts = list(MixedChunks(Split(y.double().unsqueeze(1), y)))
    assert [len(y) for _, y in parts] == [250] * 4
    assert all(torch.equal(x[:, 0], own.double()) for x, own in parts)
    assert torch.equal(torch.cat([own for _, own in parts]).sort().values, y)
    for _, own in parts:
        assert own.bincount(minlength=10).min() >= 10


def test_a_network_that_normalises_by_batch_is_judged_by_mixed_ones():
    """Clients that are judged one by one keep their order."""
    raw = {"rounds": 1, "model": {"name": "mlp_fedtorch", "hidden": [4]}}
    for val_from, kind in (("pool", MixedChunks), ("clients", Chunks)):
        job = build(Experiment.parse({**raw, "data": {"clients": 5, "val_from": val_from}}))
        job.trainer.fit(job.module, job.datamodule)
        assert type(job.datamodule.val_dataloader()) is kind
        assert type(job.datamodule.test_dataloader()) is MixedChunks


@pytest.mark.parametrize("model", ["mlp", "mlp_fedtorch"])
@pytest.mark.parametrize("size", [1, 100, 10**9])
def test_metrics_do_not_depend_on_it(size, model, monkeypatch):
    raw = {"rounds": 2, "data": {"clients": 5}, "dtype": "float64", "model": {"name": model}}
    experiment = Experiment.parse(raw)
    whole = run(experiment).metrics
    monkeypatch.setattr(chunks, "EVALUATION_BYTES", 512 * size)
    assert run(experiment).metrics == pytest.approx(whole, rel=1e-5)
