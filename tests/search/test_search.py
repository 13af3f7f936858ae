"""One real search of digits, from the command line to the files and MLflow."""

import json
import math
from pathlib import Path

import pytest
import yaml
from scipy import stats
from searched_here import search_here

import fltune
from fltune.cli import main
from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.search import compare, search, sync
from fltune.search.state import SearchState
from fltune.tracking import Store

METHODS = ("FedAvg", "FedGM")


@pytest.fixture(scope="module")
def store(outcome):
    return Store.open(f"sqlite:///{outcome.root / 'mlflow.db'}", "two", outcome.root / "artifacts")


@pytest.fixture(scope="module")
def tree(store):
    """The runs of the search by kind, and the search's own."""
    runs = store.find({"fltune.search": "first"})
    kinds = ("search", "method", "trial", "confirmation")
    return {kind: [r for r in runs if r.tags["fltune.kind"] == kind] for kind in kinds}


@pytest.mark.search
def test_the_json_object_is_what_the_design_promises(outcome):
    found = outcome.json
    assert (found["name"], found["experiment"]) == ("first", "two")
    assert found["tracking_uri"] == f"sqlite:///{outcome.root / 'mlflow.db'}"
    assert tuple(found["methods"]) == METHODS
    for name in METHODS:
        method = found["methods"][name]
        assert method["trials"] == 4
        assert (method["pruned"], method["diverged"], method["failed"]) == (0, 0, 0)
        assert set(method["test"]) == {"mean", "std", "low", "high", "seeds"}
        assert method["test"]["seeds"] == 2
        assert method["test"]["low"] <= method["test"]["mean"] <= method["test"]["high"]
        assert set(method["edges"].values()) <= {"lowest", "highest"}
        spent = [r["client_samples"] for r in outcome.trials(name)]
        assert method["client_samples"] == sum(spent)
        assert len(set(spent)) == 1  # the same cohorts and steps for every trial
    assert set(found["methods"]["FedGM"]["best"]) == {"server.lr", "server.beta"}


@pytest.mark.search
def test_what_is_printed_names_the_methods_and_how_to_see_more(outcome):
    *lines, _ = outcome.printed.splitlines()
    text = "\n".join(lines)
    assert "first: 2 methods, 8 trials, " in text
    assert "tuned methods, best first" in text
    for name in METHODS:
        for value in outcome.json["methods"][name]["best"].values():
            assert f"{value:.4g}" in text
    assert "python -m fltune ui --set tracking.root=" in text


@pytest.mark.search
def test_the_winner_is_the_best_of_its_trials(outcome):
    for name in METHODS:
        trials = outcome.trials(name)
        best = max(trials, key=lambda r: r["scores"][0])
        assert outcome.json["methods"][name]["val"] == best["scores"][0]
        assert outcome.json["methods"][name]["best"] == best["values"]


@pytest.mark.search
def test_a_score_is_the_mean_of_the_last_two_validations(outcome):
    for trial in outcome.trials("FedAvg"):
        assert [row["round"] for row in trial["rows"]] == [2, 4, 6, 8]
        last = [row["val/accuracy"] for row in trial["rows"][-2:]]
        assert trial["scores"] == [sum(last) / 2]


@pytest.mark.search
def test_a_grid_is_walked_and_a_range_stays_inside(outcome):
    cells = [tuple(r["values"].values()) for r in outcome.trials("FedGM")]
    assert cells == [(0.5, 0.7), (0.5, 0.9), (1.5, 0.7), (1.5, 0.9)]
    drawn = [r["values"]["server.lr"] for r in outcome.trials("FedAvg")]
    assert len(set(drawn)) == 4
    assert all(0.3 <= lr <= 3.0 for lr in drawn)


@pytest.mark.search
def test_winners_are_confirmed_on_fresh_seeds_and_nothing_else_sees_the_test_split(outcome):
    for name in METHODS:
        confirmations = outcome.confirmations(name)
        assert {r["seed"] for r in outcome.trials(name)} == {0}
        assert sorted(r["seed"] for r in confirmations) == [1, 2]
        assert all(r["values"] == outcome.json["methods"][name]["best"] for r in confirmations)
        found = [r["metrics"]["test/accuracy"] for r in confirmations]
        test = outcome.json["methods"][name]["test"]
        mean, std = sum(found) / 2, abs(found[0] - found[1]) / math.sqrt(2)
        low, _ = stats.t.interval(0.95, 1, loc=mean, scale=std / math.sqrt(2)) if std else (mean, 0)
        assert (test["mean"], test["std"]) == (pytest.approx(mean), pytest.approx(std))
        assert test["low"] == pytest.approx(low)
        for trial in outcome.trials(name):
            keys = {*trial["metrics"], *(key for row in trial["rows"] for key in row)}
            assert not [key for key in keys if key.startswith("test/")]


@pytest.mark.search
@pytest.mark.parametrize("name", METHODS)
def test_the_winner_alone_is_exactly_what_it_was_in_the_search(outcome, name):
    best = max(outcome.trials(name), key=lambda r: r["scores"][0])
    sets = [f"{key}={value}" for key, value in best["values"].items()]
    result = fltune.run(fltune.load(outcome.file, name, sets), test=False)
    assert result.metrics == best["metrics"]
    assert result.history == best["rows"]
    assert result.comm == best["comm"]
    assert result.client_samples == best["client_samples"]


@pytest.mark.search
@pytest.mark.parametrize("name", METHODS)
def test_a_confirmation_alone_is_exactly_what_it_was_too(outcome, name):
    again = outcome.confirmations(name)[0]
    sets = [f"{key}={value}" for key, value in {**again["values"], "seed": again["seed"]}.items()]
    assert fltune.run(fltune.load(outcome.file, name, sets)).metrics == again["metrics"]


@pytest.mark.search
def test_files_on_disk_hold_the_search_and_every_run(outcome):
    folder = outcome.root / "searches" / "first"
    kept = {path.name for path in folder.iterdir()} - {"lock"}
    assert kept == {"journal.jsonl", "search.yaml", "trials.jsonl"}
    frozen = SearchConfig.read(folder / "search.yaml")
    asked = SearchConfig.read(outcome.file)
    assert {n: m.raw for n, m in frozen.methods.items()} == {
        n: m.raw for n, m in asked.methods.items()
    }
    assert frozen.settings.search == asked.settings.search
    assert len(outcome.records) == 2 * (4 + 2)
    assert {r["status"] for r in outcome.records} == {"complete"}


@pytest.mark.search
def test_mlflow_holds_a_tree_of_search_methods_and_runs(store, tree):
    (top,) = tree["search"]
    assert {run.status for runs in tree.values() for run in runs} == {"FINISHED"}
    assert "mlflow.parentRunId" not in top.tags
    methods = {run.tags["fltune.method"]: run for run in tree["method"]}
    assert sorted(methods) == sorted(METHODS)
    assert {run.tags["mlflow.parentRunId"] for run in tree["method"]} == {top.id}
    for name, method in methods.items():
        for kind, count in (("trial", 4), ("confirmation", 2)):
            own = [run for run in tree[kind] if run.tags["mlflow.parentRunId"] == method.id]
            assert len(own) == count
            assert {run.tags["fltune.method"] for run in own} == {name}
            assert {run.tags["fltune.status"] for run in own} == {"complete"}
    assert top.tags["fltune.source"].endswith("two.yaml")
    assert "| FedAvg |" in top.tags["mlflow.note.content"]


@pytest.mark.search
def test_a_method_run_carries_its_winner_and_its_confirmed_metrics(outcome, store, tree):
    tested = {name: m["test"]["mean"] for name, m in outcome.json["methods"].items()}
    best_first = sorted(tested, key=tested.get, reverse=True)
    rank = {name: place for place, name in enumerate(best_first, start=1)}
    for run in tree["method"]:
        found = outcome.json["methods"][run.tags["fltune.method"]]
        for key, value in found["best"].items():
            assert run.params[key] == str(value)
        assert run.params["client.lr"] == "0.2"
        assert run.params["data.partition.alpha"] == "0.5"
        metrics = store.client.get_run(run.id).data.metrics
        assert metrics["test/accuracy"] == found["test"]["mean"]
        assert metrics["test/accuracy_std"] == found["test"]["std"]
        assert metrics["search/score"] == found["val"]
        assert metrics["search/rank"] == rank[run.tags["fltune.method"]]
        assert run.tags["fltune.winner"] == str(found["winner"])
        counts = [run.tags[f"fltune.{k}"] for k in ("trials", "pruned", "diverged", "failed")]
        assert counts == ["4", "0", "0", "0"]
        steps = [p.step for p in store.client.get_metric_history(run.id, "val/accuracy")]
        assert steps == [2, 4, 6, 8]  # the mean curve, by round


@pytest.mark.search
def test_a_trial_run_has_its_values_its_curve_and_the_config_that_runs_it(outcome, store, tree):
    for run in tree["trial"]:
        record = outcome.trials(run.tags["fltune.method"])[int(run.tags["fltune.trial"])]
        assert run.params == {key: str(value) for key, value in record["values"].items()}
        curve = store.client.get_metric_history(run.id, "val/accuracy")
        rows = [(row["round"], row["val/accuracy"]) for row in record["rows"]]
        assert [(p.step, p.value) for p in curve] == rows
        metrics = store.client.get_run(run.id).data.metrics
        assert metrics["score"] == record["scores"][0]
        assert metrics["comm/up_bits"] == record["comm"]["up_bits"] > 0
        assert metrics["client_samples"] == record["client_samples"]
        assert not [key for key in metrics if key.startswith("test/")]
    one = tree["trial"][0]
    path = Path(store.client.download_artifacts(one.id, "experiment.yaml"))
    experiment = fltune.Experiment.parse(yaml.safe_load(path.read_text()))
    assert experiment.server.lr == float(one.params["server.lr"])


@pytest.mark.search
def test_a_confirmation_run_has_its_seed_and_its_test_metrics(outcome, store, tree):
    assert sorted(run.tags["fltune.seed"] for run in tree["confirmation"]) == ["1", "1", "2", "2"]
    for run in tree["confirmation"]:
        metrics = store.client.get_run(run.id).data.metrics
        same = [
            r
            for r in outcome.confirmations(run.tags["fltune.method"])
            if str(r["seed"]) == run.tags["fltune.seed"]
        ]
        assert metrics["test/accuracy"] == same[0]["metrics"]["test/accuracy"]


@pytest.mark.search
def test_a_name_that_is_taken_is_refused(outcome, capsys):
    argv = ["search", str(outcome.file), "--name", "first"]
    with pytest.raises(SystemExit) as ended:
        main([*argv, "--set", f"tracking.root={outcome.root}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "fltune: a search named 'first' exists already; choose another --name, or go on with it: "
        f"python -m fltune resume first --set tracking.root={outcome.root}\n"
    )


@pytest.mark.search
def test_a_store_that_cannot_be_written_is_refused(outcome, tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SystemExit) as ended:
        main(
            ["search", str(outcome.file), "--set", f"tracking.root={tmp_path / 'file' / 'mlruns'}"]
        )
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    assert "cannot be written" in captured.err
    assert (tmp_path / "file").read_text() == "no folder"


@pytest.fixture(scope="module")
def pair(own_config, tmp_path_factory):
    """The same search twice, the second time with wrong labels in the test split."""
    found = []
    for shuffled in (False, True):
        root = tmp_path_factory.mktemp("pair") / "mlruns"
        data = {**own_config["experiment"]["data"], "shuffle_test": shuffled}
        raw = {**own_config, "experiment": {**own_config["experiment"], "data": data}}
        settings = search_here(raw, root, "pair")
        lines = (root / "searches" / "pair" / "trials.jsonl").read_text().splitlines()
        found.append((compare("pair", settings).summary, [json.loads(line) for line in lines]))
    return found


def test_the_same_seed_one_at_a_time_is_the_same_search(pair):
    (_, first), (_, again) = pair
    assert len(first) == len(again) == 3 + 1
    for one, other in zip(first, again, strict=True):
        for key in ("kind", "number", "values", "seed", "status", "scores", "rows", "comm"):
            assert one[key] == other[key], key


def test_test_labels_change_the_reported_test_and_nothing_else(pair):
    (right, first), (wrong, again) = pair
    assert right.methods["FedGM"].best == wrong.methods["FedGM"].best
    assert right.methods["FedGM"].val == wrong.methods["FedGM"].val
    for one, other in zip(first, again, strict=True):
        plain = [
            {key: value for key, value in r["metrics"].items() if not key.startswith("test/")}
            for r in (one, other)
        ]
        assert plain[0] == plain[1]
    assert right.methods["FedGM"].test.mean > 0.5 > wrong.methods["FedGM"].test.mean


@pytest.mark.parametrize("name", ["a/b", "../up", "/absolute", ".", "..", "", "n" * 300])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path, name):
    raw = {
        "methods": {"A": {"space": {"client.lr": {"grid": [0.1]}}}},
        "tracking": {"root": str(tmp_path / "mlruns")},
    }
    with pytest.raises(ConfigError, match="must be a plain name"):
        search(raw, name=name)
    assert not (tmp_path / "mlruns").exists()


def without_its_end(outcome, root: Path) -> None:
    """Copy a search's folder as it was before its last run and its last word."""
    source, folder = outcome.root / "searches" / "first", root / "searches" / "first"
    folder.mkdir(parents=True)
    folder.joinpath("search.yaml").write_bytes(source.joinpath("search.yaml").read_bytes())
    for log in ("journal.jsonl", "trials.jsonl"):
        lines = source.joinpath(log).read_text().splitlines(keepends=True)
        folder.joinpath(log).write_text("".join(lines[:-1]))


@pytest.mark.search
def test_sync_sends_the_runs_of_an_unfinished_search_but_no_results(outcome, tmp_path):
    root = tmp_path / "mlruns"
    without_its_end(outcome, root)
    runs = len(outcome.records) - 1
    assert SearchState(outcome.root / "searches" / "first").finished
    assert not SearchState(root / "searches" / "first").finished
    settings = [f"tracking.root={root}", f"tracking.uri=sqlite:///{root / 'mlflow.db'}"]
    assert [sync("first", settings), sync("first", settings)] == [runs, 0]
    store = Store.open(f"sqlite:///{root / 'mlflow.db'}", "two", root / "artifacts")
    methods = store.find({"fltune.search": "first", "fltune.kind": "method"})
    assert {run.status for run in methods} == {"KILLED"}
    assert not [run for run in methods if "fltune.result" in run.tags]


@pytest.mark.search
def test_a_search_of_a_pool_has_nothing_to_replay(outcome, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["explain", "first", "--noise", "--set", f"tracking.root={outcome.root}"])
    assert ended.value.code == 2
    assert "Set data.val_from: clients" in capsys.readouterr().err
