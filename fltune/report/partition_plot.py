"""A picture of who holds what: which classes, and how many samples, each client has.

Up to 100 clients are bubbles, a row per class, whose area is the number of samples (as Figure 4 of
the FedSUM paper). More clients, or more classes than rows can be told apart, are a heat map of the
shares of a client's samples, so that a small client is as visible as a large one. Below are the
clients' sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fltune.data.federated import FederatedData
from fltune.errors import ConfigError
from fltune.experiment import DataSection, Experiment
from fltune.extras import require
from fltune.pieces import load_data
from fltune.report import parts
from fltune.report.figures import Picture, View, styled
from fltune.schema import Component

BUBBLE_CLIENTS, BUBBLE_CLASSES = 100, 40
"""Beyond these a heat map is drawn."""
MOST_CLIENTS = 1000
"""Columns that a screen can show; later clients are left out, and the title says so."""
LARGEST_BUBBLE = 26
"""Diameter in pixels."""
IMAGES = (".png", ".svg", ".pdf")
COLOUR, SCALE = "#2a6f97", "Blues"


def plot_partition(experiments: Sequence[Experiment], out: str | Path) -> None:
    """Draw the partition that some experiments share to a file.

    Args:
        experiments: validated configs; one, or those of methods that are compared on the same data.
        out: ``.html``, self-contained; or ``.png``, ``.svg``, ``.pdf``, which need kaleido.

    Raises:
        ConfigError: the experiments' data differ, the file has another ending, kaleido is missing,
            or the file cannot be written.
        DataError: the data cannot be had.
    """
    out = Path(out)
    if out.suffix not in (".html", *IMAGES):
        endings = ", ".join((".html", *IMAGES))
        raise ConfigError(f"--out: found {str(out)!r}; must end in {endings}")
    if out.suffix in IMAGES:
        require("kaleido", "images", f"--out: a picture as {out.suffix} (.html needs nothing)")
    section, seed = experiments[0].data, experiments[0].seed
    if any((e.data, e.seed) != (section, seed) for e in experiments):
        raise ConfigError("the methods have different data; say whose to draw with --method")
    data = load_data(section, seed)
    try:
        if out.suffix == ".html":
            out.write_text(_page(view("", section, seed, data)), encoding="utf-8")
        else:
            drawn = figure(data, title(section, seed, data))
            drawn.write_image(out, width=1200, height=700)
    except Exception as error:  # disk, or the browser that kaleido drives: the user's to mend
        raise ConfigError(f"--out: {out} cannot be written: {error}") from error


def view(label: str, section: DataSection, seed: int, data: FederatedData, note: str = "") -> View:
    """Return the chart for a page, which says in words what is drawn.

    Args:
        label: whose data it is.
        section, seed: what the data were loaded by.
        data: the federated data.
        note: sentences at the end.
    """
    lines = title(section, seed, data)
    drawn = styled(figure(data, lines).update_layout(title=None), height=560)
    return View(label, f"{'. '.join(lines)}.{note}", drawn)


def _page(drawn: View) -> str:
    picture = Picture("partition", "Classes and sizes", "data", [drawn])
    return parts.document(
        "Who holds what",
        "",
        {"clients": ("The clients", parts.figure(picture))},
        [picture],
        "Made by fltune plot partition.",
        skip=("clients", "the picture"),
    )


def title(section: DataSection, seed: int, data: FederatedData) -> list[str]:
    """Return the lines that say what is drawn: data set, partition, seed, sizes, notes."""
    partition, report = section.partition, data.report()
    sizes = f"{report['size_min']} / {report['size_median']:g} / {report['size_max']}"
    shown = ""
    if data.num_clients > MOST_CLIENTS:
        shown = f" (the first {MOST_CLIENTS:,} are drawn)"
    return [
        f"{_named(section, _changed(section))}: {_named(partition, partition.options())}, "
        f"seed {section.dealt_by(seed)}",
        f"{data.num_clients:,} clients{shown} with {sizes} samples (min / median / max), "
        f"{report['train_samples']:,} in all",
        *report["partition_notes"],
    ]


def _named(component: Component, values: dict[str, Any]) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
    return f"{component.component_name} ({shown})" if shown else component.component_name


def _changed(component: Component) -> dict[str, Any]:
    """Return the values that are not the defaults."""
    fields = type(component).model_fields
    return {k: v for k, v in component.options().items() if v != fields[k].default}


def figure(data: FederatedData, lines: list[str]) -> go.Figure:
    """Return the chart of classes above that of sizes; sizes alone for a regression.

    Args:
        data: the federated data.
        lines: of the title; the first is its headline.
    """
    clients = min(data.num_clients, MOST_CLIENTS)
    heights = [1.0] if data.num_classes is None else [0.72, 0.28]
    rows = len(heights)
    drawn = make_subplots(rows, 1, shared_xaxes=True, vertical_spacing=0.06, row_heights=heights)
    if data.num_classes is not None:
        counts = data.histograms()[:clients].tolist()
        many = clients > BUBBLE_CLIENTS or data.num_classes > BUBBLE_CLASSES
        largest = max(map(max, counts))
        name = "class" if many else f"class (largest bubble: {largest} samples)"
        drawn.add_trace(_heat_map(counts) if many else _bubbles(counts, largest), row=1, col=1)
        drawn.update_yaxes(title=name, row=1, col=1, range=[-0.7, data.num_classes - 0.3])
        if data.num_classes <= BUBBLE_CLASSES:
            drawn.update_yaxes(dtick=1, row=1, col=1)
    sizes = go.Bar(
        x=list(range(clients)),
        y=data.sizes[:clients].tolist(),
        marker={"color": COLOUR, "line_width": 0},
        hovertemplate="client %{x}: %{y} samples<extra></extra>",
    )
    drawn.add_trace(sizes, row=rows, col=1)
    drawn.update_xaxes(range=[-1, clients], zeroline=False)
    drawn.update_xaxes(title="client", row=rows, col=1)
    drawn.update_yaxes(title="samples", row=rows, col=1)
    below = [piece for line in lines[1:] for piece in wrap(line, 130)]
    drawn.update_layout(
        title={"text": lines[0], "subtitle": {"text": "<br>".join(below)}},
        margin={"t": 90 + 18 * len(below)},
        bargap=0.15 if clients <= BUBBLE_CLIENTS else 0,
        showlegend=False,
        template="plotly_white",
    )
    return drawn


def _bubbles(counts: list[list[int]], largest: int) -> go.Scatter:
    """Return one bubble per (client, class) that holds samples."""
    cells = [(i, c, n) for i, row in enumerate(counts) for c, n in enumerate(row) if n]
    client, label, samples = (list(values) for values in zip(*cells, strict=True))
    return go.Scatter(
        x=client,
        y=label,
        mode="markers",
        marker={
            "size": samples,
            "sizemode": "area",
            "sizeref": 2 * largest / LARGEST_BUBBLE**2,
            "sizemin": 1.5,
            "color": COLOUR,
            "opacity": 0.75,
            "line_width": 0,
        },
        hovertemplate="client %{x}, class %{y}: %{marker.size} samples<extra></extra>",
    )


def _heat_map(counts: list[list[int]]) -> go.Heatmap:
    """Return each client's shares of the classes, a column per client."""
    shares: list[list[Any]] = [[n / sum(row) for n in row] for row in counts]
    return go.Heatmap(
        z=list(map(list, zip(*shares, strict=True))),
        customdata=list(map(list, zip(*counts, strict=True))),
        colorscale=SCALE,
        zmin=0,
        zmax=1,
        colorbar={"title": "share of the<br>client's samples", "len": 0.7, "y": 0.65},
        hovertemplate="client %{x}, class %{y}: %{customdata} samples (%{z:.0%})<extra></extra>",
    )
