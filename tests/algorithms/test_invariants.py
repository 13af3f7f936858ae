"""Where each invariant of the method specification is tested, and those that had no test.

 1  FedGM with nu = 0 or beta = 0 is FedAvg
        federation/test_reductions.py::test_reduces_to_fedavg_to_the_last_bit
 2  FedGM with nu = 1 is FedAvgM
        federation/test_reductions.py::test_equal_up_to_rounding
 3  FedGM with nu = beta is FedNAG
        federation/test_reductions.py::test_equal_up_to_rounding
 4  z = x - W1 d moves by -eta_s D, over the borders of stages too
        federation/test_reductions.py::test_z_moves_by_the_rate_times_d
 5  Autonomous with equal K and fresh models is FedGM with eta / K
        algorithms/test_stale_invariants.py::
            test_autonomous_with_fresh_models_and_equal_steps_is_fedgm_with_eta_over_k
 6  CyCP: GD is SGD with one step, SSGD of one component is GD
        algorithms/test_fedprox_fednova_invariants.py::
            test_gd_is_one_step_of_sgd_and_shuffled_sgd_of_one_component
    one group is FedAvg; a client is away for Kbar rounds or more
        here::test_cycles
 7  FedSUM: y is the sum of h_i, and x moves along it
        algorithms/test_fedsum_scaffold_invariants.py::test_fedsum_y_sums_h_and_moves_x
 8  FedSUM with K = 1 is FedSUM-B and MIFA
        algorithms/test_fedsum_scaffold_invariants.py::test_one_step_fedsum_is_fedsum_b_and_mifa
 9  FedSUM-CR is FedSUM with all clients and in round 0
        algorithms/test_fedsum_scaffold_invariants.py::
            test_fedsum_cr_is_fedsum_with_all_clients_and_in_round_0
10  FedSUM-B with all clients is gradient descent
        algorithms/test_fedsum_scaffold_invariants.py::
            test_fedsum_b_with_all_clients_is_gradient_descent
11  without compression FedPAQ and FedCOM are FedAvg, FedCOMGATE is FedGATE
        algorithms/test_fedgate_invariants.py::test_without_compression
12  FedCOM with gamma = 1 is FedPAQ where Q scales with its input
        algorithms/test_fedgate_invariants.py::test_a_compressor_that_scales_with_its_input
13  FedGATE: the deltas sum to 0; SCAFFOLD II; one client; the printed divisor
        algorithms/test_fedgate_invariants.py::test_deltas_sum_to_zero,
            test_deltas_sum_to_zero_with_unequal_steps, test_fedgate_is_scaffold_two,
            test_one_client_a_round_is_sequential_fedavg,
            test_the_printed_divisor_breaks_the_zero_sum
14  sparse FedCOMGATE: k = d is FedGATE; nothing is lost
        algorithms/test_fedgate_invariants.py::test_keeping_everything_is_fedgate,
            test_what_was_not_sent_is_in_the_memory
15  quantisers: mean, variance and bound
        federation/test_compression.py::
            test_qsgd_is_unbiased_with_the_variance_of_its_level_probabilities,
            test_affine_is_unbiased_with_the_variance_of_its_code_probabilities,
            test_sparsifiers_lose_at_most_their_bound
16  FedCDR: x = mean xhat; y after an exact prox; Douglas-Rachford; many inner steps
        algorithms/test_fedcdr_invariants.py::test_the_model_is_the_mean_of_all_reflections,
            test_an_exact_prox_leaves_y_at_x_plus_eta_times_the_gradient,
            test_all_clients_and_exact_proxes_are_douglas_rachford,
            test_many_inner_steps_are_an_exact_prox
17  SCAFFOLD: c = mean c_i; c_i is a mean local gradient
        algorithms/test_fedsum_scaffold_invariants.py::test_scaffold_c_is_the_mean_of_all_c_i,
            test_scaffold_c_i_is_the_gradient_it_says
18  FedDC: g = mean g_i
        algorithms/test_feddc_invariants.py::test_feddc_knows_the_means
19  FedProx with mu = 0 is FedAvg
        algorithms/test_fedprox_fednova_invariants.py::
            test_fedprox_without_a_pull_is_fedavg_to_the_last_bit
20  FedNova with equal K is FedAvg
        algorithms/test_fedprox_fednova_invariants.py::test_fednova_with_equal_steps_is_fedavg
21  with all clients FedAU, FedAWE, FedVARP and MIFA are FedAvg
        algorithms/test_fedsum_scaffold_invariants.py::test_fedavg_with_all_clients
22  FedBuff with Z = N and fresh models is FedAvg
        algorithms/test_stale_invariants.py::
            test_fedbuff_with_all_clients_and_fresh_models_is_fedavg
23  the quasi-hyperbolic maps
        golden/test_golden.py::test_momentum_maps
24  order, cohorts and absent clients
        here::test_processing_order_does_not_matter, test_every_method_sees_the_same_cohorts,
            test_absent_clients_keep_their_state; algorithms/test_conformance.py, too
25  communication
        here::test_communication_is_that_of_the_table
"""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from any_method import CLIENTS, Run, Shuffled, case
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import fit, quadratics
from random_problems import problems, property_test, same

from fltune.algorithms import ALGORITHMS
from fltune.algorithms.fedavg import FedAvg
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.work import WorkPerClient
from fltune.participation.bernoulli import Bernoulli
from fltune.participation.cyclic import ReshuffledCyclic
from fltune.participation.full import Full
from fltune.participation.groups import Groups
from fltune.participation.markov import Blocks, Markov
from fltune.participation.trace import record
from fltune.participation.uniform import Uniform
from fltune.participation.with_replacement import WithReplacement

every = pytest.mark.parametrize("name", ALGORITHMS)
TESTS = Path(__file__).parents[1]

DOWN_UP = {
    "fedavg": (1, 1),
    "fedsum_b": (1, 1),
    "fedsum": (2, 1),
    "fedsum_cr": (1, 1),
    "fedpaq": (1, 1),
    "fedcom": (1, 1),
    "fedgate": (2, 1),
    "fedcomgate": (2, 1),
    "fedcomgate_sparse": (2, 1),
    "fedcdr": (1, 1),
    "feddr": (1, 1),
    "autonomous": (1, 1),
    "scaffold": (2, 2),
    "fedprox": (1, 1),
    "feddc": (2, 2),
    "fedau": (1, 1),
    "fedawe": (1, 1),
    "fedvarp": (1, 1),
    "mifa": (1, 1),
    "fednova": (1, 1),
    "fedbuff": (1, 1),
}
"""Floats to and from each active client, in multiples of d: the papers' table."""
SINGLE_NUMBERS = {"fednova": 1}
"""Sent up besides. FedAU's omega is in the table too, but its counters are the server's here."""


def recorded_as(name, problem, **options):
    """Run a method on a random quadratic problem, with unequal steps."""
    chosen = case(name)
    return fit(
        quadratics(problem.A.tolist(), problem.b.tolist()),
        x0=problem.x0,
        cohorts=problem.cohorts,
        algorithm=ALGORITHMS.load(name)(**chosen.settings),
        sgd=LocalSGD(0.05, steps=2, batch_size=None),
        work=WorkPerClient(problem.steps),
        delays=chosen.delays,
        **options,
    )


def test_every_test_named_above_exists():
    found = {}
    for file, names in re.findall(r"^ {8}(\S+)::\s*((?:test_\w+,?\s*)+)", __doc__, re.MULTILINE):
        path = Path(__file__) if file == "here" else TESTS / file
        parts = ast.parse(path.read_text()).body
        there = {part.name for part in parts if isinstance(part, ast.FunctionDef)}
        found[file] = set(re.findall(r"test_\w+", names))
        assert found[file] <= there, file
    assert len(found) == 10
    assert re.findall(r"^ ?(\d+)  ", __doc__, re.MULTILINE) == [str(k) for k in range(1, 26)]


# 6


@property_test(5)
def test_cycles(problem):
    """One group of all clients is FedAvg; nobody comes back within Kbar - 1 rounds."""
    data, n = quadratics(problem.A.tolist(), problem.b.tolist()), problem.clients
    one_group = record(Groups(groups=1, per_round=n).bind(n, 0), 3)
    cyclic, _ = fit(data, x0=problem.x0, cohorts=one_group, algorithm=FedAvg())
    full, _ = fit(data, x0=problem.x0, rounds=3, algorithm=FedAvg())
    assert torch.equal(torch.stack(cyclic.x), torch.stack(full.x))
    for groups in range(1, n + 1):
        cohorts = record(Groups(groups, per_round=1).bind(n, 0), 5 * groups)
        for client in {i for cohort in cohorts for i in cohort}:
            visits = [t for t, cohort in enumerate(cohorts) if client in cohort]
            assert all(b - a >= groups for a, b in pairwise(visits))


# 24


@every
@settings(max_examples=4, deadline=None, derandomize=True)
@given(problem=problems(), seed=st.integers(0, 99))
def test_processing_order_does_not_matter(name, problem, seed):
    """Clients handed over in descending order leave the same model and the same state."""
    chosen, runs = case(name), []
    for source in (FederatedDataModule, Shuffled):
        run = Run(
            name,
            problem.cohorts,
            data=quadratics(problem.A.tolist(), problem.b.tolist()),
            steps=problem.steps,
            seed=seed,
            source=source,
            compressor=chosen.compressor,
        )
        runs.append(run.fit().recorded)
    one, other = runs
    same(one.x, other.x)
    same(one.server, other.server)
    same(one.clients, other.clients)


PATTERNS = {
    "uniform": Uniform(2),
    "reshuffled": ReshuffledCyclic(4),
    "bernoulli": Bernoulli(0.3),
    "groups": Groups(groups=2, per_round=2),
    "with_replacement": WithReplacement(4, multiplicity=True),
    "markov": Markov(0.4, mean_spell=3),
    "blocks": Blocks(0.5, cycle=4, at_most=2),
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_every_method_sees_the_same_cohorts(pattern):
    """Whatever else a method draws, the same seed gives the same S_t; and another seed others."""

    class Listening(FederatedDataModule):
        def cohorts(self, selected, arrivals=None):
            drawn.extend(list(ids) for ids in selected.values())
            return super().cohorts(selected, arrivals)

    seen = set()
    for name in ALGORITHMS:
        drawn = []
        Run(name, pattern, rounds=8, seed=5, source=Listening, keep=False).fit()
        seen.add(str(drawn))
    assert seen == {str(record(pattern.bind(CLIENTS, 5), 8))}
    assert record(pattern.bind(CLIENTS, 6), 8) != drawn


@every
@settings(max_examples=4, deadline=None, derandomize=True)
@given(problem=problems())
def test_absent_clients_keep_their_state(name, problem):
    """Bit for bit, with each strategy."""
    for strategy in ("loop", "stacked"):
        recorded, module = recorded_as(name, problem, strategy=strategy)
        template = module.client_state.template
        before = {k: v.expand(problem.clients, *v.shape) for k, v in template.items()}
        for cohort, after in zip(problem.cohorts, recorded.clients, strict=True):
            absent = [i for i in range(problem.clients) if i not in cohort]
            assert all(torch.equal(after[k][absent], before[k][absent]) for k in before)
            before = after


# 25


def test_the_table_is_complete():
    assert set(DOWN_UP) == set(ALGORITHMS), "a new method needs a row of what it sends"


@every
@settings(max_examples=5, deadline=None, derandomize=True)
@given(problem=problems())
def test_communication_is_that_of_the_table(name, problem):
    """Bits so far are 32 times the table's floats, for every visit."""
    recorded, module = recorded_as(name, problem)
    down, up = (32 * times * module.flat.dimension for times in DOWN_UP[name])
    up += 32 * SINGLE_NUMBERS.get(name, 0)
    visits = 0
    for cohort, bits in zip(problem.cohorts, recorded.bits, strict=True):
        visits += len(cohort)
        assert bits == (visits * down, visits * up)


def test_fedgate_option_one_spares_the_model():
    """A method of the table whose cost hangs on a setting."""
    run = Run("fedgate", Full(), rounds=3, settings={"option": "I"}).fit()
    assert run.recorded.bits[-1] == (3 * CLIENTS * 32 * 5, 3 * CLIENTS * 32 * 5)


def test_fedawe_that_clips_sends_two_models():
    """Another one: the models that its clients started from go up too."""
    run = Run("fedawe", Full(), rounds=3, settings={"clip_norm": 1.0}).fit()
    assert run.recorded.bits[-1] == (3 * CLIENTS * 32 * 5, 2 * 3 * CLIENTS * 32 * 5)
