import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from fabricated import LR, NASTY, confirmation, curve, trial

from fltune.report.page import artifacts, as_html
from fltune.report.page_style import STYLE, TEMPLATES
from fltune.report.parts import table

VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """The tags of a page in order, what scripts hold, and the text outside of them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.scripts, self.text = [], [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.tags[-1][1], data))
        elif self.open and self.open[-1] != "style":
            self.text += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def ids(self):
        return [attrs["id"] for _, attrs in self.tags if "id" in attrs]

    def data(self, key):
        (text,) = [data for attrs, data in self.scripts if attrs.get("id") == key]
        return json.loads(text)


@pytest.fixture(params=["two_methods", "in_pieces", "one_seed"])
def any_page(request):
    return Page(as_html(request.getfixturevalue(request.param)))


@pytest.fixture
def page(two_methods):
    return Page(as_html(two_methods))


def test_the_page_is_whole_html(any_page):
    assert not any_page.open
    assert len(set(any_page.ids)) == len(any_page.ids)
    assert any_page.all("html") == [{"lang": "en"}]


def test_headings_are_in_order(any_page):
    levels = [int(tag[1]) for tag, _ in any_page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_page_loads_nothing(any_page):
    sources = [a[k] for _, a in any_page.tags for k in ("src", "href", "srcset", "data") if k in a]
    assert sources
    assert all(source.startswith("#") for source in sources)
    assert {source[1:] for source in sources} <= set(any_page.ids)
    assert "@import" not in STYLE
    assert "url(" not in STYLE
    (policy,) = [m["content"] for m in any_page.all("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_plotly_is_there_once(any_page):
    assert sum(len(data) > 1e6 for _, data in any_page.scripts) == 1


def test_every_figure_has_a_name_and_its_words(any_page):
    figures, drawn = any_page.all("figure"), any_page.data("figures")
    assert {f["id"] for f in figures} == set(drawn)
    assert all(f["aria-labelledby"] in any_page.ids for f in figures)
    plots = [a for a in any_page.all("div") if a.get("role") == "img"]
    assert len(plots) == len(figures)
    assert all(len(a["aria-label"]) > 20 for a in plots)
    texts = [a for a in any_page.all("p") if "data-view" in a]
    assert len(texts) == sum(map(len, drawn.values()))
    assert sum("hidden" not in a for a in texts) == len(figures)


def test_tables_say_what_their_heads_are_for(any_page):
    assert all(a.get("scope") in ("row", "col") for a in any_page.all("th"))
    assert all(a["aria-labelledby"] in any_page.ids for a in any_page.all("table"))


def test_the_page_follows_light_and_dark():
    assert "prefers-color-scheme: dark" in STYLE
    assert set(TEMPLATES) == {"light", "dark"}


def contrast(one, other):
    """The contrast ratio of two colours (WCAG 2)."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_enough_on_both_papers():
    found = [dict(re.findall(r"--([a-z-]+): (#\w+);", part)) for part in STYLE.split("@media", 1)]
    light, dark = ({k: v if len(v) == 7 else "#ffffff" for k, v in f.items()} for f in found)
    for colours in (light, dark):
        for name in ("ink", "faint", "link"):
            assert contrast(colours[name], colours["paper"]) >= 4.5
            assert contrast(colours[name], colours["soft"]) >= 4.5
        assert contrast(colours["ink"], colours["warn-paper"]) >= 4.5


def test_lines_and_marks_are_seen_on_both_papers():
    from fltune.report.figures import COLOURS
    from fltune.report.space_figures import SCALE

    for colour in (*COLOURS, *(c for _, c in SCALE)):
        assert contrast(colour, "#ffffff") >= 3, colour
        assert contrast(colour, "#15191e") >= 3, colour


def test_the_results_are_in_the_page(page):
    assert "FedAvg is best of 2, with test/accuracy 0.9200" in page.text
    assert "-0.0200 (p 0.074)" in page.text
    assert "3 (1 of 3 not)" in page.text
    assert "not reached" in page.text
    assert "2 MiB" in page.text
    assert "server.lr=10 highest" in page.text
    assert "--method FedAvg --set server.lr=1.0" in page.text
    assert "loguniform" in page.text


def test_a_nasty_name_is_text_and_nothing_else(two_methods):
    html = as_html(two_methods)
    page = Page(html)
    assert "</script><script>alert" not in html
    assert NASTY in page.text
    assert [a.get("type") for a in page.all("script")] == ["application/json"] * 2 + [None] * 2
    curves = json.dumps(page.data("figures")["curves-0-val-accuracy"])
    assert "Ours&lt;/script&gt;" in curves  # plotly reads tags in a legend


def test_a_password_of_the_store_is_not_passed_on(two_methods):
    html = as_html(two_methods)
    assert "secret" not in html
    assert "mlflow.invalid" in html


def test_an_interrupted_search_has_its_page(in_pieces):
    page = Page(as_html(in_pieces))
    assert "no method is confirmed so far" in page.text
    assert not [a for a in page.all("tr") if a.get("class") == "best"]
    assert "3 of 3 trials still to come" in page.text
    assert "No trial of Lost completed: 0 complete, 0 pruned, 3 diverged, 0 failed." in page.text


def test_methods_without_a_winner_say_why(make_report):
    """No confirmed seed, all diverged, one trial, and one that still runs: a page for each."""
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("Unconfirmed", n, {**one, "server.lr": n + 1.0}, 0.5) for n in range(3)]
    records += [trial("Lost", n, {**one, "server.lr": n + 1.0}, 0.0, "diverged") for n in range(3)]
    records.append(trial("Single", 0, one, 0.4))
    records += [confirmation("Single", 0, s, one, 0.4, curve(0.4)) for s in (1, 2, 3)]
    methods = {name: {"space": LR} for name in ("Unconfirmed", "Lost", "Single", "Empty")}
    page = Page(as_html(make_report(methods, records)))
    assert "Unconfirmed: 3 of 3 confirmation runs still to come" in page.text
    assert "Lost: no trial completed; nothing to confirm" in page.text
    assert "Single: 2 of 3 trials still to come" in page.text
    assert "Empty: 3 of 3 trials still to come" in page.text
    assert "Empty: no trial completed; nothing to confirm" not in page.text
    assert "the search is not finished; go on with: python -m fltune resume made" in page.text
    assert "Single is the only one confirmed of 4, with test/accuracy" in page.text
    assert "1 completed trials; an importance from fewer than 10" in page.text


def test_each_row_has_its_command_its_seeds_and_its_whole_config(two_methods):
    page = Page(as_html(two_methods))
    assert "Confirmed with --set seed=1, --set seed=2, --set seed=3" in page.text
    assert "the whole config of FedAvg" in page.text
    assert "per_round: 2" in page.text


def test_the_files_of_the_store_are_the_page_and_its_figures(two_methods):
    files = artifacts(two_methods)
    page = Page(files["comparison.html"])
    keys = {name.removeprefix("figures/").removesuffix(".json") for name in files} - {
        "comparison.html"
    }
    assert keys == set(page.data("figures"))
    drawn = json.loads(files["figures/curves-0-val-accuracy.json"])
    assert set(drawn["views"]) == {"rounds", "uplink bits of a run"}
    assert drawn["views"]["rounds"]["data"]


def test_a_loss_of_the_lucky_seeds_alone_is_told_as_such(wild):
    text = as_html(wild)
    assert "Steady is best of 2" in text
    assert "0.0100 (1 seed) without 3 diverged" in text
    assert "-0.0700 without 3 diverged" in text


def test_only_long_heads_of_rows_are_broken_inside_words():
    drawn = table(
        "t", "label", ["method"], [("FedCOMGATE-sparse", [], False), ("a" * 30, [], False)]
    )
    assert '<th scope="row">FedCOMGATE-sparse</th>' in drawn
    assert f'<th scope="row" class=long>{"a" * 30}</th>' in drawn
