"""A whole reproduction, with Ray and MLflow: run, judged, gone on with, added to."""

import json

import pytest

from fltune.reproduce.many import reproduce_all
from fltune.search.session import Session

pytestmark = [pytest.mark.search, pytest.mark.slow]

TINY = """
about: {paper: None, experiment: tiny, mini_of: [big]}
experiment:
  data: {name: digits, clients: 10}
  model: {name: mlp, hidden: [8]}
  client: {lr: 0.1, steps: 2, batch_size: 8}
  rounds: 4
methods:
  FedAvg: {space: {}}
  FedGM: {server: {name: fedgm, beta: 0.5}, space: {}}
search: {confirm_seeds: 1}
claims:
  alike: {says: They are alike, statistic: difference, of: FedGM, than: FedAvg, above: -1, below: 1}
"""
VIEW = """
extends: tiny.yaml
about: {experiment: view, mini_of: [other]}
figure: {x: communication}
claims:
  same: {says: The same bits, statistic: ratio, of: FedGM, than: FedAvg, metric: comm/up_bits,
         above: 1, below: 1}
"""


def test_a_reproduction_is_judged_gone_on_with_and_added_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "view.yaml").write_text(VIEW)

    def again(what, **options):
        return reproduce_all(what, tmp_path, tmp_path / "pages", **options)

    failed, found = again("tiny")
    (tiny,) = found["experiments"]
    assert (failed, tiny["status"], tiny["runs"]) == (False, "judged", 2)
    assert tiny["claims"][0]["verdict"] == "not shown"  # of one seed
    assert "one seed tells nothing" in tiny["claims"][0]["ours"][0]
    assert json.loads((tmp_path / "pages" / "tiny.json").read_text()) == tiny

    with monkeypatch.context() as patched:  # nothing is run again
        patched.setattr(Session, "run", lambda *a, **k: pytest.fail("a search was started"))
        _, found = again("tiny")
        assert found["experiments"][0]["search"] == tiny["search"]
        _, found = again("view")  # another view of the same runs
        (view,) = found["experiments"]
        assert view["search"] == tiny["search"]
        assert view["claims"][0]["findings"][0]["mean"] == 1
        assert view["claims"][0]["verdict"] == "shown"  # bits are counted

    failed, found = again("all", mini=True, seeds=2)
    runs = {e["id"]: e["runs"] for e in found["experiments"]}
    assert all(e["wall_seconds"] > tiny["wall_seconds"] for e in found["experiments"])
    assert (failed, runs) == (False, {"tiny": 4, "view": 4})  # two more, for both
    assert found["experiments"][0]["claims"][0]["verdict"] == "shown"
    assert "tiny" in (tmp_path / "pages" / "index.md").read_text()
