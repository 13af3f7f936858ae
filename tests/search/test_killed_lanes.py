"""No kill leaves a trace in a search: whenever it comes, with any workers, in any order."""

import functools

from fake_workers import DRAWN, GRID, config_of, disturbed, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.search.record import TRIAL

SEARCHES = {
    "plain": {},
    "seeds": {"seeds": 3, "confirm_top": 2},
    "asha": {"scheduler": "asha", "grace": 2, "reduction": 2},
    "median": {"scheduler": "median", "grace": 2, "min_trials": 1, "seeds": 2},
    "wider": {"extend_edges": 2},
    "packs": {"pack": 2, "seeds": 2, "confirm_top": 2},
    "packs and asha": {"pack": 3, "scheduler": "asha", "grace": 2, "reduction": 2},
}
BOTH = {"A": DRAWN, "B": GRID}
CUTS = st.lists(
    st.one_of(
        st.tuples(st.just("writes"), st.integers(0, 60)),
        st.tuples(st.just("steps"), st.integers(0, 60)),
    ),
    max_size=3,
)


@functools.cache
def config_and_truth(name):
    config = config_of(BOTH, deterministic=True, batch=3, **SEARCHES[name])
    return config, whole(config)


@given(st.sampled_from(sorted(SEARCHES)), CUTS, st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=25)
def test_a_deterministic_search_is_the_same_whatever_happens(name, cuts, slots, seed):
    config, truth = config_and_truth(name)
    found, repeated = disturbed(config, cuts, slots, seed)
    assert found == truth
    assert not repeated


@given(st.sampled_from(sorted(SEARCHES)), CUTS, st.integers(1, 4), st.integers(0, 99))
@settings(max_examples=20)
def test_no_run_that_ended_is_repeated_and_the_budget_is_kept(name, cuts, slots, seed):
    config = config_of(BOTH, **SEARCHES[name])
    found, repeated = disturbed(config, cuts, slots, seed)
    assert not repeated
    most = 6 + SEARCHES[name].get("extend_edges", 0) * 3
    for method in found.values():
        trials = {number: values for kind, number, values, *_ in method["runs"] if kind == TRIAL}
        assert sorted(trials) == list(range(len(trials)))
        assert 6 <= len(trials) <= most
        assert len(set(trials.values())) == len(trials)
        assert not method["open"]
        assert len(method["reported"]) == (2 if method["winners"] else 0)


def test_the_searches_above_hold_what_can_go_wrong():
    ends = set()
    for name in SEARCHES:
        _, truth = config_and_truth(name)
        ends |= {run[4] for method in truth.values() for run in method["runs"]}
        assert any(method["winners"] for method in truth.values())
    assert ends == {"complete", "diverged", "failed", "pruned"}
    assert any(method["rejected"] for method in config_and_truth("seeds")[1].values())
    assert any(m["batches"][-1][-1] > 5 for m in config_and_truth("wider")[1].values())
