"""``loop`` is the reference; the other strategies give its numbers, whatever the cohort."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_work import PROBLEMS, SGDS, Setting, assert_same, column, conv, mlp
from torch import nn

from fltune.federation import LocalProblem, LocalSGD
from fltune.federation.local import shrinkage


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_own_numbers_are_those_of_an_optimizer_for_each_client(strategy):
    """Momentum and weight decay of the problem stand for those of the clients' optimizer."""
    momenta, decays = (0.0, 0.9, 0.3, 0.5), (0.2, 0.0, 0.1, 0.4)
    setting = Setting(SGDS["all"])
    asked = LocalProblem(setting.x, momentum=column(*momenta), weight_decay=column(*decays))
    found = setting.solve(strategy, asked)
    for i, (momentum, decay) in enumerate(zip(momenta, decays, strict=True)):
        sgd = replace(SGDS["all"], momentum=momentum, weight_decay=decay)
        expected = Setting(sgd).solve("loop", clients=[i])
        torch.testing.assert_close(found.end[i], expected.end[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("strategy", ["stacked", "dense"])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("sgd", SGDS)
def test_batched_strategies_are_the_loop(sgd, problem, strategy):
    setting = Setting(SGDS[sgd])
    asked = PROBLEMS[problem](setting)
    assert_same(setting.solve(strategy, asked), setting.solve("loop", asked))


@pytest.mark.parametrize("sgd", ["steps", "all"])
@pytest.mark.parametrize("network", [conv, lambda: mlp(0.4)], ids=["conv", "dropout"])
def test_stacked_is_loop_for_other_networks(network, sgd):
    setting = Setting(SGDS[sgd], network)
    assert_same(setting.solve("stacked"), setting.solve("loop"))


def test_dropout_takes_part_in_local_work():
    with_dropout = Setting(SGDS["epochs"], lambda: mlp(0.4)).solve("loop").end
    assert not torch.allclose(with_dropout, Setting(SGDS["epochs"]).solve("loop").end)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.none() | st.integers(1, 10),
    st.integers(0, 99),
    st.data(),
)
def test_batched_strategies_are_the_loop_on_uneven_cohorts(sizes, batch_size, seed, data):
    amounts = data.draw(st.lists(st.integers(0, 4), min_size=len(sizes), max_size=len(sizes)))
    unit = data.draw(st.sampled_from(["epochs", "steps"]))
    sgd = LocalSGD(lr=0.2, batch_size=batch_size, momentum=0.5, **{unit: 1})
    setting = Setting(sgd, lambda: mlp(0.3), sizes, seed)
    asked = LocalProblem(setting.x, correction=setting.per_client(0.1), gradient_sum=True)
    loop = setting.solve("loop", asked, amounts=amounts)
    for strategy in ("stacked", "dense"):
        assert_same(setting.solve(strategy, asked, amounts=amounts), loop)


NETWORKS = {"mlp": mlp, "dropout": lambda: mlp(0.4), "conv": conv}


@pytest.mark.parametrize(
    ("strategy", "network"),
    [
        (strategy, name)
        for strategy in ("loop", "stacked", "dense")
        for name in NETWORKS
        if (strategy, name) != ("dense", "conv")  # convolutions are not dense
    ],
)
@pytest.mark.parametrize("clients", [[0], [1, 3], [3, 0, 2, 1]], ids=str)
def test_a_client_does_not_feel_its_cohort(strategy, clients, network):
    """Not who else takes part, nor in which order; to the last bit where clients are a loop."""
    setting = Setting(SGDS["all"], NETWORKS[network])
    alone = setting.solve(strategy, clients=clients)
    everyone = setting.solve(strategy)
    assert torch.equal(alone.steps, everyone.steps[clients])
    tolerance = 0.0 if strategy == "loop" else 1e-12
    for a, b in ((alone.end, everyone.end), (alone.loss, everyone.loss)):
        torch.testing.assert_close(a, b[clients], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_gradient_sum_holds_plain_gradients_only(strategy):
    """Without momentum: start - end = lr (sum of gradients + K correction)."""
    setting = Setting(SGDS["steps"])
    correction = setting.per_client(1.0)
    asked = LocalProblem(setting.x, correction=correction, gradient_sum=True)
    result = setting.solve(strategy, asked)
    moved = (setting.x - result.end) / setting.sgd.lr
    expected = result.gradient_sum + result.steps.unsqueeze(1) * correction
    torch.testing.assert_close(moved, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_frozen_gradients_are_all_taken_at_the_start(strategy):
    setting = Setting(SGDS["full_batch"])
    frozen = setting.solve(strategy, LocalProblem(setting.x, frozen=True, gradient_sum=True))
    once = setting.solve(strategy, LocalProblem(setting.x, gradient_sum=True), amounts=[1] * 4)
    torch.testing.assert_close(frozen.gradient_sum, 3 * once.gradient_sum, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(setting.x - frozen.end, 3 * (setting.x - once.end))


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_a_proximal_weight_of_zero_changes_nothing(strategy):
    setting = Setting(SGDS["epochs"])
    prox = setting.solve(strategy, LocalProblem(setting.x, mu=0.0, anchor=setting.x + 1))
    assert torch.equal(prox.end, setting.solve(strategy).end)


def test_a_proximal_weight_needs_an_anchor():
    setting = Setting(SGDS["epochs"])
    with pytest.raises(ValueError, match=r"mu = 0\.5 needs an anchor"):
        setting.solve("loop", LocalProblem(setting.x, mu=0.5))


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_the_callers_random_numbers_are_left_alone(strategy):
    solve = Setting(SGDS["epochs"], lambda: mlp(0.4)).ready(strategy)
    state = torch.get_rng_state()
    solve()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_clipping_is_that_of_torch(strategy):
    """By the norm of a client's whole gradient, corrections included (FedDC's program)."""
    sgd = LocalSGD(lr=0.3, steps=4, batch_size=None, momentum=0.5, clip_norm=0.4)
    setting = Setting(sgd)
    correction = setting.per_client(0.2)
    found = setting.solve(strategy, LocalProblem(setting.x, correction=correction))
    bare = Setting(replace(sgd, steps=1, clip_norm=None, lr=1.0, momentum=0.0))
    clipped = 0
    for i in range(len(found.end)):
        w = nn.Parameter(setting.x.clone())
        optimizer = torch.optim.SGD([w], lr=0.3, momentum=0.5)
        for _ in range(4):
            there = LocalProblem(w.detach().clone())
            w.grad = (w - bare.solve("loop", there, clients=[i]).end[0]).detach() + correction[i]
            clipped += float(nn.utils.clip_grad_norm_([w], 0.4)) > 0.4
            optimizer.step()
        torch.testing.assert_close(found.end[i], w.detach(), rtol=1e-6, atol=1e-6)
    assert clipped > 0


def test_a_gradient_of_zero_is_left_alone():
    factors = shrinkage(torch.tensor([0.0, 1.0, 4.0]), 2.0)
    assert factors.tolist() == [1.0, 1.0, 0.5]
