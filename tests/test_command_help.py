"""Help texts, what a shell completes, and errors of usage; docs/ has the test that runs them."""

import re

import pytest
import typer

from fltune.cli import app, main
from fltune.command_help import EXAMPLES, KINDS, complete_kinds
from fltune.report import listing

COMMANDS = typer.main.get_command(app).commands


def complete(monkeypatch, capsys, line):
    """Return what a shell is told at the end of a line."""
    monkeypatch.setenv("_FLTUNE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


def test_every_command_has_two_examples_of_its_own():
    assert set(EXAMPLES) == {"", *COMMANDS}
    for command, lines in EXAMPLES.items():
        assert len(set(lines)) == 2
        assert all(line.split()[0] == command for line in lines if command)


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_shows_them_to_the_letter(capsys, command):
    with pytest.raises(SystemExit) as ended:
        main([*([command] if command else []), "--help"])
    assert not ended.value.code
    shown = "".join(capsys.readouterr().out.split())
    for line in EXAMPLES[command]:
        assert f"python -m fltune {line}".replace(" ", "") in shown  # wherever it is broken


def commands_with_help():
    """Return the words of every command and group, and what it is to say of itself, in markup."""
    found = [([], typer.main.get_command(app))]
    for words, command in found:
        found += [
            ([*words, name], below) for name, below in getattr(command, "commands", {}).items()
        ]
    return [(words, [c.help, *(getattr(p, "help", None) for p in c.params)]) for words, c in found]


@pytest.mark.parametrize(("words", "texts"), commands_with_help(), ids=str)
def test_help_loses_no_word_in_brackets_to_markup(capsys, words, texts):
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = re.sub(r"[\s│]", "", capsys.readouterr().out)
    for text in filter(None, texts):
        for piece in text.replace(r"\[", "[").split("\n\n"):
            assert re.sub(r"\s", "", piece) in shown


def test_a_bare_call_shows_the_help(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert not ended.value.code
    assert "python -m fltune search" in capsys.readouterr().out


def test_the_kinds_of_list_are_those_that_it_knows():
    assert set(KINDS) == set(listing.KINDS)
    assert complete_kinds("da") == ["datasets"]


def test_a_shell_completes_searches(monkeypatch, capsys, tmp_path):
    for name in ("first", "fine", "second"):
        (tmp_path / "mlruns" / "searches" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert complete(monkeypatch, capsys, "fltune resume fi") == ["fine", "first"]
    assert complete(monkeypatch, capsys, "fltune compare ") == ["fine", "first", "second"]


def test_a_shell_completes_the_methods_of_the_file_on_the_line(monkeypatch, capsys, tmp_path):
    file = tmp_path / "few.yaml"
    file.write_text("methods: {FedAvg: {}, FedGM: {}, Other: {}}")
    assert complete(monkeypatch, capsys, f"fltune run {file} --method Fed") == ["FedAvg", "FedGM"]
    assert complete(monkeypatch, capsys, f"fltune search {file} --method O") == ["Other"]
    assert complete(monkeypatch, capsys, f"fltune run {tmp_path}/none.yaml --method ") == []


def test_a_shell_completes_commands_and_options(monkeypatch, capsys):
    assert complete(monkeypatch, capsys, "fltune re") == [
        name for name in COMMANDS if name.startswith("re")
    ]
    assert "--deterministic" in complete(monkeypatch, capsys, "fltune search x.yaml --de")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["search"], "missing argument"),
        (["search", "x.yaml", "--trails", "3"], "--trails"),
        (["compare", "first", "--target", "high"], "--target"),
        (["plot"], "missing command"),
    ],
)
def test_wrong_usage_is_told_like_every_other_error(capsys, argv, said):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    captured = capsys.readouterr()
    assert (ended.value.code, captured.out) == (2, "")
    message, usage = captured.err.splitlines()
    assert message.startswith("fltune: ")
    assert said in message
    assert usage.startswith(f"Usage: fltune {argv[0]}")
