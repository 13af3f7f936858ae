import pytest
import torch
from quadratics import Recorder, quadratics, trainer

from fltune import theory
from fltune.algorithms.fedavg import FedAvg
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation import FederatedDataModule, FederatedModule, LocalSGD
from fltune.federation.losses import squared_error
from fltune.models.linear import Linear
from fltune.participation.trace import Trace, read_rounds, record
from fltune.participation.with_replacement import WithReplacement
from fltune.pieces import build_participation
from fltune.runner import build, run
from fltune.server.fedgm import FedSGD

P = [0.0, 0.1, 0.2, 0.7]


def test_the_cohort_is_the_set_of_drawn_ids():
    counted = record(WithReplacement(6, multiplicity=True).bind(4, 0), 50)
    assert {len(cohort) for cohort in counted} == {6}
    assert record(WithReplacement(6).bind(4, 0), 50) == [sorted(set(c)) for c in counted]


def test_more_draws_than_clients_are_allowed():
    (cohort,) = WithReplacement(40).bind(2, 0)
    assert cohort == [0, 1]


@pytest.mark.parametrize("p", [None, P], ids=["uniform", "given"])
def test_a_client_takes_part_as_often_as_it_should(p):
    """4000 coins for each of 4 clients; five standard deviations are below 0.04."""
    pattern = WithReplacement(3, p).bind(4, 0)
    record(pattern, 4000)
    expected = [theory.visit_probability(p_k, 3) for p_k in p or [0.25] * 4]
    assert (pattern.turns.counts / 4000).tolist() == pytest.approx(expected, abs=0.04)
    assert p is None or pattern.turns.counts[0] == 0


def test_counts_are_multinomial():
    """12,000 draws; five standard deviations are at most 0.023."""
    pattern = WithReplacement(3, P, multiplicity=True).bind(4, 1)
    record(pattern, 4000)
    assert (pattern.turns.counts / 12_000).tolist() == pytest.approx(P, abs=0.023)


def test_draws_by_samples_are_in_proportion_to_what_clients_hold():
    """Shares 0, 0.1, 0.2, 0.7 of ten samples: the cohorts of the same list of probabilities."""
    held = torch.tensor([[0, 0], [1, 0], [1, 1], [4, 3]])
    pattern = WithReplacement(3, by_samples=True, multiplicity=True).bind(4, 1, held)
    given = WithReplacement(3, P, multiplicity=True).bind(4, 1)
    assert record(pattern, 50) == record(given, 50)
    record(pattern, 3950)
    assert (pattern.turns.counts / 12_000).tolist() == pytest.approx(P, abs=0.023)


def test_samples_may_not_be_known():
    with pytest.raises(ValueError, match="by_samples needs the clients' sample counts"):
        WithReplacement(2, by_samples=True).bind(3, 0)
    with pytest.raises(ValueError, match="probabilities and by_samples are both set"):
        WithReplacement(2, [0.5, 0.5], by_samples=True)


def test_a_run_by_samples_is_replayed_from_its_saved_cohorts(tmp_path):
    raw = {
        "data": {"name": "digits", "clients": 6, "partition": {"kind": "dirichlet", "alpha": 0.2}},
        "participation": {
            "kind": "with_replacement",
            "per_round": 4,
            "by_samples": True,
            "multiplicity": True,
        },
        "model": {"name": "mlp", "hidden": [8]},
        "rounds": 4,
        "device": "cpu",
    }
    file = tmp_path / "cohorts.json"
    first = run(raw, save_participation=file)
    sizes = build(Experiment.parse(raw)).datamodule.data.sizes
    pattern = WithReplacement(4, (sizes / sizes.sum()).tolist(), multiplicity=True)
    assert read_rounds(file) == record(pattern.bind(6, 0), 4)
    again = {"kind": "trace", "file": str(file), "multiplicity": True}
    assert run({**raw, "participation": again}).history == first.history


def test_a_config_may_not_draw_by_samples_of_a_regression():
    participation = {"kind": "with_replacement", "per_round": 2, "by_samples": True}
    experiment = Experiment.parse({"participation": participation})
    with pytest.raises(ConfigError, match="participation: by_samples needs the clients' sample"):
        build_participation(experiment, quadratics(A, B))


def test_as_many_clients_stay_unseen_as_expected():
    """Variance of one run below 5.8 (draws exclude each other): five deviations of 200 are 0.85."""
    unseen = []
    for seed in range(200):
        pattern = WithReplacement(5).bind(50, seed)
        record(pattern, 20)
        unseen.append(50 * (1 - pattern.turns.coverage))
    assert sum(unseen) / 200 == pytest.approx(theory.expected_unseen(50, 5, 20), abs=0.85)


def test_the_variation_of_counts():
    """1 / sqrt(R gamma) with N = 500; its estimate has a relative deviation of 1 / sqrt(2 N)."""
    pattern = WithReplacement(25, multiplicity=True).bind(500, 0)
    record(pattern, 200)
    assert pattern.turns.count_cv == pytest.approx((200 * 0.05) ** -0.5, rel=5 / 1000**0.5)


def test_counts_are_as_even_as_the_chernoff_bound_says():
    """gamma R for 30% with probability 75%: at least three quarters of 400 clients are as near."""
    visits = theory.visits_for_even_counts(0.3, 0.75)
    pattern = WithReplacement(40, multiplicity=True).bind(400, 0)
    record(pattern, round(visits / 0.1))
    off = (pattern.turns.counts / pattern.turns.counts.double().mean() - 1).abs()
    assert float((off <= 0.3).double().mean()) >= 0.75
    assert pattern.turns.fairness == pytest.approx(float(off.max()))


def test_shares_written_with_three_digits_are_a_distribution():
    assert record(WithReplacement(2, [0.333, 0.333, 0.333]).bind(3, 0), 20)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([0.5, 0.5], "probabilities has 2 entries for 3 clients"),
        ([0.5, 0.5, 0.5], r"probabilities sum to 1\.5; must be 1"),
        ([-0.5, 1.0, 0.5], r"must be in \[0, 1\]"),
    ],
)
def test_what_is_no_distribution_is_refused(p, message):
    with pytest.raises(ValueError, match=message):
        WithReplacement(2, p).bind(3, 0)


# what a multiplicity does in a round

A, B = [[[1.0]], [[3.0]]], [[-1.0], [1.0]]


def fitted(pattern, algorithm=None, counts=None, strategy="stacked"):
    """One round on two quadratic clients, from x = 2; returns what was recorded."""
    data = quadratics(A, B, counts)
    sgd = LocalSGD(0.1, steps=2, batch_size=None)
    network = Linear(data.input_shape).double()
    network.w.data.fill_(2.0)
    module = FederatedModule(
        network, squared_error, algorithm or FedAvg(), sgd, 2, 1, strategy=strategy
    )
    source = FederatedDataModule(data, pattern.bind(2, 0), sgd, 0, torch.float64)
    recorder = Recorder()
    trainer(1, FedSGD(), recorder).fit(module, source)
    return recorder


@pytest.mark.parametrize("strategy", ["loop", "stacked"])
def test_a_client_drawn_twice_has_twice_the_weight(strategy):
    """The clients end at 1.43 and 1.49 (two steps of 0.1 from 2): (2 x 1.43 + 1.49) / 3 = 1.45."""
    recorded = fitted(Trace([[0, 0, 1]], multiplicity=True), strategy=strategy)
    assert float(recorded.x[0]) == pytest.approx(1.45, rel=1e-12)
    assert recorded.bits == [(2 * 32, 2 * 32)]  # it works, and pays, once


def test_multiplicities_are_weights_like_sample_counts():
    samples = FedAvg(weighting="samples")
    by_draws = fitted(Trace([[0, 0, 1]], multiplicity=True))
    by_samples = fitted(Trace([[0, 1]]), samples, counts=[2, 1])
    assert torch.equal(by_draws.x[0], by_samples.x[0])
    both = fitted(Trace([[0, 0, 1]], multiplicity=True), samples, counts=[3, 1])
    assert float(both.x[0]) == pytest.approx((6 * 1.43 + 1.49) / 7, rel=1e-12)


def test_a_trace_with_repeats_still_means_two_pieces_of_work():
    recorded = fitted(Trace([[0, 0, 1]], repeats=True))
    assert float(recorded.x[0]) == pytest.approx(1.45, rel=1e-12)
    assert recorded.bits == [(3 * 32, 3 * 32)]


def test_a_cohort_counts_in_any_order():
    pattern = Trace([[0]], multiplicity=True).bind(2, 0)
    source = FederatedDataModule(quadratics(A, B), pattern, LocalSGD(), 0)
    cohort = source.cohort(0, [1, 0, 1, 1])
    assert (cohort.clients.tolist(), cohort.shares[0].tolist()) == ([1, 0], [0.75, 0.25])
    empty = source.cohort(0, [])
    assert (empty.clients.tolist(), empty.shares.tolist()) == ([], [[], []])
