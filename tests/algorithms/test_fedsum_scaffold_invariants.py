"""Identities of the FedSUM family, SCAFFOLD and the memory methods on random quadratics."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from quadratics import federated, fit
from random_problems import Problem, path, positions, property_test, same

from fltune.algorithms import ALGORITHMS
from fltune.algorithms.fedau import FedAU
from fltune.algorithms.fedavg import FedAvg
from fltune.algorithms.fedawe import FedAWE
from fltune.algorithms.fedgate import FedGATE
from fltune.algorithms.fedsum import FedSUM, FedSUMB, FedSUMCR
from fltune.algorithms.fedvarp import FedVARP
from fltune.algorithms.mifa import MIFA
from fltune.algorithms.scaffold import Scaffold
from fltune.federation import LocalSGD
from fltune.federation.compression import Grid
from fltune.federation.schedules import InverseSqrt

NAMES = ["fedsum_b", "fedsum", "fedsum_cr", "scaffold", "mifa", "fedvarp", "fedau", "fedawe"]
FAMILY = [FedSUMB(), FedSUM(), FedSUMCR(), FedSUMCR(exact_rate=True)]
ALL = [*FAMILY, Scaffold("uniform", "I"), Scaffold(), MIFA(), MIFA(wait_for_all=True)]
ALL += [FedVARP(), FedAU(cutoff=2), FedAWE(), FedAWE(clip_norm=0.1)]


def named(algorithms):
    return [pytest.param(a, id=repr(a).replace("weighting='uniform'", "")) for a in algorithms]


# FedSUM family


@pytest.mark.parametrize("algorithm", named(FAMILY))
@pytest.mark.parametrize("compressor", [None, Grid(0.25)], ids=["plain", "compressed"])
@property_test(5)
def test_fedsum_y_sums_h_and_moves_x(algorithm, compressor, problem):
    """Empty rounds and unequal steps included; the server's factor K stays nominal."""
    recorded = problem.run(algorithm, unequal=True, compressor=compressor)
    x = positions(problem, recorded)
    for t, (server, clients) in enumerate(zip(recorded.server, recorded.clients, strict=True)):
        same(server["y"], clients["h"].sum(0))
        same(x[t] - x[t + 1], 0.8 * 0.1 * 3 / problem.clients * server["y"])


@property_test()
def test_one_step_fedsum_is_fedsum_b_and_mifa(problem):
    fedsum, *others = (path(problem.run(a, steps=1)) for a in (FedSUM(), FedSUMB(), MIFA()))
    for other in others:
        same(other, fedsum)


@property_test()
def test_fedsum_cr_is_fedsum_with_all_clients_and_in_round_0(problem):
    same(
        path(problem.run(FedSUMCR(), problem.everyone)),
        path(problem.run(FedSUM(), problem.everyone)),
    )
    same(problem.run(FedSUMCR()).x[0], problem.run(FedSUM()).x[0])


@dataclass(frozen=True)
class Listening(FedSUMCR):
    """FedSUM-CR that notes what its clients infer."""

    heard: Any = field(default_factory=list)

    def direction(self, x, server, client, info):
        inferred = super().direction(x, server, client, info)
        self.heard.append((info.round, client["a"], inferred))
        return inferred


@pytest.mark.parametrize("schedule", [None, InverseSqrt(period=2)], ids=["constant", "decaying"])
@property_test()
def test_fedsum_cr_infers_the_mean_direction_since_the_last_visit(schedule, problem):
    """Weighted by the rates the steps were made with; y before round 0 is 0."""
    algorithm = Listening(exact_rate=schedule is not None)
    recorded = problem.run(algorithm, schedule=schedule)
    rate = LocalSGD(0.1, schedule=schedule).rate
    for t, visits, inferred in algorithm.heard:
        for a, direction in zip(visits.tolist(), inferred, strict=True):
            rates = [rate(max(p, 0), len(recorded.x)) for p in range(a, t)]
            ys = [recorded.server[p]["y"] if p >= 0 else 0 * direction for p in range(a, t)]
            mean = sum(r * y for r, y in zip(rates, ys, strict=True)) / sum(rates)
            same(direction, mean)


@property_test()
def test_fedsum_b_with_all_clients_is_gradient_descent(problem):
    recorded = problem.run(FedSUMB(), problem.everyone)
    x = positions(problem, recorded)
    for before, after in itertools.pairwise(x):
        gradient = problem.gradients(before.expand_as(problem.b)).mean(0)
        same(after, before - 0.8 * 0.1 * 3 * gradient)


def test_nominal_steps_of_an_epoch_are_the_mean_over_all_clients():
    """Clients of 5 and 1 samples, batches of 2, two epochs: K = 2 (3 + 1) / 2 = 4 everywhere."""
    x = torch.ones(2, 1, 1, dtype=torch.float64)
    data = federated(x, torch.tensor([[1.0], [3.0]], dtype=torch.float64), [5, 1])
    sgd = LocalSGD(0.1, epochs=2, batch_size=2)
    recorded, _ = fit(data, x0=[0.0], cohorts=[[1], []], algorithm=FedSUMB(), sgd=sgd)
    same(torch.stack(recorded.x).flatten(), torch.tensor([0.6, 1.2], dtype=torch.float64))


# SCAFFOLD


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("compressor", [None, Grid(0.25)], ids=["plain", "compressed"])
@property_test(5)
def test_scaffold_c_is_the_mean_of_all_c_i(option, compressor, problem):
    recorded = problem.run(Scaffold(option=option), unequal=True, compressor=compressor)
    for server, clients in zip(recorded.server, recorded.clients, strict=True):
        same(server["c"], clients["c"].mean(0))


@pytest.mark.parametrize("option", ["I", "II"])
@property_test(5)
def test_scaffold_c_i_is_the_gradient_it_says(option, problem):
    """I: at the received model. II: the mean over the client's own steps, by hand."""
    recorded = problem.run(Scaffold(option=option), unequal=True)
    x = positions(problem, recorded)
    c_i, c = torch.zeros_like(problem.b), torch.zeros(problem.b.shape[1], dtype=torch.float64)
    steps = torch.tensor(problem.steps).unsqueeze(1)
    for t, cohort in enumerate(problem.cohorts):
        z, total = x[t].expand_as(c_i), torch.zeros_like(c_i)
        for k in range(4):
            gradient = problem.gradients(z) * (k < steps)
            total = total + gradient
            z = z - 0.1 * (gradient + (c - c_i) * (k < steps))
        new = total / steps if option == "II" else problem.gradients(x[t].expand_as(c_i))
        c_i = c_i.clone()
        c_i[cohort] = new[cohort]
        c = c_i.mean(0)
        same(recorded.clients[t]["c"], c_i)


@property_test(5)
def test_scaffold_is_fedgate_with_all_clients(problem):
    """delta_j = c_j - c."""
    gate = problem.run(FedGATE(), problem.everyone)
    scaffold = problem.run(Scaffold(), problem.everyone)
    same(path(gate), path(scaffold))
    for ours, theirs, server in zip(scaffold.clients, gate.clients, scaffold.server, strict=True):
        same(theirs["delta"], ours["c"] - server["c"])


# methods that are FedAvg where all clients take part


@pytest.mark.parametrize("algorithm", named([FedAU(), FedAWE(), FedVARP(), MIFA(), ALL[7]]))
@property_test(4)
def test_fedavg_with_all_clients(algorithm, problem):
    """For every server rate, client rate, local optimizer and number of steps."""
    options = {"unequal": True, "momentum": 0.5, "schedule": InverseSqrt(2), "weight_decay": 0.01}
    found, expected = (
        path(problem.run(a, problem.everyone, **options)) for a in (algorithm, FedAvg())
    )
    same(found, expected)


@property_test()
def test_memory_is_what_clients_sent_last(problem):
    """MIFA and FedVARP keep the sum of what the paper's server keeps one by one."""
    for algorithm, name in ((MIFA(), "G"), (FedVARP(), "Y")):
        recorded = problem.run(algorithm, unequal=True)
        for server, clients in zip(recorded.server, recorded.clients, strict=True):
            same(server["sum"], clients[name].sum(0))


@property_test()
def test_mifa_waits_for_all_at_x0(problem):
    recorded = problem.run(MIFA(wait_for_all=True))
    start = torch.tensor(problem.x0, dtype=torch.float64)
    seen = set()
    for cohort, x, d in zip(problem.cohorts, recorded.x, recorded.d, strict=True):
        seen |= set(cohort)
        if len(seen) < problem.clients:
            assert d is None
            assert torch.equal(x, start)
        else:
            first = problem.run(FedAvg(), problem.everyone[:1])
            same(x, first.x[0])
            break


@property_test()
def test_fedawe_clips_the_mean_stretched_update(problem):
    """Far above the update's norm nothing is clipped; far below, its norm is the limit's."""
    same(path(problem.run(FedAWE(clip_norm=1e6))), path(problem.run(FedAWE())))
    cohort = problem.everyone[:1]
    clipped, free = (problem.run(FedAWE(clip_norm=c), cohort).x[0] for c in (1e-3, None))
    start = torch.tensor(problem.x0, dtype=torch.float64)
    direction = (free - start) / (free - start).norm()
    same(clipped - start, 0.8 * 1e-3 * direction)


# all of them


@pytest.mark.parametrize("algorithm", named(ALL))
@property_test(4)
def test_inactive_clients_keep_their_state_bit_for_bit(algorithm, problem):
    recorded = problem.run(algorithm, unequal=True)
    for t, cohort in enumerate(problem.cohorts[1:], start=1):
        absent = [i for i in range(problem.clients) if i not in cohort]
        for name, rows in recorded.clients[t].items():
            assert torch.equal(rows[absent], recorded.clients[t - 1][name][absent])


@pytest.mark.parametrize("algorithm", named(ALL))
@property_test(4)
def test_empty_rounds(algorithm, problem):
    """The model moves along a memory, or not at all; counters alone tick."""
    recorded = problem.run(algorithm, cohorts=[*problem.cohorts, []])
    moves = isinstance(algorithm, (FedSUMB, MIFA))
    if not moves:
        assert torch.equal(recorded.x[-1], recorded.x[-2])
    for name, value in recorded.server[-1].items():
        if name not in ("waited", "recorded", "omega"):
            assert torch.equal(value, recorded.server[-2][name])


@pytest.mark.parametrize("algorithm", named(ALL))
@property_test(3)
def test_order_of_clients_does_not_matter(algorithm, problem):
    """Numbering the clients backwards gives the same model."""
    last = problem.clients - 1
    backwards = Problem(
        problem.A.flip(0),
        problem.b.flip(0),
        problem.x0,
        [sorted(last - i for i in cohort) for cohort in problem.cohorts],
        problem.steps[::-1],
    )
    same(path(backwards.run(algorithm, unequal=True)), path(problem.run(algorithm, unequal=True)))


def test_names():
    assert {type(a) for a in ALL} == {ALGORITHMS.load(name) for name in NAMES}


@pytest.mark.parametrize("method", [FedSUMB, FedSUM, FedSUMCR, Scaffold, MIFA, FedVARP, FedAU])
def test_sample_weights_are_refused(method):
    with pytest.raises(ValueError, match="weighting = 'samples' is not allowed; must be one of"):
        method(weighting="samples")


@pytest.mark.parametrize("values", [{"option": "III"}, {"option": 2}])
def test_scaffold_refuses(values):
    with pytest.raises(ValueError, match="must be one of I, II"):
        Scaffold(**values)


def test_refused_values():
    with pytest.raises(ValueError, match="cutoff = 0"):
        FedAU(cutoff=0)
    with pytest.raises(ValueError, match="clip_norm = 0"):
        FedAWE(clip_norm=0)


def test_warnings():
    plain, heavy = LocalSGD(), LocalSGD(momentum=0.9)
    assert [a.warnings(plain) for a in (FedSUMB(), FedSUM(), Scaffold(), MIFA())] == [[]] * 4
    for algorithm in (FedSUMB(), FedSUM(), FedSUMCR(), Scaffold()):
        assert "momentum" in algorithm.warnings(heavy)[0]
    assert Scaffold(option="I").warnings(heavy) == []
    assert "pretrained" in FedSUMCR().warnings(plain)[0]
    decaying = LocalSGD(schedule=InverseSqrt())
    assert "exact_rate" in FedSUMCR().warnings(decaying)[0]
    assert "exact_rate" not in " ".join(FedSUMCR(exact_rate=True).warnings(decaying))
