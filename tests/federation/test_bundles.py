"""Bundles are a cut of the cohort that follows from model and batches alone."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fltune.data.federated import Split
from fltune.federation import LocalProblem, LocalSGD, bundles
from fltune.federation.batches import BatchPlan
from fltune.federation.bundles import Work, put, share_out, solve_bundles
from fltune.federation.flat import FlatNetwork
from fltune.federation.losses import cross_entropy
from fltune.federation.strategies import STRATEGIES
from fltune.models.mlp import MLP


def plan(steps, samples=3):
    steps = torch.tensor(steps)
    longest = int(steps.max())
    count = samples * (torch.arange(longest).unsqueeze(1) < steps).long()
    return BatchPlan(torch.zeros(longest, len(steps), samples, dtype=torch.int64), count, steps)


def work(steps, strategy="dense", **options):
    torch.manual_seed(0)
    flat = FlatNetwork(MLP((6,), 3, [5]).double())
    data = Split(torch.randn(9, 6, dtype=torch.float64), torch.randint(3, (9,)))
    laid = plan(steps)
    index = torch.randint(9, laid.index.shape)
    problem = LocalProblem(flat.read(), **options)
    keys = torch.arange(len(steps))
    laid = BatchPlan(index, laid.count, laid.steps)
    return Work(flat, cross_entropy, data, problem, laid, LocalSGD(lr=0.3), 0.3, keys)


def of_width(plan, widths):
    """Return the plan with full batches of so many samples each."""
    index = torch.arange(max(widths)).expand(*plan.index.shape[:2], -1)
    place = torch.arange(index.shape[2])
    inside = place < torch.tensor(widths).unsqueeze(1)
    count = torch.where(plan.count > 0, torch.tensor(widths), 0)
    return BatchPlan(torch.where(inside, index, 0), count, plan.steps)


SAMPLE = Split(torch.zeros(1, 6), torch.zeros(1, dtype=torch.int64))


class Sized:
    """A network of a given size, as bundles see it."""

    def __init__(self, flops):
        self.flops = lambda x: flops


STEPS = st.lists(st.integers(0, 9), min_size=1, max_size=20).filter(any)


@given(STEPS, st.sampled_from(list(STRATEGIES)), st.integers(10**3, 10**9))
def test_every_client_is_in_one_bundle(steps, strategy, flops):
    found = torch.cat(bundles.bundles(strategy, Sized(flops), SAMPLE, plan(steps)))
    assert sorted(found.tolist()) == list(range(len(steps)))


@example([0, 0, 1], "loop", 3)  # clients that make no step
@given(STEPS, st.sampled_from(list(STRATEGIES)), st.integers(1, 7))
def test_every_client_is_in_one_share_and_none_is_much_larger(steps, strategy, processes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "BUNDLE_WORK", dict.fromkeys(bundles.BUNDLE_WORK, 1.0))
        shares = share_out(strategy, work(steps), processes)
        cut = work(steps).bundles(strategy)
    assert len(shares) == processes
    found = [clients for share in shares for part in share for clients in part.tolist()]
    assert sorted(found) == list(range(len(steps)))

    def cost(part):
        return sum(1 + (3 + 8) * steps[i] for i in part.tolist())

    costs = [sum(map(cost, share)) for share in shares]
    largest = max(map(cost, cut))
    used = [c for c, share in zip(costs, shares, strict=True) if share]
    assert max(used) - min(used) <= largest
    assert used == sorted(used)


def test_small_cohorts_are_one_bundle_and_large_ones_are_not():
    small, large = plan([4] * 50, 16), plan([19] * 10, 32)
    light, heavy = Sized(2 * 2_240), Sized(2 * 198_800)
    assert len(bundles.bundles("dense", light, SAMPLE, small)) == 1
    assert [len(b) for b in bundles.bundles("dense", heavy, SAMPLE, large)] == [3, 3, 2, 2]
    assert len(bundles.bundles("stacked", heavy, SAMPLE, large)) == 1
    assert len(bundles.bundles("loop", light, SAMPLE, small)) == 50


def test_full_batches_of_uneven_widths_are_in_bundles_of_their_own():
    sizes = [20, 290, 30, 300, 150, 25, 280]
    laid = of_width(plan([2] * 7), sizes)
    heavy, light = Sized(2 * 50_816), Sized(2 * 640)
    found = bundles.bundles("dense", heavy, SAMPLE, laid)
    assert [b.tolist() for b in found] == [[1, 3, 6], [4], [0, 2, 5]]
    assert len(bundles.bundles("dense", light, SAMPLE, laid)) == 1  # a step costs more than padding


WIDTHS = {"even": [3] * 5, "uneven": [7, 3, 1, 6, 2]}


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
@pytest.mark.parametrize("options", ["plain", "everything"])
@pytest.mark.parametrize("widths", WIDTHS)
def test_bundles_are_the_cohort(monkeypatch, strategy, options, widths):
    """To rounding; the loop to the last bit."""
    d = work([1]).network.dimension
    own = torch.linspace(-1, 1, 5 * d, dtype=torch.float64).view(5, d)
    extra = {"mu": own[:, :1].abs(), "anchor": own, "correction": own[0], "gradient_sum": True}
    asked = work([4, 0, 2, 9, 2], **(extra if options == "everything" else {}))
    asked = asked._replace(plan=of_width(asked.plan, WIDTHS[widths]))
    if widths == "uneven":
        monkeypatch.setattr(bundles, "GROUP_WORK", dict.fromkeys(bundles.GROUP_WORK, 1.0))
    whole = STRATEGIES[strategy](*asked)
    monkeypatch.setattr(bundles, "BUNDLE_WORK", dict.fromkeys(bundles.BUNDLE_WORK, 1.0))
    assert len(asked.bundles(strategy)) > 1
    cut = asked.room(strategy)
    for clients in asked.bundles(strategy):
        put(cut, clients, STRATEGIES[strategy](*asked.part(clients)))
    tolerance = 0.0 if strategy == "loop" else 1e-12
    for found in (cut, solve_bundles(strategy, asked)):
        for name in ("end", "loss", "gradient_sum"):
            a, b = getattr(found, name), getattr(whole, name)
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
