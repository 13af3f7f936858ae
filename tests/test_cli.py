"""The command line, in this process where possible; the search itself is in tests/search."""

import json
import subprocess
import sys
import textwrap

import pytest
import yaml

from fltune.report.listing import REGISTRIES

TINY = {
    "experiment": {
        "data": {"name": "digits", "clients": 10},
        "model": {"name": "mlp", "hidden": [8]},
        "client": {"lr": 0.1, "steps": 2, "batch_size": 8},
        "rounds": 4,
        "eval_every": 2,
    },
    "methods": {
        "FedAvg": {"space": {"client.lr": {"grid": [0.1, 0.2]}}},
        "FedGM": {
            "server": {"name": "fedgm", "beta": 0.5},
            "space": {"server.lr": {"loguniform": [0.5, 2.0]}},
        },
    },
    "search": {"trials": 3, "confirm_seeds": 1},
}
COMMANDS = (
    *("search", "resume", "extend", "compare", "explain", "sync"),
    *("run", "plan", "list", "ui", "plot"),
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(TINY))
    return str(path)


def python(*argv, cwd=None):
    return subprocess.run(
        [sys.executable, *map(str, argv)], cwd=cwd, capture_output=True, text=True, timeout=120
    )


def test_help_names_every_command(call):
    code, out, _ = call("--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert f"python -m fltune {command}" in " ".join(out.split())


def test_an_unknown_command_is_refused_with_the_nearest(call):
    code, out, err = call("serach", "x.yaml")
    assert (code, out) == (2, "")
    assert err == (
        "fltune: unknown command 'serach'; did you mean 'search'?; "
        "there are: search, resume, extend, compare, explain, sync, reproduce, run, plan, list, "
        "ui, plot\n"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["run", "{file}", "--method", "FedAvgM"],
            "unknown method 'FedAvgM'; did you mean 'FedAvg'",
        ),
        (["run", "{file}.missing", "--method", "A"], "tiny.yaml.missing: cannot be read: No such"),
        (["run", "{file}", "--method", "FedGM", "--set", "server.beta=1"], "server.beta: found 1"),
        (["run", "{file}", "--method", "FedGM", "--set", "rounds"], "write KEY=VALUE"),
        (["run", "{file}", "--method", "FedGM", "--set", "data.clients=9999"], "9999"),
        (["search", "{file}", "--trials", "0"], "search.trials: found 0"),
        (["search", "{file}", "--method", "X"], "unknown method 'X'"),
        (["search", "{file}", "--name", "a/b"], "name: found 'a/b'; must be a plain name"),
        (["search", "{file}", "--set", "resources.gpus=64"], "resources.gpus: found 64 per trial"),
        (["search", "{file}", "--set", "search.metric=test/accuracy"], "select on validation"),
        (["search", "{file}", "--set", "data.clients=9999"], "9999"),
        (["plan", "{file}", "--set", "client.lr=0"], "client.lr: found 0; should be greater"),
        (["list", "server"], "unknown kind 'server'; did you mean 'servers'"),
        (["ui", "--set", "rounds=3"], "rounds: only tracking.* can be set here"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_message_on_stderr(call, file, tmp_path, argv, message):
    argv = [a.replace("{file}", file) for a in argv]
    if argv[0] == "search":
        argv += ["--set", f"tracking.root={tmp_path / 'mlruns'}"]
    code, out, err = call(*argv)
    assert (code, out) == (2, "")
    assert err.startswith("fltune: ")
    assert message in err
    assert not (tmp_path / "mlruns").exists()  # nothing was started


@pytest.mark.parametrize(
    "argv", [["run", "{file}"], ["search"], ["search", "{file}", "--trails", 3]]
)
def test_what_is_missing_or_unknown_on_the_line_is_exit_code_2(call, file, argv):
    code, out, err = call(*[str(a).replace("{file}", file) for a in argv])
    assert (code, out) == (2, "")
    assert "Usage" in err


def test_run_ends_with_one_json_object(call, file):
    code, out, err = call("run", file, "--method", "FedGM", "--set", "server.lr=2", "--json")
    assert (code, err) == (0, "")
    *_, last = out.splitlines()
    result = json.loads(last)
    assert result["method"] == "FedGM"
    assert (result["rounds"], result["stop_reason"]) == (4, "completed")
    assert {"val/accuracy", "val/loss", "test/accuracy", "train/loss"} <= set(result["metrics"])
    assert set(result["comm"]) == {"up_bits", "down_bits"}
    assert (
        result["comm"]["up_bits"] == 4 * 10 * (65 * 8 + 9 * 10) * 32
    )  # rounds, clients, parameters, bits
    assert result["participation"] == {
        "tau_max": 0,
        "tau_avg": 0,
        "coverage": 1,
        "fairness": 0,
        "count_cv": 0,
    }
    assert "100% of the clients seen, away for up to 0 rounds (mean 0.0)" in out
    assert result["seconds"] > 0
    assert result["strategy"] in ("loop", "stacked", "dense")
    assert "test/accuracy" in out


def test_run_takes_a_number_of_processes_or_auto(call, file):
    code, _, err = call("run", file, "--method", "FedGM", "--processes", "1")
    assert (code, err) == (0, "")
    code, out, err = call("run", file, "--method", "FedGM", "--processes", "all")
    assert (code, out) == (2, "")
    assert "processes: found 'all'; must be auto or a whole number >= 1" in err


def test_run_saves_who_took_part(call, file, tmp_path):
    path = tmp_path / "trace.csv"
    sets = ["--set", "participation.kind=uniform", "--set", "participation.per_round=2"]
    argv = ["run", file, "--method", "FedGM", *sets, "--save-participation"]
    code, _, err = call(*argv, path)
    assert (code, err) == (0, "")
    header, *rows = path.read_text().splitlines()
    assert header == "round,client"
    assert [row.partition(",")[0] for row in rows] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    code, out, err = call(*argv, tmp_path / "trace")
    assert (code, out) == (2, "")
    assert "a trace is a .csv or a .json file" in err


def test_a_run_that_diverges_still_ends_with_valid_json(call, file):
    code, out, _ = call("run", file, "--method", "FedGM", "--set", "server.lr=1e30", "--json")
    assert code == 0

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    result = json.loads(out.splitlines()[-1], parse_constant=refuse)
    assert result["stop_reason"] == "diverged"
    assert "diverged in round" in result["message"]
    assert "test/accuracy" not in result["metrics"]


def test_run_prints_the_simulated_time(call, file):
    settings = ["clock.kind=constant", "clock.seconds_per_step=60", "clock.up_mbps=null"]
    argv = [part for text in settings for part in ("--set", text)]
    code, out, _ = call("run", file, "--method", "FedAvg", *argv, "--json")
    *text, last = out.splitlines()
    seconds = json.loads(last)["metrics"]["clock/seconds"]
    assert (code, seconds >= 4 * 60) == (0, True)
    assert any(line.split() == ["clock/seconds", f"{seconds:.4f}"] for line in text)


def test_without_json_there_is_none(call, file):
    _, out, _ = call("run", file, "--method", "FedAvg", "--set", "rounds=1")
    assert "FedAvg: completed 1 rounds" in out
    assert "{" not in out


def test_plan_prints_the_bill_and_its_json(call, file):
    code, out, _ = call("plan", file, "--json", "--set", "search.trials=5", "--method", "FedGM")
    assert code == 0
    assert "client" in out
    bill = json.loads(out.splitlines()[-1])
    assert list(bill["methods"]) == ["FedGM"]
    assert bill["methods"]["FedGM"]["trials"] == 5
    assert bill["methods"]["FedGM"]["rounds"] == (5 + 1) * 4


@pytest.mark.parametrize("kind", REGISTRIES)
def test_list_prints_a_table_and_json(call, kind):
    code, out, _ = call("list", kind, "--json")
    entries = json.loads(out)
    assert code == 0
    assert all(entry["summary"] for entry in entries)
    code, out, _ = call("list", kind)
    assert code == 0
    assert all(entry["name"] in out for entry in entries)


def test_list_spaces_finds_the_files_below_the_working_directory(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "x.yaml").write_text(yaml.safe_dump(TINY))
    _, out, _ = call("list", "spaces", "--json")
    (entry,) = json.loads(out)
    assert entry["methods"] == ["FedAvg", "FedGM"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_list_spaces_where_there_are_none_says_where_they_are(call, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("list", "spaces", *options)
    assert (code, out) == (2, "")
    assert err == (
        "fltune: there is no folder search_spaces here; start in fltune's checkout, which has one\n"
    )


def test_an_interrupt_is_exit_code_130(call, file, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("fltune.runner.run", interrupted)
    code, _, err = call("run", file, "--method", "FedAvg")
    assert code == 130
    assert err == "fltune: interrupted\n"


def test_ctrl_c_ends_a_run_in_words(file, tmp_path):
    script = f"""
        import os, signal, sys
        import fltune.runner
        from fltune.federation.history import History

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        ends = History.on_train_epoch_end

        def interrupting(self, *args):
            ends(self, *args)
            os.kill(os.getpid(), signal.SIGINT)

        History.on_train_epoch_end = interrupting
        from fltune.cli import main
        main(["run", {str(file)!r}, "--method", "FedAvg"])
    """
    done = python("-c", textwrap.dedent(script), cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "fltune: interrupted"
    assert "Traceback" not in done.stderr


def test_as_a_module_it_is_the_same_program(tmp_path):
    done = python("-m", "fltune", "nonsense", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fltune: unknown command 'nonsense'; there are: search, resume")


def test_importing_fltune_is_light():
    heavy = "'torch', 'lightning', 'ray', 'mlflow', 'optuna', 'pydantic', 'numpy'"
    done = python("-c", f"import sys, fltune; print([m for m in ({heavy}) if m in sys.modules])")
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_reading_a_config_needs_neither_ray_nor_mlflow_nor_optuna(file):
    program = (
        "import sys, fltune.cli; from fltune.search.config import SearchConfig; "
        f"SearchConfig.read({file!r}); "
        "print([m for m in ('ray', 'mlflow', 'optuna') if m in sys.modules])"
    )
    done = python("-c", program)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_unknown_public_name_is_an_attribute_error():
    import fltune

    with pytest.raises(AttributeError, match="has no attribute 'serach'"):
        fltune.serach  # noqa: B018
    assert all(getattr(fltune, name) is not None for name in fltune.__all__)


def test_run_saves_the_partition_that_another_run_reads(call, file, tmp_path):
    path = tmp_path / "part.json"
    argv = ["run", file, "--method", "FedAvg", "--set", "data.partition=dirichlet", "--json"]
    code, first, _ = call(*argv, "--save-partition", path)
    assert code == 0
    assert json.loads(path.read_text())["made_by"]["data"]["partition"]["kind"] == "dirichlet"
    argv[5] = f"data.partition={{kind: file, path: {path}}}"
    code, second, _ = call(*argv, "--set", "data.partition_seed=9")
    assert code == 0
    results = [json.loads(out.splitlines()[-1]) for out in (first, second)]
    for key in ("metrics", "data", "comm"):
        assert results[0][key] == results[1][key]
    code, _, err = call(*argv, "--save-partition", tmp_path / "part.txt")
    assert (code, "saved as JSON" in err) == (2, True)


def test_run_says_how_sizes_came_about(call, file):
    code, out, _ = call(
        "run", file, "--method", "FedAvg", "--set", "data.partition=dirichlet_client_lognormal"
    )
    assert code == 0
    assert "allocation scale: clients ask for " in out


def test_plot_partition(call, file, tmp_path):
    out = tmp_path / "part.html"
    code, printed, _ = call("plot", "partition", file, "--out", out)
    assert (code, printed) == (0, f"drawn to {out}\n")
    assert "digits: iid, seed 0" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--out", "x.gif"], "--out: found 'x.gif'; must end in .html, .png, .svg, .pdf"),
        (["--method", "FedAv"], "unknown method 'FedAv'; did you mean 'FedAvg'"),
        (["--set", "data.clients=9999"], "9999 clients cannot share"),
    ],
)
def test_plot_refuses(call, file, argv, message):
    code, _, err = call("plot", "partition", file, *argv)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("options", [[], ["--quiet"], ["--quiet", "--json"]])
def test_quiet_leaves_the_table_and_with_json_the_object_only(call, file, monkeypatch, options):
    from fltune.report.summary import Summary

    given = {}

    def search(config, name, console, quiet):
        given.update(quiet=quiet)
        console.print("the table")
        return Summary("n", "u", "e", "val/accuracy", True)

    monkeypatch.setattr("fltune.search.search.search", search)
    code, out, _ = call("search", file, *options)
    assert (code, given["quiet"]) == (0, "--quiet" in options)
    lines = out.splitlines()
    assert len(lines) == 1
    assert (json.loads(lines[0])["name"] == "n") if "--json" in options else lines == ["the table"]


@pytest.mark.parametrize("failed", [False, True])
def test_an_experiment_that_failed_among_others_is_exit_code_1(call, monkeypatch, failed):
    found = {"experiments": []}
    monkeypatch.setattr("fltune.reproduce.many.reproduce_all", lambda *args: (failed, found))
    code, out, _ = call("reproduce", "all", "--json")
    assert (code, json.loads(out)) == (int(failed), found)
