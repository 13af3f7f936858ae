"""What is said of one trial, and the command that runs it alone."""

import io
import shlex

import pytest
from lanes import RAW, UNTUNED, end, finish, make_lanes, take
from rich.console import Console

import fltune
from fltune.cli import main
from fltune.errors import ConfigError
from fltune.report.explain import curve, explain, find_trial, parse_trial
from fltune.search.config import SearchConfig


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("digits-1/FedGM#3", ("digits-1", "FedGM", 3)),
        ("digits/a/b#2#10", ("digits", "a/b#2", 10)),
        ("digits/FedAvg @ P1, mild#0", ("digits", "FedAvg @ P1, mild", 0)),
    ],
)
def test_a_trial_is_named_by_search_method_and_number(text, parts):
    assert parse_trial(text) == parts


@pytest.mark.parametrize("text", ["digits", "digits/FedGM", "digits/FedGM#x", "/FedGM#1", "d/#1"])
def test_what_names_no_trial_is_refused(text):
    with pytest.raises(ConfigError, match="write SEARCH/METHOD#NUMBER"):
        parse_trial(text)


def test_what_is_not_there_is_refused_with_the_nearest():
    lanes = make_lanes()
    with pytest.raises(ConfigError, match="no method 'FedGN'; did you mean 'FedGM'"):
        find_trial(lanes, "FedGN", 0)
    with pytest.raises(ConfigError, match="FedGM has no trial 3; there are none so far"):
        find_trial(lanes, "FedGM", 3)


def told(lane, number, path):
    console = Console(file=io.StringIO(), width=80)
    found = explain(lane, lane.candidates[number], path, console)
    return found, console.file.getvalue()


def test_it_says_rank_values_reason_and_curves(tmp_path):
    lane = make_lanes()["FedGM"]
    for score in (0.5, 0.9, 0.7):
        end(lane, take(lane), score, message="completed")
    found, text = told(lane, 2, tmp_path / "frozen.yaml")
    assert (found["rank"], found["of"], found["status"]) == (2, 3, "complete")
    assert found["ranks_by_round"] == {2: (2, 3), 4: (2, 3)}
    for part in ("FedGM #2: complete, rank 2 of 3", "server.lr = 2", "completed", "2/3", "0.7 .. "):
        assert part in text


def test_a_config_that_is_confirmed_without_a_trial_says_so(tmp_path):
    lane = make_lanes(UNTUNED)["FedGM"]
    finish(lane, lambda record: (0.5, 0.5))
    found, text = told(lane, 0, tmp_path / "frozen.yaml")
    assert (found["status"], found["scores"], found["ranks_by_round"]) == ("complete", [], {})
    assert "confirmed without a trial" in text
    assert found["command"]


def test_the_reason_is_that_of_the_run_that_decided(tmp_path):
    lane = make_lanes(seeds=3, deterministic=True)["FedGM"]
    end(lane, first := take(lane), 0.5, message="completed 4 rounds")
    end(lane, take(lane), 0.5, message="completed 4 rounds")
    assert told(lane, first.number, tmp_path / "frozen.yaml")[0]["reason"] == "it has not ended yet"
    while (record := take(lane)) is not None and record.number == first.number:
        end(lane, record, 0.0, "diverged", message="diverged in round 3")
    found, text = told(lane, first.number, tmp_path / "frozen.yaml")
    assert (found["status"], found["reason"]) == ("diverged", "diverged in round 3")
    assert "completed 4 rounds" not in text


def test_a_trial_that_breaks_a_constraint_says_so(tmp_path):
    lane = make_lanes(constraints={"val/accuracy": {"max": 0.8}})["FedGM"]
    end(lane, take(lane), 0.9, message="completed", violations=[0.125])
    end(lane, take(lane), 0.5, message="completed", violations=[-0.375])
    found, _ = told(lane, 0, tmp_path / "frozen.yaml")
    assert (found["rank"], found["reason"]) == (None, "completed; it breaks a constraint")
    assert told(lane, 1, tmp_path / "frozen.yaml")[0]["reason"] == "completed"


def test_ties_are_written_out(tmp_path):
    space = {"client.lr": {"grid": [0.1, 0.2]}, "server.lr": {"tied": "0.1 / client.lr"}}
    lane = make_lanes({**RAW, "methods": {"A": {"space": space}}})["A"]
    end(lane, take(lane), 0.5)
    found, text = told(lane, 0, tmp_path / "frozen.yaml")
    assert found["meaning"] == {"server.lr": pytest.approx(1.0)}
    assert "so that server.lr = 1" in text


@pytest.mark.parametrize("name", ["FedAvg", "it's/a #1 [b]"])
def test_the_command_runs_the_same_experiment(tmp_path, capsys, name):
    raw = {**RAW, "methods": {name: {**RAW["methods"]["FedAvg"], "seed": 5}}}
    raw["methods"][name]["space"] = {"server.lr": {"grid": [0.5, 1.0]}}
    frozen = tmp_path / "the frozen.yaml"
    frozen.write_text(SearchConfig.parse({**raw, "search": RAW["search"]}).as_yaml())
    lane = make_lanes(raw)[name]
    first = take(lane)
    end(lane, first, 0.5)
    found, text = told(lane, 0, frozen)
    assert found["command"] in text
    argv = shlex.split(found["command"])
    assert argv[:3] == ["python", "-m", "fltune"]
    with pytest.raises(SystemExit) as ended:
        main([*argv[3:], "--json"])
    assert not ended.value.code
    import json

    alone = json.loads(capsys.readouterr().out.splitlines()[-1])
    trial = fltune.run(lane.method.experiment({**first.values, "seed": first.seed}))
    assert alone["metrics"] == trial.metrics


def test_a_curve_is_bars_between_named_ends():
    assert curve([0.0, 0.5, 1.0]) == "▁▅█  0 .. 1, last 1"
    assert curve([None, float("nan")]) == "no values"
    assert len(curve([0.1] * 500).split()[0]) == 60
