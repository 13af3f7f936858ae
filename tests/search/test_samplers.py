import subprocess
import sys

import pytest

from fltune.search.samplers import SAMPLERS, check_options, make_sampler


@pytest.mark.parametrize(("budget", "startup"), [(1, 1), (2, 1), (9, 3), (24, 8), (300, 10)])
def test_random_trials_are_at_most_a_third_of_a_small_budget(budget, startup):
    for name in ("tpe", "gp"):
        assert make_sampler(name, {}, budget, 0, 0)._n_startup_trials == startup
        own = make_sampler(name, {"n_startup_trials": 7}, budget, 0, 0)
        assert own._n_startup_trials == 7


@pytest.mark.parametrize(("budget", "population"), [(1, 4), (40, 10), (1000, 50)])
def test_a_population_is_at_most_a_quarter_of_a_small_budget(budget, population):
    assert make_sampler("nsga2", {}, budget, 0, 0).population_size == population
    assert make_sampler("nsga2", {"population_size": 6}, budget, 0, 0).population_size == 6


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tpe", {"multivariate": False, "n_ei_candidates": 10}),
        ("tpe", {"group": True}),
        ("qmc", {"qmc_type": "halton", "scramble": False}),
        ("gp", {"deterministic_objective": True}),
        ("cmaes", {"popsize": 6, "use_separable_cma": True}),
        ("nsga2", {"crossover_prob": 1, "mutation_prob": 0.5}),
        ("grid", {}),
    ],
)
def test_options_that_optuna_has(name, options):
    assert check_options(name, options) == []


@pytest.mark.parametrize(
    ("name", "options", "option", "message"),
    [
        ("cmaes", {"sigma0": 1}, "", "deprecated"),
        ("cmaes", {"restart_strategy": "ipop"}, "", "falls back to `None`"),
        ("cmaes", {"lr_adapt": True, "with_margin": True}, "", "prohibited"),
        ("nsga2", {"mutation_prob": None}, "mutation_prob", "found None; should be float"),
        ("tpe", {"constraints_func": "f"}, "constraints_func", "unknown option of tpe"),
        ("random", {"seed": 3}, "seed", "unknown option of random; known: none"),
        ("qmc", {"qmc_type": "faure"}, "", "halton"),
    ],
)
def test_options_that_it_has_not_or_lets_go(name, options, option, message):
    ((found, text),) = check_options(name, options)
    assert found == option
    assert message in text


def test_every_sampler_can_be_made():
    for name, cls in SAMPLERS.items():
        assert type(make_sampler(name, {}, 20, 1, 2)).__name__ == cls


def test_names_and_objectives_need_no_optuna():
    code = (
        "import sys; import fltune.search.objective, fltune.search.rungs, fltune.search.samplers; "
        "assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
