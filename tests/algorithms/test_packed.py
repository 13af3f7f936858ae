"""Every registered algorithm in a pack: the numbers of each member are those of its run alone."""

import pytest
import torch
from any_method import CASES, Run, case, every, same
from quadratics import trainer

from fltune.algorithms import ALGORITHMS
from fltune.federation import LocalSGD
from fltune.federation.compression import QSGD, TopK
from fltune.federation.pack import Pack
from fltune.federation.pack_members import Member
from fltune.federation.schedules import InverseSqrt
from fltune.parameters import describe
from fltune.server.fedgm import FedGM, FedSGD

MEMBERS = 3


def other_numbers(name, place):
    """The settings of a method with every number that has room moved a little."""
    settings = dict(case(name).settings)
    for key, default, meta in describe(ALGORITHMS.load(name)):
        value = settings.get(key, default)
        if isinstance(value, float) and meta.allows(value * (1 + 0.05 * place)):
            settings[key] = value * (1 + 0.05 * place)
    return settings


def member(name, place, strategy="stacked", **changes):
    """One of several runs that differ in all their numbers."""
    sgd = LocalSGD(
        lr=0.02 * (1 + place),
        steps=2,
        batch_size=2,
        momentum=(0.0, 0.3, 0.5)[place],
        weight_decay=(0.01, 0.0, 0.05)[place],
        schedule=(InverseSqrt(20), None, InverseSqrt(5))[place],
    )
    settings = other_numbers(name, place)
    run = Run(name, sgd=sgd, strategy=strategy, **{"settings": settings, **changes})
    if run.algorithm.plain_server:
        run.server = FedSGD(0.8 - 0.1 * place)
    else:
        run.server = FedGM(0.8 - 0.1 * place, 0.5, 0.7 + 0.1 * place)
    run.callbacks[0] = run.server
    return run


ALIKE_BUT = {
    "weight_decay": [{"weight_decay": d} for d in (0.0, 0.01, 0.1)],
    "momentum": [{"momentum": m} for m in (0.0, 0.4, 0.9)],
    "lr": [{"lr": lr} for lr in (0.01, 0.02, 0.05)],
    "decay_and_lr": [{"lr": 0.01 * i, "weight_decay": 0.1 / i} for i in (1, 2, 3)],
}


@pytest.mark.parametrize("strategy", ["stacked", "dense"])
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold"])
@pytest.mark.parametrize("differing", ALIKE_BUT)
def test_only_one_number_differs(differing, name, strategy):
    def runs():
        common = {"lr": 0.03, "steps": 2, "batch_size": 2}
        sgds = [LocalSGD(**{**common, **own}) for own in ALIKE_BUT[differing]]
        return [Run(name, sgd=sgd, strategy=strategy) for sgd in sgds]

    for one, other in zip(fit_together(runs()), [run.fit() for run in runs()], strict=True):
        assert_same_runs(one, other)


def fit_together(runs):
    members = [Member(run.module, run.callbacks, run.rounds) for run in runs]
    trainer(runs[0].rounds).fit(Pack(members, lambda member: None), runs[0].source)
    for one in members:
        if one.error is not None:
            raise one.error
    return runs


def assert_same_runs(together, alone, tolerance=1e-12):
    same(together.x, alone.x, tolerance)
    same(together.end, alone.end, tolerance)
    for name in ("d", "state", "server", "clients"):
        same(getattr(together.recorded, name), getattr(alone.recorded, name), tolerance)
    assert together.recorded.bits == alone.recorded.bits
    assert together.recorded.totals == alone.recorded.totals


@every
@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_members_have_the_numbers_of_runs_alone(name, strategy):
    alone = [member(name, i, strategy).fit() for i in range(MEMBERS)]
    together = fit_together([member(name, i, strategy) for i in range(MEMBERS)])
    for one, other in zip(together, alone, strict=True):
        assert_same_runs(one, other)
    assert not torch.allclose(alone[0].x[-1], alone[1].x[-1])


@every
def test_a_pack_of_one_is_the_run_to_the_last_bit(name):
    (packed,) = fit_together([member(name, 1)])
    assert_same_runs(packed, member(name, 1).fit(), 0.0)


@every
def test_alike_members_have_equal_numbers(name):
    """What all agree on stays a number: the arithmetic of a run alone, on more rows."""
    one, two = fit_together([member(name, 1), member(name, 1)])
    same(one.x, two.x, 1e-14)
    assert_same_runs(one, member(name, 1).fit(), 1e-13)


FEEDBACK = {"topk": TopK(k=2, error_feedback=True), "qsgd": QSGD(levels=4, error_feedback=True)}


@pytest.mark.parametrize("compressor", FEEDBACK)
def test_each_member_has_its_own_memory_of_what_was_lost(compressor):
    def runs():
        levels = [FEEDBACK[compressor], FEEDBACK[compressor], TopK(k=4, error_feedback=True)]
        return [member("fedavg", i, "dense", compressor=levels[i]) for i in range(MEMBERS)]

    for one, other in zip(fit_together(runs()), [run.fit() for run in runs()], strict=True):
        assert_same_runs(one, other)
        assert other.end["clients"]["memory@update"].abs().max() > 0


@pytest.mark.parametrize("name", ["fedprox", "fedcdr"])
def test_exact_solutions(name):
    exact = {"fedprox": {"mu": 0.5, "exact": True}, "fedcdr": {"eta": 2.0, "prox": "exact"}}[name]
    number = {"fedprox": "mu", "fedcdr": "eta"}[name]

    def runs():
        settings = [{**exact, number: exact[number] * (1 + i)} for i in range(MEMBERS)]
        return [member(name, i, "dense", settings=settings[i]) for i in range(MEMBERS)]

    for one, other in zip(fit_together(runs()), [run.fit() for run in runs()], strict=True):
        assert_same_runs(one, other)


def test_different_methods_in_one_pack():
    names = [*ALGORITHMS]
    names = [n for n in names if n not in CASES or CASES[n].delays is None]

    def runs():
        return [member(name, i % MEMBERS, "dense") for i, name in enumerate(names)]

    for one, other in zip(fit_together(runs()), [run.fit() for run in runs()], strict=True):
        assert_same_runs(one, other)


def test_a_first_visit_by_all_is_each_members_own():
    settings = {"eta": 0.5, "init": "prox_mean"}

    def runs():
        settings_of = [{**settings, "eta": 0.5 + 0.2 * i} for i in range(MEMBERS)]
        return [member("fedcdr", i, settings=settings_of[i]) for i in range(MEMBERS)]

    for one, other in zip(fit_together(runs()), [run.fit() for run in runs()], strict=True):
        assert_same_runs(one, other)


def test_the_cases_vary_what_they_mean_to():
    assert other_numbers("fedprox", 2)["mu"] == pytest.approx(0.011)
    assert other_numbers("fedcdr", 1)["eta"] == pytest.approx(0.525)
