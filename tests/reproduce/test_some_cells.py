"""An experiment of which some cells alone are run: what can still be said of it."""

import io

import pytest
import yaml
from made_by_hand import accuracies, evidence
from rich.console import Console

from fltune.errors import ConfigError
from fltune.reproduce.catalogue import Entry
from fltune.reproduce.claims import FigureSection
from fltune.reproduce.pictures import draw
from fltune.reproduce.readings import Evidence
from fltune.reproduce.reproduction import _facts, _session, about_cells, check_claims, reproduce
from fltune.search.config import SearchConfig
from fltune.search.session import Session

FILE = """
experiment:
  data: {name: digits, clients: 10}
  rounds: 4
methods:
  A: {space: {}}
  B: {server: {name: fedgm}, space: {}}
scenarios:
  data: {one: {}, two: {data.split_seed: 1}}
  rate: {low: {client.lr: 0.1}, high: {client.lr: 0.2}}
figure: {panels: data, where: {rate: low}}
claims:
  anywhere: {says: B leads, statistic: difference, of: B, than: A, above: 0}
  at-two: {says: B leads, statistic: difference, of: B, than: A, where: {data: two}, above: 0}
  rises: {says: It rises, statistic: smallest_step, of: A, along: rate, above: 0}
"""


@pytest.fixture
def entry(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text(FILE)
    return Entry.read(tmp_path / "my.yaml")


def claims_left(entry, *settings):
    planned = Evidence.planned(SearchConfig.read(entry.path, settings))
    left = about_cells(entry, planned)
    return list(left.claims.claims), left.claims.figure.where


def test_claims_about_other_cells_are_left_out(entry):
    assert claims_left(entry) == (["anywhere", "at-two", "rises"], {"rate": "low"})
    assert claims_left(entry, "scenarios.data=one") == (["anywhere", "rises"], {"rate": "low"})
    assert claims_left(entry, "scenarios.rate=high") == (["anywhere", "at-two"], {})


def test_cells_of_which_nothing_is_claimed_are_refused(entry, tmp_path):
    raw = yaml.safe_load(FILE)
    raw["claims"] = {"at-two": raw["claims"]["at-two"]}
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match=r"no claim is about these cells alone \(data: one; rate"):
        claims_left(Entry.read(entry.path), "scenarios.data=one")


def test_a_wrong_claim_is_found_whatever_cells_are_chosen(entry, tmp_path):
    (tmp_path / "my.yaml").write_text(FILE.replace("{data: two}", "{data: three}"))
    with pytest.raises(ConfigError, match=r"claims\.at-two\.where\.data: no label 'three'"):
        reproduce(Entry.read(entry.path), settings=["scenarios.data=one"])


SETTING = "{says: so, statistic: level, of: B, metric: %s, take: setting, above: 0}"
SPACE = """{server.lr: {grid: [1, 2]}, data.val_from: {choice: [pool, clients]},
  server.beta: {tied: "server.lr / 4"}, client.steps: 2,
  client.momentum: {grid: [0, 0.5], when: {server.lr: 2}}}"""


@pytest.mark.parametrize(
    "name", ["data.val_from", "server.beta", "client.steps", "client.momentum"]
)
def test_a_setting_that_is_no_number_of_every_winner_is_refused(entry, name):
    told = FILE.replace("{name: fedgm}, space: {}", f"{{name: fedgm}}, space: {SPACE}")
    sure, unsure = SETTING % "server.lr", SETTING % name
    entry.path.write_text(f"{told}  sure: {sure}\n  unsure: {unsure}\n")
    with pytest.raises(ConfigError) as caught:
        reproduce(Entry.read(entry.path))
    assert {problem.split(":")[0] for problem in caught.value.problems} == {"claims.unsure.metric"}
    assert "a search always sets for 'B @ one, low': server.lr" in caught.value.problems[0]


def test_a_deviation_of_one_evaluation_is_refused(entry):
    sd = "{says: so, statistic: level, of: A, metric: val/loss, take: sd, below: 1}"
    entry.path.write_text(f"{FILE}  calm: {sd}\n")
    with pytest.raises(ConfigError, match=r"claims\.calm\.take: found sd, .* 4 rounds \(rounds\)"):
        reproduce(Entry.read(entry.path), settings=["eval_every=4"])


def test_the_chosen_cells_are_in_the_command_and_paths_are_not(entry, monkeypatch):
    monkeypatch.setattr(Session, "run", lambda *args, **kwargs: None)
    settings = ["scenarios.data=one", "search.concurrent=1", "tracking.root=/tmp/x"]
    outcome = reproduce(entry, seeds=2, settings=settings)
    command = "python -m fltune reproduce my --seeds 2 --set scenarios.data=one"
    assert outcome.facts["command"] == command
    assert [j.claim for j in outcome.judgements] == ["anywhere", "rises"]
    assert _facts(entry, 2, ["client.lr=[1, 2]"])["command"].endswith("--set 'client.lr=[1, 2]'")


def test_a_figure_may_be_of_one_label(entry):
    cells = [{"data": d, "rate": r} for d in ("one", "two") for r in ("low", "high")]
    found = evidence(*(accuracies("A", [0.5, 0.6], **cell) for cell in cells))
    titles = [p.title for p in draw(found, FigureSection(y=["val/accuracy"], panels="data"))]
    assert titles == ["val/accuracy, one", "val/accuracy, two"]
    section = FigureSection(y=["val/accuracy"], panels="data", where={"data": "two"})
    assert [p.title for p in draw(found, section)] == ["val/accuracy, two"]


def test_a_figure_of_no_cell_is_refused(entry, tmp_path):
    raw = yaml.safe_load(FILE)
    raw["figure"] = {"where": {"rate": "lowest", "speed": "low"}}
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(raw))
    wrong = Entry.read(entry.path)
    with pytest.raises(ConfigError) as caught:
        check_claims(wrong, Evidence.planned(SearchConfig.read(wrong.path)))
    assert caught.value.problems == [
        "figure.where.rate: found 'lowest'; there: high, low",
        "figure.where.speed: found 'low'; there: data, rate",
    ]


def test_a_setting_that_came_later_leaves_older_searches_known(entry):
    """The mark that the version before ``search.rounds`` gave; who adds one adds it to LATER."""
    names = [
        _session(SearchConfig.read(entry.path, sets), entry, Console(file=io.StringIO()), True).name
        for sets in ([], ["search.rounds=2"])
    ]
    assert names[0] == "my-0d056d6a8a"
    assert names[1] != names[0]
