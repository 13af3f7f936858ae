import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune import dotted
from fltune.experiment import Experiment
from fltune.federation.delays import RecordedDelays, UniformDelays
from fltune.federation.work import UniformWork
from fltune.randomness import client_keys, client_normals, visit_keys
from fltune.runner import build, run

ids_of = st.lists(st.integers(0, 6), max_size=12)


@settings(max_examples=60)
@given(ids_of, st.integers(0, 99), st.integers(-1, 99))
def test_every_visit_has_a_key_of_its_own(ids, seed, t):
    clients = torch.tensor(ids, dtype=torch.int64)
    keys = visit_keys(seed, t, clients).tolist()
    assert len(set(keys)) == len(ids)
    alone = client_keys(seed, t, clients).tolist()
    for k in {i: k for k, i in reversed(list(enumerate(ids)))}.values():  # first visits
        assert keys[k] == alone[k]  # whoever else comes, and however often
    order = sorted(range(len(ids)), key=lambda k: ids[k])
    again = visit_keys(seed, t, clients[order]).tolist()
    assert again == [keys[k] for k in order]


def test_a_client_that_arrives_twice_draws_its_own_work_and_delay():
    """16 draws of 1000 are all alike once in 10^45."""
    clients = torch.full((16,), 3)
    delays = UniformDelays(1000).bind(0).draw(2000, clients)
    amounts = UniformWork(1, 1000).bind(1, 0).amount(2000, clients)
    for drawn in (delays, amounts):
        assert len(set(drawn.tolist())) > 1
    assert delays[0] == UniformDelays(1000).bind(0).draw(2000, torch.tensor([3]))
    assert amounts[0] == UniformWork(1, 1000).bind(1, 0).amount(2000, torch.tensor([3]))


@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 99))
def test_uniform_work_is_each_amount_from_low_to_high(low, more, seed):
    """Of 500 clients none draws one of six amounts once in 10^38."""
    work = UniformWork(low, low + more).bind(1, seed)
    assert set(work.amount(3, torch.arange(500)).tolist()) == set(range(low, low + more + 1))


def test_normal_numbers():
    """20,000 numbers: mean, variance and tails within five standard errors."""
    z = torch.cat([client_normals(0, "test", t, torch.arange(100)) for t in range(200)])
    n = len(z)
    assert z.isfinite().all()
    assert abs(z.mean()) < 5 / n**0.5
    assert abs(z.var() - 1) < 5 * (2 / n) ** 0.5
    outside = float((z.abs() > 1.959964).double().mean())
    assert abs(outside - 0.05) < 5 * (0.05 * 0.95 / n) ** 0.5
    assert not torch.equal(z[:100], client_normals(0, "other", 0, torch.arange(100)))


def test_draws_of_two_purposes_are_unrelated():
    clients = torch.arange(2000)
    delays = UniformDelays(10).bind(0).draw(50, clients)
    amounts = UniformWork(1, 10).bind(1, 0).amount(50, clients)
    one, other = delays.double(), amounts.double()
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 5 / 2000**0.5


@pytest.mark.parametrize(
    ("rounds", "text"), [([], "rounds is empty"), ([[0], [1, -1]], "rounds = .* must be >= 0")]
)
def test_recorded_delays_are_checked(rounds, text):
    with pytest.raises(ValueError, match=text):
        RecordedDelays(rounds)


@pytest.mark.parametrize("ages", [[1], [1, 0, 2, 0]])
def test_recorded_delays_are_those_of_the_cohort(ages):
    delays = RecordedDelays([[0, 0, 0], ages])
    assert delays.draw(2, torch.arange(3)).tolist() == [0, 0, 0]
    text = f"{len(ages)} are recorded for round 3, in which 3 clients are selected"
    with pytest.raises(ValueError, match=text):
        delays.draw(3, torch.arange(3))


AUTONOMOUS = """
data: {name: digits, clients: 100, partition: {kind: dirichlet_class, alpha: 0.5}}
model: {name: mlp, hidden: [8]}
participation: {kind: uniform, per_round: 5}
client: {lr: 0.01, epochs: 3, batch_size: 32}
work: {kind: uniform, low: 1, high: 6}
algorithm: {name: autonomous, window: WINDOW}
delays: {kind: uniform, window: WINDOW}
server: {name: fedgm, lr: 3.0, beta: 0.9, nu: 0.9}
rounds: 3
device: cpu
"""


@pytest.mark.parametrize("window", [5, 10])
def test_the_autonomous_experiment_can_be_said_in_a_file(window):
    """Sun et al. (2024), H.1 and H.4: the windows of Figures 1 and 9."""
    raw = dotted.load_yaml(AUTONOMOUS.replace("WINDOW", str(window)))
    experiment = Experiment.parse(raw)
    result = run(experiment)
    assert result.rounds == 3
    assert result.metrics["val/loss"] < 2.4
    source = build(experiment).datamodule
    seen = [source.cohort(t, range(100)) for t in (0, 2, 50)]
    for cohort, ages in zip(seen, (1, 3, window), strict=True):
        assert set(cohort.delays.tolist()) == set(range(ages))
        passes = cohort.plan.steps / (-(cohort.sizes // -32))
        assert set(passes.tolist()) == {1, 2, 3, 4, 5, 6}
