import pytest
import small_digits
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, quadratics

from fltune.algorithms.fedcdr import FedCDR
from fltune.errors import ConfigError
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.stragglers import Stragglers
from fltune.participation.full import Full
from fltune.runner import run

A = [[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 2.0]], [[3.0, -0.5], [-0.5, 1.0]]]
B = [[1.0, 0.1], [-1.0, 2.0], [0.5, -1.0]]


@settings(max_examples=60)
@given(data=st.data(), fraction=st.floats(0, 1), seed=st.integers(0, 99), t=st.integers(0, 99))
def test_the_right_number_is_late_whatever_the_order(data, fraction, seed, t):
    ids = data.draw(st.lists(st.integers(0, 50), unique=True, max_size=20))
    nominal = data.draw(st.integers(1, 6))
    most = data.draw(st.none() | st.integers(1, nominal))
    work = Stragglers(fraction, "keep", most).bind(nominal, seed)
    clients = torch.tensor(ids, dtype=torch.int64)
    late, amount = work.late(t, clients), work.amount(t, clients)
    assert late.sum() == round(fraction * len(ids))
    assert (amount[~late] == nominal).all()
    assert ((amount >= 1) & (amount <= (most or nominal)))[late].all()
    assert work.in_time(t, clients).all()
    dropping = Stragglers(fraction, "drop", most).bind(nominal, seed)
    assert torch.equal(dropping.in_time(t, clients), ~late)
    assert torch.equal(work.late(t, clients.flip(0)).flip(0), late)
    assert torch.equal(work.amount(t, clients.flip(0)).flip(0), amount)


def test_halves_are_rounded_to_even():
    assert [Stragglers(0.5).count(n) for n in range(8)] == [0, 0, 1, 2, 2, 2, 3, 4]
    assert [Stragglers(0.9).count(n) for n in (0, 1, 5, 10, 50)] == [0, 1, 4, 9, 45]


def test_stragglers_are_drawn_uniformly():
    """2 of 5 in 2000 rounds: counts of clients and pairs within five standard deviations."""
    work = Stragglers(0.4).bind(3, 0)
    late = torch.stack([work.late(t, torch.arange(5)) for t in range(2000)]).double()
    together = late.T @ late
    for i in range(5):
        for j in range(i + 1):
            p = 0.4 if i == j else 0.1  # 2 of 5; one of ten pairs
            assert abs(together[i, j] - 2000 * p) < 5 * (2000 * p * (1 - p)) ** 0.5


def test_partial_work_is_uniform():
    """Each of 1..4 a quarter of 8000 draws; five standard deviations are 194."""
    work = Stragglers(1.0, "keep").bind(4, 0)
    drawn = torch.cat([work.amount(t, torch.arange(8)) for t in range(1000)])
    assert drawn.bincount(minlength=5)[0] == 0
    assert ((drawn.bincount() - 2000).abs()[1:] < 194).all()


def test_who_is_late_and_how_much_they_do_are_independent():
    """Client 0's work has the same mean whether it is late or not; bound: five deviations."""
    work = Stragglers(0.5, "keep").bind(4, 0)
    clients = torch.arange(4)
    pairs = [(bool(work.late(t, clients)[0]), int(work.part(t, clients)[0])) for t in range(2000)]
    late = [k for is_late, k in pairs if is_late]
    assert abs(sum(late) / len(late) - 2.5) < 5 * (1.25 / len(late)) ** 0.5


def test_dropping_everybody_is_an_empty_round():
    """The model stays, nothing is sent, and the pattern's statistics count the selected."""
    recorded, module = fit(quadratics(A, B), x0=[3.0, 3.0], rounds=3, work=Stragglers(1.0))
    for x in recorded.x:
        assert x.tolist() == [3.0, 3.0]
    assert recorded.bits == [(0, 0)] * 3
    assert module.totals()["participation/dropped"] == 9
    pattern = module.trainer.datamodule.participation
    assert (pattern.turns.tau_max, pattern.turns.counts.tolist()) == (0, [3, 3, 3])


def test_dropped_clients_are_as_good_as_not_selected():
    work, everyone = Stragglers(1 / 3), torch.arange(3)
    late, module = fit(quadratics(A, B), x0=[3.0, 3.0], rounds=4, work=work)
    cohorts = [everyone[~work.late(t, everyone)].tolist() for t in range(4)]
    assert [len(c) for c in cohorts] == [2] * 4
    rest, _ = fit(quadratics(A, B), x0=[3.0, 3.0], cohorts=cohorts)
    assert torch.equal(torch.stack(late.x), torch.stack(rest.x))
    assert late.bits == rest.bits
    assert module.lost == {"dropped": 4}


def test_kept_stragglers_are_nobodys_loss():
    _, module = fit(quadratics(A, B), rounds=2, work=Stragglers(0.5, "keep"))
    assert "participation/dropped" not in module.totals()


def test_nobody_misses_the_initial_visit():
    sgd = LocalSGD(lr=0.1, steps=4, batch_size=None)
    source = FederatedDataModule(
        quadratics(A, B), Full().bind(3, 0), sgd, 0, torch.float64, Stragglers(1.0)
    )
    first = source.cohort(-1, range(3))
    assert (first.clients.tolist(), first.plan.steps.tolist()) == ([0, 1, 2], [4, 4, 4])
    assert source.cohort(0, range(3)).plan is None
    start, _ = fit(
        quadratics(A, B), rounds=1, algorithm=FedCDR(eta=0.5, init="prox_mean"), work=Stragglers(1)
    )
    assert start.x[0].any()  # the mean of all clients' first prox


@pytest.mark.parametrize("policy", ["drop", "keep"])
def test_strategies_agree(policy):
    loop, stacked = (
        fit(quadratics(A, B), rounds=4, work=Stragglers(0.5, policy), strategy=s)[0]
        for s in ("loop", "stacked")
    )
    torch.testing.assert_close(torch.stack(loop.x), torch.stack(stacked.x), rtol=1e-12, atol=1e-12)


def experiment(**changes):
    raw = {
        "participation": {"kind": "uniform", "per_round": 5},
        "client": {"epochs": 3},
        "work": {"kind": "stragglers", "fraction": 0.5},
        "rounds": 6,
        "eval_every": 2,
    }
    return small_digits.experiment(**{**raw, **changes})


def test_a_resumed_run_goes_on_counting(tmp_path):
    whole = run(experiment())
    assert [row["participation/dropped"] for row in whole.history] == [4, 8, 12]
    assert whole.metrics["participation/dropped"] == 12
    resumed = small_digits.cut_off_and_resumed(experiment(), 6, tmp_path / "run.ckpt")
    assert resumed.history == whole.history


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ({"most": 4}, "work: most = 4 is above 3, the nominal epochs or steps"),
        ({"most": 0}, "work.most: found 0; should be greater than or equal to 1"),
        ({"fraction": 1.5}, "work.fraction: found 1.5; should be less than or equal to 1"),
        ({"policy": "dropp"}, "work.policy: found 'dropp'; must be one of drop, keep; did you"),
        ({"share": 0.5}, "work.share: unknown key"),
        (
            {"kind": "straglers"},
            "work.kind: unknown local work 'straglers'; did you mean 'stragglers'?; known: ",
        ),
    ],
    ids=str,
)
def test_what_is_wrong_has_its_dotted_key(work, message):
    with pytest.raises(ConfigError) as caught:
        experiment(work={"kind": "stragglers", **work})
    (found,) = caught.value.problems
    assert found.startswith(message)


def test_work_per_client_must_fit_the_clients():
    with pytest.raises(ConfigError, match="work: amounts has 2 entries for 12 clients"):
        experiment(work={"kind": "per_client", "amounts": [1, 2]})
