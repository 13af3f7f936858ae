"""The page of a real search, and the same search in MLflow's UI, as a browser shows them."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from socket import socket
from urllib.parse import quote

import pytest
from browser import Browser, needs_chromium
from searched import search_digits

from fltune.report.page import as_html
from fltune.search.search import compare
from fltune.tracking import Store, resolve_uri, ui_command, ui_environment

pytestmark = needs_chromium
FIGURES = "curves-0-val-accuracy curves-0-train-loss history slices stability importance parallel"
FIGURES = [*FIGURES.split(), "partition"]
METRIC = "val/accuracy"


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    root = tmp_path_factory.mktemp("searched")
    return root, search_digits(root)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(searched):
    root, settings = searched
    path = root / "page.html"
    path.write_text(as_html(compare("digits", settings, target=0.5)), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_every_figure_and_the_table(browser, page, width, dark):
    tab = browser.open(page, width=width, dark=dark)
    tab.wait("document.querySelectorAll('.plot .main-svg').length >= 16")
    drawn = tab.js("[...document.querySelectorAll('figure')].map(f => f.id)")
    assert sorted(drawn) == sorted(FIGURES)
    sizes = tab.js(
        "[...document.querySelectorAll('figure')].map(f => {"
        "const r = f.querySelector('.main-svg')?.getBoundingClientRect();"
        "return r ? [r.width, r.height] : [0, 0]})"
    )
    assert all(0.6 * min(width, 1200) < w <= width and h > 120 for w, h in sizes), sizes
    heads = tab.js(
        "[...document.querySelectorAll('#table-results-0 ~ .scroll')[0]"
        ".querySelectorAll('tbody tr')].map(r => r.children[1].textContent)"
    )
    assert heads == ["1", "2", "3", "4"]
    assert tab.js("document.documentElement.scrollWidth") <= width  # tables scroll, not the page
    paper = tab.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 384) == dark
    assert tab.requests == [page]
    assert tab.complaints == []


def test_another_view_of_a_figure_is_chosen_with_the_keyboard(browser, page):
    tab = browser.open(page)
    tab.wait("document.querySelectorAll('.plot .main-svg').length >= 16")
    tab.js("document.querySelector('#history select').focus()")
    before = tab.js("document.querySelector('#history .plot').getAttribute('aria-label')")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "ArrowDown", "code": "ArrowDown", "windowsVirtualKeyCode": 40}
        tab.send("Input.dispatchKeyEvent", type=kind, **key)
    label = "document.querySelector('#history .plot').getAttribute('aria-label')"
    tab.wait(f"{label} !== {json.dumps(before)}")
    shown = tab.js(
        "[...document.querySelectorAll('#history [data-view]')].filter(t => !t.hidden).length"
    )
    assert shown == 1


@pytest.fixture(scope="module")
def ui(searched):
    """The address of MLflow's UI on the store of the search."""
    root, _ = searched
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    uri = resolve_uri(None, root, environ={})
    argv = ui_command(uri, port, root / "artifacts")
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(argv, env={**os.environ, **ui_environment(uri)}, **silent)
    address = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None, "the server has ended"
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def store(searched):
    root, _ = searched
    return Store.open(resolve_uri(None, root, environ={}), "digits", root / "artifacts")


def shows(tab, *texts):
    for text in texts:
        tab.wait(f"document.body.innerText.includes({json.dumps(text)})", seconds=90)


@pytest.mark.search
def test_mlflow_lists_the_methods_below_the_search(browser, ui, store):
    (parent,) = store.find({"fltune.kind": "search"})
    tab = browser.open(f"{ui}#/experiments/{store.experiment_id}/runs/{parent.id}", 1600)
    shows(tab, "Child runs", "is best of 4")
    links = "[...document.querySelectorAll('a[href*=\"/runs/\"]')].map(a => a.textContent.trim())"
    tab.wait(f"{links}.filter(t => /FedAvg|FedGM|FedProx|SCAFFOLD/.test(t)).length >= 4")


@pytest.mark.search
def test_mlflow_draws_two_trials_by_round(browser, ui, store):
    trials = store.find({"fltune.kind": "trial", "fltune.method": "FedGM"})[:2]
    runs, metric = quote(json.dumps([t.id for t in trials])), quote(json.dumps(METRIC))
    asked = f"runs={runs}&metric={metric}&experiments={quote(json.dumps([store.experiment_id]))}"
    asked += f"&plot_metric_keys={quote(json.dumps([METRIC]))}&plot_layout={quote('{}')}"
    asked += "&x_axis=step&y_axis_scale=linear&line_smoothness=1&show_point=false"
    asked += f"&deselected_curves={quote('[]')}&last_linear_y_axis_range={quote('[]')}"
    tab = browser.open(f"{ui}#/metric?{asked}", 1600)
    # a curve has two traces, one of them smoothed
    tab.wait("document.querySelectorAll('.js-plotly-plot .trace').length === 4", 90)
    drawn = tab.js(
        "[...document.querySelectorAll('.js-plotly-plot')].flatMap("
        "p => p.data.map(t => [t.name, Array.from(t.x)]))"
    )
    assert [x for _, x in drawn] == [[2, 4, 6]] * 4  # rounds, of evaluations every other one
    names = {name for name, _ in drawn}
    assert len(names) == 2
    assert all(name.startswith("FedGM #") and "server.lr=" in name for name in names)
    shows(tab, "Step")


@pytest.mark.search
def test_mlflow_opens_the_page_with_its_figures(browser, ui, store):
    (parent,) = store.find({"fltune.kind": "search"})
    run = f"{ui}#/experiments/{store.experiment_id}/runs/{parent.id}"
    tab = browser.open(f"{run}/artifacts/comparison.html", 1600)
    shows(tab, "comparison.html", "figures", "search.yaml")
    tab.wait("document.querySelector('iframe')", 90)
    framed = browser.frame("blob:")
    framed.wait("document.querySelectorAll('.plot .main-svg').length >= 16", 90)
    assert "best of 4" in framed.js("document.body.innerText")
    files = {f.path for f in store.client.list_artifacts(parent.id, "figures")}
    assert files == {f"figures/{name}.json" for name in FIGURES}


@pytest.mark.search
def test_mlflow_opens_the_table_with_the_columns_that_matter(browser, ui, store):
    (parent,) = store.find({"fltune.kind": "search"})
    tab = browser.open(f"{ui}#/experiments/{store.experiment_id}/runs/{parent.id}", 1800)
    shows(tab, "all trials, best first")
    link = "[...document.links].find(a => a.innerText === 'all trials, best first')"
    tab = browser.open(ui + tab.js(f"{link}.getAttribute('href')"), 1800)  # a new tab, as it asks
    tab.wait("/40\\s+matching runs/.test(document.body.innerText)", 90)
    # the grid keeps its cells in any order: they are read as a person does, by where they stand
    heads = "[...document.querySelectorAll('[data-testid^=\"sort-header-\"]')]"
    place = "e => e.getBoundingClientRect()"
    tab.wait(f"{heads}.some(h => h.innerText.trim() === 'score')")
    read = f"{heads}.map(h => [h.innerText.trim(), ({place})(h).left])"
    left = dict(tab.js(read))
    named = [name for name in sorted(left, key=left.get) if "score" in name or "/" in name]
    assert named[:2] == ["score", "val/accuracy"]
    cells = (
        f"[...document.querySelectorAll('[role=gridcell]')].map(c => [({place})(c), c.innerText])"
    )
    near = f"filter(([r, t]) => Math.abs(r.left - {left['score']}) < 30 && t.trim())"
    tab.wait(f"{cells}.{near}.length > 5")
    scores = tab.js(
        f"{cells}.{near}.sort((a, b) => a[0].top - b[0].top).map(c => parseFloat(c[1]))"
    )
    assert scores == sorted(scores, reverse=True)
    button = "[...document.querySelectorAll('button')].find(b => b.innerText === 'Views')"
    x, y, w, h = tab.js(f"(r => [r.x, r.y, r.width, r.height])(({place})({button}))")
    for kind in ("mousePressed", "mouseReleased"):  # the menu opens as a button goes down
        at = {"x": x + w / 2, "y": y + h / 2, "button": "left", "clickCount": 1}
        tab.send("Input.dispatchMouseEvent", type=kind, **at)
    shows(tab, "digits: the tuned methods, best first", "digits: all trials, best first")


@pytest.mark.search
def test_runs_are_found_by_their_tags(store):
    confirmed = store.find({"fltune.kind": "trial", "fltune.confirmed": "true"})
    methods = {run.tags["fltune.method"] for run in confirmed}
    assert methods == {"FedAvg", "FedGM", "FedProx", "SCAFFOLD"}
    assert len(confirmed) == 4
    assert all("fltune.edge" in run.tags for run in confirmed)
    for run in store.find({"fltune.kind": "method"}):
        assert (run.tags["fltune.status"], run.tags["fltune.confirmed"]) == ("complete", "2")
