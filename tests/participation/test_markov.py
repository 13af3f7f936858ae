from itertools import groupby

import pytest
import torch

from fltune.participation.bernoulli import Bernoulli
from fltune.participation.markov import Blocks, Markov
from fltune.participation.trace import record


def presence(pattern, rounds):
    """bool [rounds, N]: who took part when."""
    there = torch.zeros(rounds, pattern.num_clients, dtype=torch.bool)
    for t, cohort in enumerate(record(pattern, rounds)):
        there[t, cohort] = True
    return there


def spells(there):
    """Lengths of the stretches in which clients are there, those at the ends of time left out."""
    runs = [[(on, len(list(g))) for on, g in groupby(column)] for column in there.T.tolist()]
    return [length for run in runs for on, length in run[1:-1] if on]


def test_chains_are_there_for_their_share():
    """20 clients a share, 2000 rounds, autocorrelation 1 - leave - come: five deviations."""
    shares = [0.1, 0.5, 0.8]
    pattern = Markov(each=[p for p in shares for _ in range(20)], mean_spell=8).bind(60, 0)
    found = presence(pattern, 2000).double().mean(0).view(3, 20).mean(1)
    for p, mean in zip(shares, found.tolist(), strict=True):
        memory = 1 - (1 + p / (1 - p)) / 8
        deviation = (p * (1 - p) * (1 + memory) / (1 - memory) / (20 * 2000)) ** 0.5
        assert mean == pytest.approx(p, abs=5 * deviation)


def test_chains_go_on_from_where_they_were():
    whole, stopped, resumed = (Markov(0.5, mean_spell=6).bind(40, 0) for _ in range(3))
    start = record(stopped, 5)
    resumed.load_state_dict(stopped.state_dict())
    assert start + record(resumed, 5) == record(whole, 10)


def test_chains_start_in_their_stationary_state():
    """Binomial(2000, 0.3) in each of the first rounds; five standard deviations are 103."""
    drawn = record(Markov(0.3, mean_spell=20).bind(2000, 0), 4)
    assert all(abs(len(cohort) - 600) < 103 for cohort in drawn)


def test_spells_last_as_long_as_they_should():
    """Geometric with mean 6 and variance 30; over n spells five deviations are 5 sqrt(30 / n)."""
    found = spells(presence(Markov(0.4, mean_spell=6).bind(50, 0), 1000))
    assert len(found) > 2000
    assert sum(found) / len(found) == pytest.approx(6, abs=5 * (30 / len(found)) ** 0.5)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.9])
def test_spells_of_independent_coins_are_bernoulli(p):
    chain = Markov(p, mean_spell=1 / (1 - p)).bind(30, 4)
    assert record(chain, 40) == record(Bernoulli(p).bind(30, 4), 40)


def test_shares_of_nothing_and_everything():
    for pattern in (Markov(each=[0, 1], mean_spell=3), Blocks(each=[0, 1], cycle=3)):
        assert record(pattern.bind(2, 0), 12) == [[1]] * 12
    assert record(Markov(1.0, mean_spell=2).bind(3, 0), 5) == [[0, 1, 2]] * 5


def test_spells_that_leave_no_room_for_absences_are_refused():
    with pytest.raises(ValueError, match=r"mean_spell = 3 .* 0\.8 of the time.* p / \(1 - p\) = 4"):
        Markov(0.8, mean_spell=3)
    with pytest.raises(ValueError, match=r"there 0\.9 of the time"):
        Markov(each=[0.1, 0.9], mean_spell=5)
    Markov(0.8, mean_spell=4)  # away for exactly one round each time


@pytest.mark.parametrize("kind", [Markov, Blocks])
def test_shares_that_do_not_fit_are_refused(kind):
    with pytest.raises(ValueError, match="each has 1 shares for 3 clients"):
        kind(each=[0.1]).bind(3, 0)


def test_binding_starts_the_chains_anew():
    pattern = Markov(0.5, mean_spell=9).bind(8, 0)
    first = record(pattern, 6)
    assert record(pattern.bind(8, 0), 6) == first


def test_blocks_are_one_stretch_of_every_cycle():
    there = presence(Blocks(0.3, cycle=20).bind(50, 0), 60)
    assert torch.equal(there[:20], there[20:40])  # the same in every cycle
    assert there[:20].sum(0).tolist() == [6] * 50
    assert set(spells(there)) == {6}


def test_blocks_of_broken_length_have_their_share_on_average():
    """2.3 rounds of 10: two, or three with probability 0.3; five deviations of 400 are 0.115."""
    made = presence(Blocks(0.23, cycle=10).bind(400, 0), 10).sum(0).double()
    assert set(made.tolist()) == {2, 3}
    assert float(made.mean()) == pytest.approx(2.3, abs=0.115)


def test_phases_are_spread_over_the_cycle():
    """Binomial(400, 0.2) in each of 10 rounds; five standard deviations are 40."""
    sizes = presence(Blocks(0.2, cycle=10).bind(400, 0), 10).sum(1)
    assert float((sizes - 80).abs().max()) < 40
    one, other = (record(Blocks(0.2, cycle=10).bind(400, seed), 1) for seed in (0, 1))
    assert one != other


@pytest.mark.parametrize("pattern", [Markov(0.5, mean_spell=8), Blocks(0.5)])
def test_the_server_may_ask_only_some_of_those_who_are_there(pattern):
    everyone = record(pattern.bind(20, 0), 300)
    pattern.at_most = 4
    asked = record(pattern.bind(20, 0), 300)
    for some, there in zip(asked, everyone, strict=True):
        assert set(some) <= set(there)
        assert len(some) == min(4, len(there))
    assert len({tuple(c) for c in asked}) > 100
