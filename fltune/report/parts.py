"""What every page is made of: the shell of the file, tables, and figures with their views.

A page is one HTML file that needs nothing else: no network, no server, no other file. A policy in
it forbids it to load anything, and whatever is not markup of ours is escaped where it stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fltune.report.page_style import SCRIPT, STYLE, TEMPLATES

if TYPE_CHECKING:
    from fltune.report.figures import Picture, View

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
"""What the page may do: nothing but what stands in it; the network is out of reach."""

LONG = 40
"""Letters from which a cell's line is broken."""
LONG_HEAD = 20
"""Letters from which the words of a row's head are broken; a shorter one has them whole."""


def document(
    title: str,
    lead: str,
    sections: Mapping[str, tuple[str, str]],
    pictures: Sequence[Picture],
    footer: str,
    skip: tuple[str, str],
) -> str:
    """Return a whole page.

    Args:
        title: plain text.
        lead: markup below the title.
        sections: title in plain text and markup, by key.
        pictures: whose data the page holds; a section has the :func:`figure` of each.
        footer: markup.
        skip: key of the section to skip to, and what it is, in plain text.
    """
    from plotly.offline import get_plotlyjs  # a second; the terminal's tables do without

    links = "".join(f'<li><a href="#{k}">{escape(t)}</a></li>' for k, (t, _) in sections.items())
    body = "".join(
        f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(heading)}</h2>{inner}</section>'
        for key, (heading, inner) in sections.items()
    )
    name = escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{STYLE}</style>"
        f"<noscript><style>[data-view][hidden] {{ display: block !important; }} "
        f".plot, .controls {{ display: none; }}</style></noscript></head>"
        f'<body><a class="skip" href="#{skip[0]}">Skip to {escape(skip[1])}</a>'
        f"<header><h1>{name}</h1>{lead}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header><main>{body}</main>'
        f"<footer><p class=note>{footer}</p></footer>"
        f"{_data('figures', {p.key: list(map(_plain, p.views)) for p in pictures})}"
        f"{_data('templates', TEMPLATES)}"
        f"<script>{get_plotlyjs()}</script><script>{SCRIPT}</script></body></html>\n"
    )


def _plain(view: View) -> Any:
    """Return what plotly draws; None where there is nothing to draw."""
    if view.figure is None:
        return None
    figure = json.loads(view.figure.to_json())
    figure["layout"].pop("template", None)  # the page has one for each kind of paper
    return {"data": figure["data"], "layout": figure["layout"]}


def _data(key: str, value: Any) -> str:
    """Return an element that holds JSON; nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="{key}">{text}</script>'


def figure(picture: Picture) -> str:
    """Return a picture's place, its choice of views, and what each shows in words."""
    key = escape(picture.key)
    controls = ""
    if len(picture.views) > 1:
        options = "".join(
            f'<option value="{i}">{escape(view.label)}</option>'
            for i, view in enumerate(picture.views)
        )
        controls = (
            f'<p class=controls><label>{escape(picture.choice)}: <select autocomplete="off">'
            f"{options}</select></label></p>"
        )
    texts = "".join(
        f'<p data-view="{i}"{" hidden" if i else ""}>{escape(view.text)}</p>'
        for i, view in enumerate(picture.views)
    )
    label = escape(picture.views[0].text)
    return (
        f'<h3 id="{key}-title">{escape(picture.title)}</h3>'
        f'<figure id="{key}" aria-labelledby="{key}-title">{controls}'
        f'<div class="plot" role="img" aria-label="{label}"></div>'
        f"<figcaption>{texts}</figcaption></figure>"
    )


def table(
    key: str,
    label: str,
    heads: Sequence[str],
    rows: Iterable[tuple[str, Sequence[str], bool]],
    texts: Sequence[int] = (),
) -> str:
    """Return a table that scrolls sideways where it is too wide.

    Args:
        key: its name in the page.
        label: what it holds; stands above it, so that it does not scroll away.
        heads: of the columns; the first one's cells are the rows' heads.
        rows: head, cells, and whether the row stands out.
        texts: positions of cells that hold text.
    """
    columns = "".join(
        f'<th scope="col"{" class=text" if i == 0 or i - 1 in texts else ""}>{escape(head)}</th>'
        for i, head in enumerate(heads)
    )
    body = ""
    for head, cells, best in rows:
        inner = "".join(_cell(cell, i in texts) for i, cell in enumerate(cells))
        long = " class=long" if len(head) > LONG_HEAD else ""
        name = f'<th scope="row"{long}>{escape(head)}</th>'
        body += f"<tr{' class=best' if best else ''}>{name}{inner}</tr>"
    return (
        f'<p class=note id="{key}">{escape(label)}</p>'
        f'<div class=scroll role="region" tabindex="0" aria-labelledby="{key}">'
        f'<table aria-labelledby="{key}"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(text: str, words: bool) -> str:
    """Return a cell: a number, or text, whose lines are broken where they are long."""
    kind = ""
    if words:
        long = max(map(len, text.split("\n"))) > LONG
        kind = ' class="text wrap"' if long else ' class="text"'
    return f"<td{kind}>{_lines(text)}</td>"


def _lines(text: str) -> str:
    return "<br>".join(map(escape, text.split("\n")))
