"""Problems of several runs merged into one, and its result split again."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fltune.federation import LocalProblem, LocalResult, LocalSGD
from fltune.federation.batches import BatchPlan
from fltune.federation.pack_problem import Request, merge, repeat_plan, split

X = torch.tensor([1.0, 2.0], dtype=torch.float64)


def test_what_all_agree_on_stays_a_number():
    problems = LocalProblem(X, mu=0.5, anchor=X), LocalProblem(X, mu=0.5)
    merged, lr = merge([Request(problem, LocalSGD(), 0.1) for problem in problems], 3)
    assert lr == 0.1
    numbers = merged.mu, merged.lr_scale, merged.momentum, merged.weight_decay
    assert numbers == (0.5, 1.0, 0.0, 0.0)
    assert merged.correction is None


def test_what_differs_becomes_a_column():
    own = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    asked = [
        Request(LocalProblem(X, mu=0.5, anchor=X, lr_scale=own), LocalSGD(momentum=0.5), 0.1),
        Request(LocalProblem(X + 1, weight_decay=0.3), LocalSGD(weight_decay=0.2), 0.2),
    ]
    merged, lr = merge(asked, 2)

    def rows(*values):
        return torch.tensor(values, dtype=torch.float64).unsqueeze(1)

    assert lr == 1.0
    torch.testing.assert_close(merged.lr_scale, rows(0.1, 0.2, 0.2, 0.2))
    torch.testing.assert_close(merged.mu, rows(0.5, 0.5, 0.0, 0.0))
    torch.testing.assert_close(merged.momentum, rows(0.5, 0.5, 0.0, 0.0))
    torch.testing.assert_close(merged.weight_decay, rows(0.0, 0.0, 0.3, 0.3))
    torch.testing.assert_close(merged.start, torch.stack([X, X, X + 1, X + 1]))
    torch.testing.assert_close(merged.anchor, torch.stack([X, X, 0 * X, 0 * X]))


@pytest.mark.parametrize("rates", [(1.0, 0.5, 0.1), (0.5, 1.0, 0.1), (1.0, 1.0, 0.5)])
def test_rates_that_differ_are_each_members_own(rates):
    """Also where the first is 1, the rate that the others become factors on."""
    asked = [Request(LocalProblem(X), LocalSGD(), rate) for rate in rates]
    merged, lr = merge(asked, 1)
    assert (lr * torch.as_tensor(merged.lr_scale)).flatten().tolist() == list(rates)


@given(st.integers(1, 5), st.integers(1, 4))
def test_split_undoes_what_merge_did(times, clients):
    rows = torch.arange(2.0 * times * clients).reshape(-1, 2)
    whole = LocalResult(rows, rows[:, 0], rows[:, 1].long(), gradient_sum=-rows)
    parts = split(whole, times)
    assert len(parts) == times
    for name in ("end", "loss", "steps", "gradient_sum"):
        pieces = [getattr(part, name) for part in parts]
        assert {len(piece) for piece in pieces} == {clients}
        assert torch.equal(torch.cat(pieces), getattr(whole, name))
    assert all(part.start_gradient is None for part in parts)


def test_every_member_gets_the_cohorts_batches():
    plan = BatchPlan(
        torch.arange(12).reshape(2, 3, 2), torch.arange(6).reshape(2, 3), torch.arange(3)
    )
    twice = repeat_plan(plan, 2)
    for part in (slice(0, 3), slice(3, 6)):
        assert torch.equal(twice.index[:, part], plan.index)
        assert torch.equal(twice.count[:, part], plan.count)
        assert torch.equal(twice.steps[part], plan.steps)
