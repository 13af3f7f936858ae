"""FedPAQ, FedCOM, the FedGATE family and the compressors against numbers computed elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from quadratics import fit, quadratics
from test_golden import assert_close, both, golden

from fltune.algorithms.base import Algorithm
from fltune.algorithms.fedcom import FedCOM
from fltune.algorithms.fedcomgate import FedCOMGATE
from fltune.algorithms.fedcomgate_sparse import SparseFedCOMGATE
from fltune.algorithms.fedgate import FedGATE
from fltune.algorithms.fedpaq import FedPAQ
from fltune.federation import LocalSGD
from fltune.federation.compression import QSGD, Affine, Compressor, Grid, NoisyAffine, TopK
from fltune.server.fedgm import FedSGD


@dataclass(frozen=True)
class RecordedQSGD(QSGD):
    recorded: Iterator = iter(())

    def uniforms(self, v, keys):
        return torch.tensor(next(self.recorded), dtype=v.dtype)


@dataclass(frozen=True)
class RecordedAffine(NoisyAffine):
    recorded: Iterator = iter(())

    def uniforms(self, v, keys):
        return torch.tensor(next(self.recorded), dtype=v.dtype)


def method_of(case):
    h = case["hyper"]
    if "memory" in h:
        return SparseFedCOMGATE(feedback=h["memory"], tracker=h["tracker"])
    if case["id"].startswith("fedcomgate"):
        return FedCOMGATE(divide_by=h.get("divide_by", "active"))
    name = case["id"].replace("_", " ").split()[0]
    return {"fedpaq": FedPAQ, "fedcom": FedCOM, "fedgate": FedGATE}[name]()


def compressor_of(case):
    h = case["hyper"]
    if "k" in h:
        return TopK(k=h["k"])
    return {
        "identity": lambda: Compressor(),
        "grid0.25": lambda: Grid(0.25),
        "qsgd l2 s=4": lambda: RecordedQSGD(levels=4, recorded=iter(case["inputs"]["uniforms"])),
    }[h.get("Q", "identity")]()


def reproduce(case, strategy, algorithm=None):
    h = case["hyper"]
    recorded, module = fit(
        quadratics(**case["problem"]),
        FedSGD(h.get("gamma", 1.0)),
        x0=case["x0"],
        cohorts=case["participation"],
        algorithm=algorithm or method_of(case),
        sgd=LocalSGD(h["local_lr"], steps=h["local_steps"], batch_size=None),
        compressor=compressor_of(case),
        strategy=strategy,
    )
    return recorded, module


def check(case, recorded):
    assert_close(torch.stack(recorded.x), [row["x"] for row in case["trajectory"]])
    for row, d, clients in zip(case["trajectory"], recorded.d, recorded.clients, strict=True):
        if "server" in row:
            assert_close(d / case["hyper"]["local_lr"], row["server"]["Delta_q"])
        for name, expected in row.get("clients", {}).items():
            assert_close(clients[name], expected)


CASES = [pytest.param(c, id=c["id"]) for c in golden("compression")["cases"]]


@both
@pytest.mark.parametrize("case", CASES)
def test_trajectory(case, strategy):
    recorded, _ = reproduce(case, strategy)
    check(case, recorded)
    visits = torch.tensor([len(c) for c in case["participation"]]).cumsum(0).tolist()
    comm = case["comm"]
    up = comm.get("up_bits", 32 * comm["up"])
    assert recorded.bits == [(32 * comm["down"] * n, up * n) for n in visits]


@both
@pytest.mark.parametrize("case", [c for c in CASES if "gate" in c.id and "partial" not in c.id])
def test_option_one_differs_in_the_downlink_only(case, strategy):
    recorded, _ = reproduce(case, strategy, replace(method_of(case), option="I"))
    check(case, recorded)
    assert [down for down, _ in recorded.bits] == [32 * 2 * 3 * t for t in range(1, 5)]


DUO = golden("duo_table")


@both
@pytest.mark.parametrize(
    "name", ["fedpaq grid0.25", "fedcom grid0.25", "fedgate", "fedcomgate grid0.25"]
)
def test_worked_example(name, strategy):
    row = DUO["rows"][name]
    hyper = {**DUO["hyper"], **row["hyper"]}
    if "grid" in name:
        hyper["Q"] = "grid0.25"
    case = {**DUO, "hyper": hyper, "id": name}
    recorded, _ = reproduce(case, strategy)
    assert_close(torch.stack(recorded.x).flatten(), row["x"])


QUANTISERS = golden("quantisers")


@dataclass(frozen=True)
class Scripted(Algorithm):
    """The only client sends given vectors, one in each round; the server sums them up."""

    script: tuple = ()

    def uplink(self, x, server, client, result, info):
        return {"update": torch.tensor([self.script[info.round]], dtype=x.dtype)}, client


def sent(compressor, vectors, strategy):
    """Return what the server receives of these vectors, and the run's record."""
    d = len(vectors[0])
    data = quadratics(torch.eye(d).expand(1, d, d).tolist(), [[0.0] * d])
    recorded, _ = fit(
        data,
        x0=[0.0] * d,
        rounds=len(vectors),
        algorithm=Scripted(script=tuple(vectors)),
        sgd=LocalSGD(steps=1, batch_size=None),
        compressor=compressor,
        strategy=strategy,
    )
    return torch.stack(recorded.d), recorded


@both
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("s", [1, 2, 4, 16])
def test_qsgd(s, norm, strategy):
    (case,) = [c for c in QUANTISERS["qsgd"] if (c["s"], c["norm"]) == (s, norm)]
    compressor = RecordedQSGD(levels=s, norm=norm, recorded=iter([[case["u"]]]))
    found, recorded = sent(compressor, [case["v"]], strategy)
    assert_close(found, [case["Q"]])
    v = torch.tensor(case["v"], dtype=torch.float64)
    length = torch.linalg.vector_norm(v, 2 if norm == "l2" else float("inf"))
    assert_close((found[0].abs() * s / length).round(), [float(n) for n in case["levels"]])
    assert recorded.bits[-1][1] == case["bits_fixed_length"] == compressor.bits(len(v))
    assert case["q_of_v"] <= compressor.bound(len(v))


@both
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_affine(bits, strategy):
    place = [2, 4, 8].index(bits)
    case, R = QUANTISERS["affine"][place], QUANTISERS["zero_point_noise"]["R"]
    for noise in (0, R):
        draws = [(n + noise + 0.5) / (2 * noise + 1) for n in range(-noise, noise + 1)]
        script = iter([[[*case["u"], draw]] for draw in draws])
        compressor = RecordedAffine(width=bits, noise=noise, recorded=script)
        found, recorded = sent(compressor, [case["v"]] * len(draws), strategy)
        plain = torch.tensor(case["Q"], dtype=torch.float64)
        shift = case["scale"] * torch.arange(-noise, noise + 1.0, dtype=torch.float64)
        assert_close(found, plain + shift.unsqueeze(1))
        assert recorded.bits[0][1] == case["total_bits"]
        if noise:
            added = (found - plain).square().sum(1).mean()
            assert_close(added, QUANTISERS["zero_point_noise"]["variance_added"][place])
    nearest, _ = sent(Affine(bits, rounding="nearest"), [case["v"]], strategy)
    assert (nearest - torch.tensor(case["v"])).abs().max() <= case["scale"] / 2 * (1 + 1e-9)


@both
@pytest.mark.parametrize("k", [1, 2, 3])
def test_topk(k, strategy):
    (case,) = [c for c in QUANTISERS["topk"] if c["k"] == k]
    found, recorded = sent(TopK(k), [case["v"]], strategy)
    assert_close(found, [case["topk"]])
    assert recorded.bits[-1][1] == case["bits"]


@both
def test_error_feedback(strategy):
    case = QUANTISERS["error_feedback"]
    found, recorded = sent(TopK(case["k"], error_feedback=True), case["inputs"], strategy)
    assert_close(found, case["sent"])
    memory = torch.cat([clients["memory@update"] for clients in recorded.clients])
    assert_close(memory, case["memory"])
