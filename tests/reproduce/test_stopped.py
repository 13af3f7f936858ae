"""A reproduction that is stopped before its end."""

import io

import pytest
from rich.console import Console

from fltune.reproduce.many import reproduce_all
from fltune.search.session import InterruptedSearchError, Session

TINY = """
about: {{paper: None, experiment: {name}, mini_of: [big]}}
experiment: {{data: {{name: digits, clients: 10}}, rounds: 4}}
methods: {{FedAvg: {{space: {{}}}}}}
claims: {{one: {{says: It learns, statistic: level, of: FedAvg, above: 0}}}}
"""


@pytest.mark.parametrize("what", ["tiny", "all"])
def test_a_signal_ends_it_and_is_no_verdict(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "wee"):
        (tmp_path / f"{name}.yaml").write_text(TINY.format(name=name))
    begun = []

    def cut_off(session, again=False):
        begun.append(session.name)
        raise InterruptedSearchError("3 ended runs are kept")

    monkeypatch.setattr(Session, "run", cut_off)
    console = Console(file=io.StringIO(), width=100)
    with pytest.raises(InterruptedSearchError, match="interrupted; 3 ended runs are kept"):
        reproduce_all(what, tmp_path, tmp_path / "pages", mini=True, console=console)
    assert len(begun) == 1  # of all, no other is begun
    assert "tiny is cut off; the same command goes on with it" in console.file.getvalue()
    assert not (tmp_path / "pages").exists()
