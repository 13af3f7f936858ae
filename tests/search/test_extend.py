"""What an extension may change: never what the trials there are were."""

import shlex

import pytest
from fake_workers import DRAWN, Disk, Night, config_of, well

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.search import _refuse_other_trials, compare, extend
from fltune.search.session import Session

LR = {"grid": [0.25, 0.5]}
WIDER = "server.lr={grid: [0.25, 0.5, 1.0]}"


def extended(tmp_path, space, *settings):
    """A finished search of one method, and the same extended."""
    disk = Disk(tmp_path)
    config = config_of({"A": {"space": {"server.lr": LR, **space}}})
    Night(config, disk, end=well).work()
    disk.freeze(config.as_yaml())
    before = SearchConfig.read(disk.frozen)
    chosen = [f"methods.A.space.{s}" for s in settings]
    return before, SearchConfig.read(disk.frozen, chosen), disk.records()


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (10, ["client.steps=20"]),
        (10, ["client.steps={grid: [10, 20]}"]),
        ({"tied": "5 / server.lr"}, ["client.steps={tied: 10 / server.lr}"]),
        (
            {"paired": [10, 20], "with": "server.lr"},
            ["client.steps={paired: [5, 10, 20], with: server.lr}", WIDER],
        ),
        (
            {"paired": [10, 20], "with": "server.lr"},
            ["client.steps={paired: [20, 30], with: server.lr}", "server.lr={grid: [0.5, 1.0]}"],
        ),
    ],
)
def test_it_cannot_change_what_a_trial_was(tmp_path, entry, settings):
    before, after, records = extended(tmp_path, {"client.steps": entry}, *settings)
    with pytest.raises(ConfigError) as error:
        _refuse_other_trials(before, after, records)
    (problem,) = error.value.problems
    assert problem.startswith("methods.A.space.client.steps: an extension cannot change what a")


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        (10, [WIDER]),
        ({"tied": "5 / server.lr"}, [WIDER]),
        (
            {"paired": [10, 20], "with": "server.lr"},
            ["client.steps={paired: [10, 20, 40], with: server.lr}", WIDER],
        ),
        ({"grid": [10, 20]}, ["client.steps={grid: [5, 10]}"]),
        ({"grid": [10, 20]}, ["server.beta={grid: [0.5, 0.9]}"]),
        (10, ["server.nu=0.9"]),  # its own value
    ],
)
def test_it_may_widen_narrow_and_add(tmp_path, entry, settings):
    before, after, records = extended(tmp_path, {"client.steps": entry}, *settings)
    _refuse_other_trials(before, after, records)


@pytest.mark.parametrize(("seeds", "problems"), [(3, 0), (4, 0), (2, 1)])
def test_a_winner_is_never_confirmed_on_seeds_that_chose_it(tmp_path, seeds, problems):
    """Fresh seeds are those after the search's: of fewer, some would not be fresh."""
    disk = Disk(tmp_path)
    config = config_of({"A": DRAWN}, seeds=3)
    disk.freeze(config.as_yaml())
    before = SearchConfig.read(disk.frozen)
    after = SearchConfig.read(disk.frozen, [f"search.seeds={seeds}"])
    if not problems:
        _refuse_other_trials(before, after)
        return
    with pytest.raises(ConfigError) as error:
        _refuse_other_trials(before, after)
    assert error.value.problems == [
        "search.seeds: found 2; the search has run on 3, and a winner is not to be confirmed on "
        "seeds that chose it; must be 3 or more"
    ]


@pytest.fixture
def capped(tmp_path, monkeypatch):
    """The settings that find a search which has spent a cap, and cannot be run."""
    monkeypatch.setattr(Session, "run", lambda session, again: session)
    disk = Disk(tmp_path / "searches" / "capped")
    disk.folder.mkdir(parents=True)
    config = config_of({"A": DRAWN}, max_client_samples=1600)  # 800 a trial
    Night(config, disk, end=well).work()
    disk.freeze(config.as_yaml())
    return [f"tracking.root={tmp_path}"]


@pytest.mark.parametrize("more", [{"trials": 4}, {"settings": ["search.trials=10"]}])
def test_more_trials_are_refused_where_a_cap_is_spent(capped, more):
    settings = [*capped, *more.get("settings", [])]
    with pytest.raises(ConfigError) as error:
        extend("capped", more.get("trials", 0), settings)
    assert str(error.value) == (
        "search.max_client_samples (1600) is spent: none of the trials would start; raise it too, "
        "with --set search.max_client_samples=..."
    )


@pytest.mark.parametrize(
    ("trials", "settings"),
    [(4, ["search.max_client_samples=9000"]), (4, ["search.max_client_samples=null"])],
)
def test_with_a_larger_cap_they_are_not(capped, trials, settings):
    assert extend("capped", trials, [*capped, *settings]).config.settings.search.trials == 10


def test_what_needs_no_trial_is_added_all_the_same(capped):
    session = extend("capped", 0, [*capped, "search.confirm_seeds=5"])
    assert session.config.settings.search.confirm_seeds == 5


def test_the_page_names_the_cap_and_what_it_has_cost(capped):
    warnings = compare("capped", capped).warnings
    assert warnings[0] == "search.max_client_samples (1600) was spent: A ran 2 of 6 trials"


# a wider space


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Make a search of some methods that has ended and cannot run; the settings that find it."""
    monkeypatch.setattr(Session, "run", lambda session, again: session)

    def make(methods):
        disk = Disk(tmp_path / "searches" / "night")
        disk.folder.mkdir(parents=True)
        config = config_of(methods)
        Night(config, disk, end=well).work()
        disk.freeze(config.as_yaml())
        return [f"tracking.root={tmp_path}"]

    return make


WIDE = "methods.A.space.server.lr={loguniform: [0.1, 40.0]}"


@pytest.mark.parametrize("more", [[WIDE], [WIDE, "search.confirm_seeds=3"]])
def test_a_wider_range_from_which_nothing_would_be_drawn_is_refused(ended, more):
    """Its edges would no longer be named, though nothing was tried beyond them."""
    where = ended({"A": DRAWN, "B": DRAWN})
    with pytest.raises(ConfigError) as error:
        extend("night", 0, [*where, *more])
    assert str(error.value) == (
        "methods.A.space.server.lr: the changed space gets no new trial: add --trials 6, or as "
        "many as it is worth"
    )


@pytest.mark.parametrize(("trials", "more"), [(1, [WIDE]), (0, [WIDE, "search.trials=7"])])
def test_with_more_trials_it_is_searched(ended, trials, more):
    where = ended({"A": DRAWN})
    assert not next(iter(extend("night", trials, [*where, *more]).lanes().values())).spent


@pytest.mark.parametrize("more", ["search.confirm_seeds=3", "search.seeds=2"])
def test_a_space_that_stays_needs_no_trials(ended, more):
    where = ended({"A": DRAWN})
    assert extend("night", 0, [*where, more]).lanes()["A"].spent


def test_a_wider_list_runs_its_new_cells_without(ended):
    where = ended({"A": {"space": {"server.lr": LR}}, "B": DRAWN})
    session = extend("night", 0, [*where, f"methods.A.space.{WIDER}"])
    assert session.lanes()["A"].next()["searched"] == {"server.lr": 1.0}


def test_the_command_of_an_edge_searches_beyond_it(ended):
    narrow = {"space": {"server.lr": {"loguniform": [0.1, 0.3]}}, "points": [{"server.lr": 0.3}]}
    where = ended({"A": narrow})
    _, _, _, *words = shlex.split(compare("night", where).warnings[0].partition("beyond: ")[2])
    assert words[:2] == ["extend", "night"]
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    lane = extend("night", int(words[words.index("--trials") + 1]), settings).lanes()["A"]
    drawn = [lane.next()["searched"]["server.lr"] for _ in range(6)]
    assert max(drawn) > 0.3
