"""The pages themselves: links, snippets, quoted messages, generated pages, and the build."""

import ast
import json
import re
from pathlib import Path

import pytest
import written
import yaml

import fltune
from fltune.algorithms import ALGORITHMS
from fltune.report.listing import REGISTRIES, listing
from fltune.search.config import SearchConfig

ROOT = written.ROOT
TOP = {
    *("experiment", "methods", "search", "scenarios", "tune", "extends"),
    *("tracking", "resources", "ray", "about", "name"),
}
OF_A_METHOD = {"space", "points", "inherit"}


@pytest.fixture(scope="module")
def pages():
    return written.all_pages()


def test_links_and_anchors_lead_somewhere(pages):
    broken = []
    for page, text in pages.items():
        for link in written.LINK.findall(written.FENCE.sub("", text)):
            target, _, anchor = link.partition("#")
            if "://" in target:
                continue
            path = (ROOT / page).parent / target if target else ROOT / page
            name = str(path.resolve().relative_to(ROOT))
            there = name in pages or path.is_file()
            if not there or (anchor and anchor not in written.anchors(pages[name])):
                broken.append(f"{page}: {link}")
    assert not broken


def test_every_page_of_the_guide_is_in_the_navigation():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = set(re.findall(r"[\w/]+\.md", json.dumps(config["nav"])))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize(
    "block", [*written.blocks("yaml", written.all_pages())], ids=lambda b: str(b)[:60]
)
def test_yaml_is_a_valid_part_of_a_search_file(block, folder, monkeypatch):
    """A part is put where it belongs: into a file, into the experiment, or into a method."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    raw = yaml.safe_load(block.text)
    whole = {key: value for key, value in raw.items() if key in TOP}
    rest = {key: value for key, value in raw.items() if key not in TOP}
    own = {"space": {"client.lr": {"grid": [0.1, 0.2]}}}
    if OF_A_METHOD & set(rest):
        whole["methods"] = {"Own": rest}
    elif rest:
        whole["experiment"] = {**rest, **whole.get("experiment", {})}
    if "extends" not in whole:
        whole.setdefault("methods", {"FedAvg": own})
        whole.setdefault("experiment", {"data": {"partition": "dirichlet"}})
    path = folder / "snippet.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    assert SearchConfig.read(path).methods


def test_parts_of_ones_own_run(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    result = fltune.run(
        {
            "data": {"clients": 12, "partition": {"kind": "my_world:QuantitySkew", "power": 1.5}},
            "loss": "my_world:focal",
            "participation": {"kind": "my_cohorts:Shifts"},
            "algorithm": "my_methods:FadingProx",
            "server": {"name": "my_servers:Lion", "lr": 0.02},
            "client": {
                "lr": 0.2,
                "epochs": 1,
                "batch_size": 16,
                "schedule": {"name": "my_rounds:Cosine", "warmup": 2},
            },
            "compression": {"name": "my_rounds:Sign", "error_feedback": True},
            "rounds": 20,
        }
    )
    assert 0 < result.metrics["compression/q"] < result.metrics["compression/bound"] < 1
    assert result.metrics["test/accuracy"] > 0.5
    assert result.data["size_max"] > 5 * result.data["size_min"]
    assert result.participation["tau_max"] >= 2  # nobody is there in two rounds on end


@pytest.mark.parametrize("block", written.blocks("python"), ids=str)
def test_python_can_be_parsed(block):
    assert ast.parse(block.text).body


def templates():
    """Return every text in the source, with a gap where a value is put in."""
    found = set()
    for path in (ROOT / "fltune").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = (getattr(v, "value", "") for v in node.values)
                found.add("\0".join(p if isinstance(p, str) else "" for p in parts))
    return found


def test_every_quoted_message_is_one_of_the_source():
    known = templates()
    text = written.pages()["docs/troubleshooting.md"]
    quoted = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert len(quoted) > 40
    for message in quoted:
        parts = [part for part in message.split("…") if part.strip()]
        assert any(all(part in own for part in parts) for own in known), message


def test_every_component_has_its_place(pages):
    assert {f"docs/algorithms/{name}.md" for name in ALGORITHMS} <= set(pages)
    for kind in set(REGISTRIES) - {"algorithms"}:
        text = pages[f"docs/reference/{kind}.md"]
        for entry in listing(kind):
            assert entry["name"] in written.anchors(text)
            assert all(f"| `{p['name']}` |" in text for p in entry["parameters"])


def test_the_page_of_keys_says_which_words_a_key_takes(pages):
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)$", pages["docs/reference/keys.md"], re.MULTILINE))
    assert all(f"`{word}`" in rows["scheduler"] for word in ("none", "asha", "hyperband", "median"))
    assert all(f"`{word}`" in rows["select"] for word in ("last", "best", "mean"))
    assert "One of" not in rows["pack"]  # a number, too


def test_a_method_page_has_what_a_reader_needs(pages):
    for entry in listing("algorithms"):
        text = pages[f"docs/algorithms/{entry['name']}.md"]
        assert entry["paper"] in text
        assert entry["communication"] in text
        assert all(f"| `{p['name']}` |" in text for p in entry["parameters"])
        assert f"name: {entry['name']}" in text or entry["name"] == "fedavg"
        assert "==" not in written.FENCE.sub("", re.sub(r"(?m)^ {4}.*$", "", text))


def test_pages_show_what_was_measured_and_say_where_nothing_was(tmp_path, monkeypatch):
    import reference_pages

    monkeypatch.setattr(reference_pages, "MEASURED", tmp_path / "rows.json")
    assert "Not measured yet." in reference_pages.pages()["algorithms/scaffold.md"]
    row = {"algorithm": "scaffold", "server": "fedavg", "best": {"client.lr": 0.125}, "val": 0.9}
    row |= {"test": {"mean": 0.875, "high": 0.9}, "trials": 8, "diverged": 1}
    row |= {"bits_up": 2.0**23, "bits_down": 2.0**24}
    held = {"methods": {"SCAFFOLD": row}, "metric": "val/accuracy", "measured": "2026-01-01"}
    held |= {"fltune": "0.1.0", "trials": 8, "rounds": 100, "seeds": 3}
    (tmp_path / "rows.json").write_text(json.dumps(held))
    made = reference_pages.pages()
    shown = "| SCAFFOLD | `client.lr` 0.125 | 0.9000 | 0.8750 ± 0.0250 | 3.0 | 1 of 8 |"
    assert shown in made["algorithms/scaffold.md"]
    assert shown in made["algorithms/index.md"]
    assert "Not measured yet." in made["algorithms/mifa.md"]
    row |= {"bits_up": None}  # every confirmed run broke off
    (tmp_path / "rows.json").write_text(json.dumps(held))
    assert "0.8750 ± 0.0250 | n/a | 1 of 8 |" in reference_pages.pages()["algorithms/scaffold.md"]
    assert "Not measured yet." in made["reference/servers.md"]


def test_rows_are_taken_from_a_finished_search(search, folder, monkeypatch):
    import measured_rows
    import reference_pages

    monkeypatch.chdir(folder)
    held = measured_rows.measured(search, [])
    assert set(held["methods"]) == {"FedAvg", "FedAvgM", "FedNAG", "FedGM", "Multistage"}
    assert {row["server"] for row in held["methods"].values()} >= {"fedgm", "multistage"}
    assert str(folder) not in json.dumps(held)
    monkeypatch.setattr(reference_pages, "MEASURED", Path("rows.json"))
    Path("rows.json").write_text(json.dumps(held))
    assert "| FedGM | `server.lr` " in reference_pages.pages()["reference/servers.md"]


def test_the_site_builds_without_a_warning(tmp_path):
    build = pytest.importorskip("mkdocs.commands.build", reason="pip install -e '.[docs]'")
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
    build.build(config)  # raises on a warning
    text = (tmp_path / "site" / "algorithms" / "scaffold.html").read_text(encoding="utf-8")
    assert "SCAFFOLD" in text
    assert not (tmp_path / "site" / "reference_pages.py").exists()
    links = re.findall(r'(?:src|href)="(https?://[^"]+)"', text)
    assert all("mkdocs" in link for link in links)  # its own credit; nothing is fetched
