"""How the comparison page looks and what it does: its style sheet, its script, plotly's colours.

The page follows the reader's light or dark setting, figures included, and changes with it.
"""

from __future__ import annotations

from typing import Any


def _template(text: str, grid: str, hover: str) -> dict[str, Any]:
    """Return plotly's colours on one kind of paper; the paper itself is the page's."""
    axis = {"gridcolor": grid, "linecolor": grid, "zerolinecolor": grid, "automargin": True}
    return {
        "layout": {
            "font": {"color": text, "size": 13, "family": "system-ui, sans-serif"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"bgcolor": hover, "font": {"color": text}},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": text, "activecolor": "#2f86d1"},
        }
    }


TEMPLATES = {
    "light": _template("#1d2329", "#d9dee3", "#ffffff"),
    "dark": _template("#e4e8ec", "#3a424b", "#20262d"),
}

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2329; --faint: #56606b;
  --line: #d0d6dc; --soft: #f3f5f7; --link: #1a5fa3; --warn: #8a4300; --warn-paper: #fff4e5; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15191e; --ink: #e4e8ec; --faint: #a5afba; --line: #39414a; --soft: #1f252b;
    --link: #7db8f0; --warn: #ffb870; --warn-paper: #33261a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
.skip { position: absolute; left: -99em; }
.skip:focus { left: 1em; top: 1em; background: var(--paper); padding: .5em; }
main, header, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.6rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); }
h3 { margin: 1.6rem 0 .3rem; overflow-wrap: anywhere; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .25rem 0; }
p, li, dd, figcaption { max-width: 70ch; overflow-wrap: anywhere; }
.note, figcaption { color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
.annotation-text { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
th, td { text-align: right; vertical-align: top; padding: .4rem .7rem;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
th.text, td.text { text-align: left; }
thead th { background: var(--soft); vertical-align: bottom; white-space: normal; }
td.wrap { white-space: normal; min-width: min(17rem, 65vw); overflow-wrap: anywhere; }
tbody th { text-align: left; font-weight: 600; white-space: normal; min-width: 7.5rem; }
tbody th.long { min-width: 13rem; overflow-wrap: anywhere; }
.best th, .best td { background: var(--soft); }
@media (min-width: 700px) { tbody th { position: sticky; left: 0; background: var(--paper); } }
figure { margin: 0 0 1.5rem; }
.plot { width: 100%; overflow: hidden; }
.controls { margin: .4rem 0; }
select { font: inherit; padding: .3rem .5rem; max-width: 100%; color: inherit;
  background: var(--soft); border: 1px solid var(--faint); border-radius: 4px; }
ul.warnings { background: var(--warn-paper); border-left: 4px solid var(--warn);
  padding: .7rem 1rem .7rem 2rem; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; font-size: .85rem;
  border-radius: 4px; }
code { font-family: ui-monospace, monospace; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; }
@media (max-width: 500px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
summary { cursor: pointer; padding: .4rem 0; overflow-wrap: anywhere; }
@media print { nav, .controls, .skip { display: none; } }
"""

SCRIPT = """
const figures = JSON.parse(document.getElementById("figures").textContent);
const templates = JSON.parse(document.getElementById("templates").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const config = {displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};

function draw(figure) {
  const plot = figure.querySelector(".plot");
  const choice = figure.querySelector("select");
  const chosen = choice ? Number(choice.value) : 0;
  figure.querySelectorAll("[data-view]").forEach(
    text => { text.hidden = Number(text.dataset.view) !== chosen; });
  const view = figures[figure.id][chosen];
  plot.hidden = !view;
  if (!view) return;
  plot.setAttribute("aria-label", figure.querySelector(`[data-view="${chosen}"]`).textContent);
  plot.style.height = view.layout.height + "px";
  const template = templates[dark.matches ? "dark" : "light"];
  Plotly.react(plot, structuredClone(view.data), {...structuredClone(view.layout), template},
    {...config, displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false});
}

const all = [...document.querySelectorAll("figure[id]")];
const resized = new ResizeObserver(entries => entries.forEach(
  ({target}) => { if (!target.hidden && target.data) Plotly.Plots.resize(target); }));
all.forEach(figure => {
  draw(figure);
  resized.observe(figure.querySelector(".plot"));
  figure.querySelector("select")?.addEventListener("change", () => draw(figure));
});
dark.addEventListener("change", () => all.forEach(draw));
"""
