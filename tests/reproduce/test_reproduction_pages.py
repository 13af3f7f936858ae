import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_by_hand import accuracies, claim, evidence, run, series
from rich.console import Console

from fltune.reproduce.catalogue import Entry
from fltune.reproduce.claims import Claims, FigureSection
from fltune.reproduce.judge import judge
from fltune.reproduce.many import print_outcome
from fltune.reproduce.measured import CUT, PAGE, RESULTS, keep, render
from fltune.reproduce.numbers import NOTE, NumbersTable
from fltune.reproduce.page import as_html, as_markdown, facts_line, index, write
from fltune.reproduce.pictures import draw
from fltune.reproduce.reproduction import NOT_RUN, Outcome

DOCS = Path(__file__).parents[2] / "docs"
NASTY = "A</script><b>|\nsecond"
FACTS = {
    "command": "python -m fltune reproduce mini-x --seeds 3",
    "seeds": 3,
    "date": "2026-11-28",
    "machine": "2 cores x86_64",
    "version": "0.1.0",
    "commit": "abc123",
    "wall_seconds": 61.0,
    "core_seconds": 100.0,
    "runs": 12,
}


def entry(name="mini-x"):
    claims = Claims()
    return Entry(Path(f"{name}.yaml"), "A paper", name, "How A goes", ("x",), claims)


@pytest.fixture
def outcome():
    runs = {name: [run(i, v, curve=(0.1, v)) for i, v in enumerate(values, start=1)]
            for name, values in ((NASTY, (0.90, 0.92)), ("B", (0.505, 0.515)))}  # fmt: skip
    found = evidence(*(series(name, own, eta="eta 1") for name, own in runs.items()))
    made = claim("difference", of=NASTY, than="B", above=0.1, note="because")
    return Outcome(
        entry(),
        judgements=[judge("leads", made, found)],
        facts=FACTS,
        heads=("method", "test/accuracy"),
        rows=[[NASTY, "0.91"], ["B", "0.51"]],
        numbers=[NumbersTable("Table 9: test/accuracy", ["", "here"], [[NASTY, "0.91 (0.93)"]])],
        pictures=draw(found, FigureSection(panels="eta", y=["val/accuracy"])),
    )


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def test_the_pages_say_claim_numbers_and_verdict(outcome):
    page = Tags()
    page.feed(as_html(outcome))
    text = " ".join(page.text)
    for said in ("at least 0.1", "0.4", "shown", FACTS["command"], "61 s", "A paper: How A goes."):
        assert said in text
        assert said in as_markdown(outcome)
    assert "leads: because" in text
    assert "leads: because." in as_markdown(outcome)
    assert "b" not in page.seen  # a method's name is no markup


def test_printed_tables_stand_with_ours_in_them(outcome, tmp_path):
    page = Tags()
    page.feed(as_html(outcome))
    keep([outcome], tmp_path)
    kept = (tmp_path / PAGE).read_text()
    for text in (" ".join(page.text), as_markdown(outcome), kept):
        for said in ("Table 9: test/accuracy", "0.91 (0.93)", NOTE):
            assert said in text


def test_the_terminal_shows_verdicts_and_printed_tables(outcome):
    console = Console(record=True, width=200)
    print_outcome(outcome, console)
    said = console.export_text()
    for text in ("mini-x: 1 claims: 1 shown", "Table 9: test/accuracy", "0.91 (0.93)"):
        assert text in said


def test_a_cell_of_a_markdown_table_stays_one_cell(outcome):
    rows = [line for line in as_markdown(outcome).splitlines() if line.startswith("|")]
    widths = {len(line.replace("\\|", "").split("|")) for line in rows[:3]}
    assert len(widths) == 1
    assert "second" in rows[2]


def test_a_figure_has_a_line_for_each_curve_of_its_panel(outcome):
    (picture,) = outcome.pictures
    lines = [t for t in picture.views[0].figure.data if t.showlegend is not False]
    assert [tuple(line.x) for line in lines] == [(1.0, 2.0)] * 2
    assert lines[1].name == "B"
    assert tuple(lines[1].y) == pytest.approx((0.1, 0.51))
    assert picture.title == "val/accuracy, eta 1"


def test_curves_against_bits_count_both_ways():
    found = evidence(series("A", [run(1, curve=(0.1, 0.2), bits=10)]))
    (picture,) = draw(found, FigureSection(x="communication", y=["val/accuracy"], log=["x"]))
    figure = picture.views[0].figure
    assert tuple(figure.data[1].x) == (20.0, 40.0)
    assert figure.layout.xaxis.type == "log"


def test_only_the_last_rounds_are_drawn_if_the_paper_does():
    found = evidence(series("A", [run(1, curve=[0.1] * 10)], rounds=10))
    (picture,) = draw(found, FigureSection(y=["val/accuracy"], last=3))
    assert tuple(picture.views[0].figure.data[1].x) == (8.0, 9.0, 10.0)


def test_files_and_index_are_written(outcome, tmp_path):
    paths = write(outcome, tmp_path / "new")
    assert [p.name for p in paths] == ["mini-x.md", "mini-x.html", "mini-x.json"]
    plain = json.loads(paths[2].read_text())
    assert plain["claims"][0]["verdict"] == "shown"
    text = index([outcome, Outcome(entry("mini-y"), NOT_RUN, "its data is not here: mnist")])
    assert "[mini-x](mini-x.md) | A paper | shown | 1 claims: 1 shown | 61 s" in text
    assert "| mini-y | A paper | not run | not run: its data is not here: mnist | - |" in text


@pytest.mark.parametrize(
    ("seeds", "runs", "said"),
    [(3, 12, "3 seeds, 12 runs, 61 s"), (1, 0, "1 seed, 61 s"), (0, 0, "61 s")],
)
def test_the_facts_count_what_there_was(outcome, seeds, runs, said):
    outcome.facts = {**FACTS, "seeds": seeds, "runs": runs}
    assert facts_line(outcome).startswith(f"{said} (100 core seconds) on 2 cores x86_64, ")


def test_infinite_numbers_are_null_in_json():
    lost = evidence(accuracies("A", [0.5, 0.5]), series("B", [], lost=True))
    made = claim("difference", of="B", than="A", metric="test/loss", above=0)
    plain = Outcome(entry(), judgements=[judge("c", made, lost)]).as_json()
    json.dumps(plain, allow_nan=False)


def test_measured_results_are_kept_and_replaced(outcome, tmp_path):
    keep([outcome, Outcome(entry("mini-y"), NOT_RUN, "no data")], tmp_path)
    assert [p.name for p in (tmp_path / RESULTS).glob("*")] == ["mini-x.json"]
    first = (tmp_path / PAGE).read_text()
    assert FACTS["command"] in first
    keep([outcome], tmp_path)
    assert (tmp_path / PAGE).read_text() == first == render(tmp_path)


@pytest.mark.parametrize(
    ("name", "more", "runs", "said"),
    [
        ("fedgm-fig5", "", 12, "as printed"),
        ("fedgm-fig5", " --set rounds=20", 12, "cut: see its command"),
        ("fedcdr-tab5", "", 0, "computed"),
        ("mini-x", "", 12, "small variant"),
        ("mini-x", " --set rounds=20", 12, "small variant, cut: see its command"),
        ("mini-x", "", 0, "small variant, computed"),
    ],
)
def test_the_page_says_how_much_of_an_experiment_was_run(outcome, tmp_path, name, more, runs, said):
    outcome.entry = entry(name)
    outcome.facts = {**FACTS, "command": f"{FACTS['command']}{more}", "runs": runs}
    keep([outcome], tmp_path)
    page = (tmp_path / PAGE).read_text()
    assert f"| [{name}](#{name}) | A paper | {said} | 1 shown |" in page
    assert page.count(CUT) == bool(more)


def test_the_page_counts_what_has_been_run(outcome, tmp_path):
    docs, spaces = tmp_path / "docs", tmp_path / "search_spaces"
    keep([outcome], docs)
    assert "Run so far" not in (docs / PAGE).read_text()
    for name, small in (("paper-a", ""), ("paper-b", ""), ("mini-x", "mini_of: [paper-a]")):
        (spaces / name).mkdir(parents=True)
        text = f"about: {{experiment: {name}, {small}}}\ncomputes: coverage\n"
        (spaces / name / f"{name}.yaml").write_text(text)
    said = "0 of the 2 files of the papers, and 1 of the 1 small variants."
    assert f"Run so far, whole or cut: {said}" in render(docs)


def test_the_page_of_the_documentation_is_that_of_its_results():
    assert (DOCS / PAGE).read_text(encoding="utf-8") == render(DOCS)
