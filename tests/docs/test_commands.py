"""Every command in README, docs and help texts runs, in a folder with small copies of the files.

Nothing is taken for granted: what cannot be run here (servers, installations, clusters) has its
arguments parsed by the program that it calls.
"""

import re
import shlex
from pathlib import Path

import pytest
import started
import typer
import written

from fltune.cli import app, main
from fltune.command_help import EXAMPLES
from fltune.search.session import Session

ROOT = written.ROOT
PLACEHOLDERS = {
    "NAME/METHOD#NUMBER": "first/FedGM#3",
    "--method NAME": "--method FedGM",
    "FILE": "search_spaces/digits_fedgm.yaml",
    "NAME": "first",
    "FIGURE": "figure.html",
    "ID": "mini-fedgm-stability",
    "FIRST:6379": "127.0.0.1:6379",
}
BEGUN = ("resume", "extend", "compare", "explain", "sync")
"""Commands that go on with a search."""


class StartedError(Exception):
    """The work would begin here."""


def concrete(command):
    """Return a command with names for its placeholders: several, where it offers several."""
    for word, value in PLACEHOLDERS.items():
        command = re.sub(rf"(?<![\w=]){re.escape(word)}(?![\w./])", value, command)
    choice = re.search(r"\S+\|\S+", command)
    if choice is None:
        return [command]
    return [command.replace(choice[0], one) for one in choice[0].split("|")]


def gathered(ours):
    """Return parameters: what calls fltune, or what does not."""
    shown = [(page, one) for page, command in written.commands() for one in concrete(command)]
    shown += [("--help", f"python -m fltune {e}") for own in EXAMPLES.values() for e in own]
    chosen = {c: page for page, c in shown if c.startswith("python -m fltune") == ours}
    return [pytest.param(c, id=f"{Path(page).name}: {c}") for c, page in chosen.items()]


@pytest.fixture
def stopped(monkeypatch):
    """Stop where the costly part would begin."""

    def start(*args, **kwargs):
        raise StartedError

    def stop(where):
        monkeypatch.setattr(where, start)

    return stop


@pytest.mark.parametrize("command", gathered(ours=True))
def test_it_runs(command, folder, request, monkeypatch, stopped, capsys, tmp_path):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    other = f"sqlite:///{folder / 'mlruns' / 'other.db'}"  # for the server
    argv = shlex.split(command.replace("http://127.0.0.1:5001", other))[3:]
    if argv[0] in BEGUN:
        request.getfixturevalue("search")
    expected = 0
    if argv[0] in ("search", "extend"):
        monkeypatch.setattr(Session, "run", lambda *a, **k: (_ for _ in ()).throw(StartedError))
        expected = StartedError
        if argv[0] == "search":  # under a name that the search of these tests may have taken
            argv += ["--set", f"tracking.root={tmp_path}"]
    elif argv[0] == "reproduce":
        stopped("fltune.reproduce.many.reproduce_all")
        expected = StartedError
    elif argv[0] == "plan" and argv[1:] != ["search_spaces/digits_fedgm.yaml"]:
        # one is worked out; the others would time half a minute of rounds each
        stopped("fltune.search.plan.order_of")
        expected = StartedError
    elif argv[0] == "ui":
        monkeypatch.setattr("subprocess.call", lambda *a, **k: 0)
        (folder / "mlruns").mkdir(exist_ok=True)
        (folder / "mlruns" / "mlflow.db").touch()
    elif "data.download=true" in argv:
        stopped("fltune.runner.run")
        expected = StartedError
    elif "--noise" in argv:
        argv = ["first" if word == "noise" else word for word in argv]
        expected = 2  # the search of these tests asked no clients; a page's own test has one
    assert outcome(argv) == expected, capsys.readouterr().err


def outcome(argv):
    """Return a command's exit code, or StartedError."""
    try:
        main(argv)
    except StartedError:
        return StartedError
    except SystemExit as ended:
        return ended.code or 0


def test_the_search_of_the_docs_was_really_run(search, folder):
    assert (folder / "mlruns" / "searches" / search / "trials.jsonl").stat().st_size > 0
    assert (folder / "mlruns" / "mlflow.db").stat().st_size > 0


@pytest.mark.parametrize("command", gathered(ours=False))
def test_what_it_calls_is_there(command):
    words = shlex.split(command)
    program = words[0]
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    if program == "pip":
        extras = re.findall(r"^(\w+) = \[$", pyproject, re.MULTILINE)
        assert set(re.findall(r"\[(\w+)\]", words[-1])) <= set(extras)
    elif program == "pytest":
        assert not words[1:] or f'"{words[-1].split()[-1]}: ' in pyproject
    elif program == "fltune":
        assert words[1] in [o for p in typer.main.get_command(app).params for o in p.opts]
    elif program in ("ray", "mlflow"):
        parse(program, words[1:])
    elif program == "python" and words[1].endswith(".py"):
        script = (ROOT / words[1]).read_text(encoding="utf-8")
        assert all(f'"{word}"' in script for word in words if word.startswith("--"))
    elif program == "mkdocs":
        assert (ROOT / "mkdocs.yml").is_file()
    else:
        assert program in ("ruff", ".ci/run") or words[:3] == ["python", "-m", "venv"]


def parse(program, words):
    """Let a program with commands parse its line."""
    if program == "ray":
        from ray.scripts.scripts import cli
    else:
        from mlflow.cli import cli
    cli.commands[words[0]].make_context(words[0], words[1:])


def test_the_readme_lists_every_command_and_only_options_that_there_are():
    commands = typer.main.get_command(app).commands
    readme = written.pages()["README.md"]
    synopsis = re.search(r"## Commands\n\n(.*?)\n\n(?=\S)", readme, re.DOTALL)[1]
    lines = re.split(r"\n {4}(?=python)", f"\n{synopsis}")[1:]
    named = {}
    for line in lines:
        words = line.split()
        named.setdefault(words[3], set()).update(re.findall(r"--[\w-]+", line))
    assert set(named) == set(commands)
    for name, options in named.items():
        group = getattr(commands[name], "commands", {})
        params = [p for c in (commands[name], *group.values()) for p in c.params]
        assert options <= {option for p in params for option in p.opts}


@pytest.mark.search
@pytest.mark.parametrize(
    "block", [b for b in written.blocks("python") if "import fltune\n" in b.text], ids=str
)
def test_python_runs(block, folder):
    assert started.python(folder, "-c", block.text)
