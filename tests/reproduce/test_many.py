"""What is printed and written when experiments have no result to show."""

import contextlib
import io

import pytest
from rich.console import Console

from fltune.reproduce.many import reproduce_all
from fltune.search.session import InterruptedSearchError

LACKS = """
about: {{paper: None, experiment: '{name}'}}
experiment: {{data: {{name: mnist, clients: 10}}, rounds: 4}}
methods: {{FedAvg: {{space: {{}}}}}}
claims: {{one: {{says: It learns, statistic: level, of: FedAvg, above: 0}}}}
"""
FORMULA = """
about: {paper: None, experiment: formula}
computes: fairness_table
claims: {one: {says: It is, statistic: computed, of: numbers, above: 1}}
"""


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Reproduce what is asked for and return what was printed; the pages are in ``pages``."""
    monkeypatch.chdir(tmp_path)  # where there is no data

    def reproduced(what, *names):
        for name in names:
            text = FORMULA if name == "formula" else LACKS.format(name=name)
            (tmp_path / f"{name}.yaml").write_text(text)
        console = Console(file=io.StringIO(), width=200)
        with contextlib.suppress(InterruptedSearchError):
            reproduce_all(what, tmp_path, tmp_path / "pages", console=console)
        return console.file.getvalue()

    return reproduced


def test_no_page_is_named_that_was_not_written(said, tmp_path):
    text = said("one", "one")
    assert "one: not run: its data is not here: mnist" in text
    assert "pages in" not in text
    assert not (tmp_path / "pages").exists()


def test_the_index_links_the_pages_that_there_are(said, tmp_path):
    assert f"pages in {tmp_path / 'pages'}" in said("all", "formula", "one")
    assert {p.stem for p in (tmp_path / "pages").glob("*.md")} == {"index", "formula"}
    index = (tmp_path / "pages" / "index.md").read_text()
    assert "| [formula](formula.md) |" in index
    assert "| one |" in index
    assert "one.md" not in index


def test_a_page_is_named_where_it_was_written(said, tmp_path):
    assert f"pages in {tmp_path / 'pages'}" in said("formula", "formula")


def test_a_files_name_is_no_markup(said, monkeypatch):
    def cut_off(entry, **options):
        raise InterruptedSearchError("3 ended runs are kept")

    monkeypatch.setattr("fltune.reproduce.many.reproduce", cut_off)
    name = "[red]mine"
    assert f"{name} is cut off; the same command goes on with it" in said(name, name)
