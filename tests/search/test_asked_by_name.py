"""Commands that name a search which there is not, or ask of one what cannot be had."""

import pytest

from fltune.search.config import SearchConfig
from fltune.search.state import SearchState

METHODS = {
    "FedAvg": {"space": {"client.lr": {"grid": [0.1, 0.2]}}},
    "FedGM": {"server": "fedgm", "space": {"server.lr": {"loguniform": [0.5, 2.0]}}},
}


@pytest.fixture
def known(tmp_path):
    """A folder with a search that has begun, and the option that names it."""
    root = tmp_path / "mlruns"
    state = SearchState(root / "searches" / "digits-1")
    state.lock()
    state.freeze(SearchConfig.parse({"methods": METHODS}).as_yaml())
    state.release()
    return ["--set", f"tracking.root={root}"]


@pytest.mark.parametrize("command", ["resume", "extend", "explain", "sync"])
def test_a_search_that_there_is_not_is_exit_code_2_with_the_nearest(call, known, command):
    name = "digits-2/FedGM#0" if command == "explain" else "digits-2"
    code, out, err = call(command, name, *known)
    assert (code, out) == (2, "")
    assert "no search named 'digits-2'; did you mean 'digits-1'?" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["explain", "digits-1"], "write SEARCH/METHOD#NUMBER"),
        (["explain", "digits-1/FedGN#0"], "no method 'FedGN'; did you mean 'FedGM'?"),
        (["explain", "digits-1/FedGM#7"], "FedGM has no trial 7; there are none so far"),
        (["resume", "digits-1", "--set", "search.trials=9"], "search.trials: cannot change now"),
        (["extend", "digits-1", "--set", "client.lr=1"], "an extension cannot change what a trial"),
        (
            ["extend", "digits-1", "--set", "methods.FedGN.space.server.lr={grid: [1, 2]}"],
            "names no method; known: FedAvg, FedGM",
        ),
    ],
)
def test_what_cannot_be_asked_of_a_search_is_exit_code_2(call, known, argv, message):
    code, out, err = call(*argv, *known)
    assert (code, out) == (2, "")
    assert message in err
