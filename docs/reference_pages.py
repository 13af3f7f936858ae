"""Pages made from the components themselves when the docs are built: a hook of mkdocs.

A page per algorithm (its docstrings, parameters, traffic, a config that runs, what was measured)
and one per kind of everything else. Nothing of it is committed, so nothing can be out of date.

    python docs/reference_pages.py FOLDER      # the same pages without mkdocs
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from fltune import dotted
from fltune.algorithms import ALGORITHMS
from fltune.experiment import DataSection, Experiment
from fltune.federation.local import LocalSGD
from fltune.parameters import describe
from fltune.report.listing import REGISTRIES, listing
from fltune.report.markdown import markdown_table
from fltune.search.settings import RaySettings, Resources, SearchSettings, Tracking

HERE = Path(__file__).parent
SPACES = HERE.parent / "search_spaces" / "methods_digits.yaml"
MEASURED = HERE / "measured" / "methods_digits.json"
MEASURE = "python -m fltune search search_spaces/methods_digits.yaml --name methods"

KIND_TITLES = {
    "servers": ("Server optimizers", "server", "name"),
    "participation": ("Participation", "participation", "kind"),
    "partitions": ("Partitions", "data.partition", "kind"),
    "datasets": ("Data sets", "data", "name"),
    "models": ("Models", "model", "name"),
    "compressors": ("Compression", "compression", "name"),
    "schedules": ("Schedules of the client rate", "client.schedule", "name"),
    "work": ("Local work", "work", "kind"),
    "delays": ("Delays", "delays", "kind"),
    "clocks": ("Simulated clocks", "clock", "kind"),
}
"""Title, dotted section and the key that names the component, by what ``list`` calls the kind."""

SECTIONS = {
    "experiment": (
        Experiment,
        "One run: these keys beside the sections `data`, `model`, `participation`, `client`, "
        "`algorithm`, `server`, `compression`, `work`, `delays` and `clock`. What a section takes "
        "is told below or on its component's own page.",
    ),
    "data": (DataSection, "Beside the keys of the data set."),
    "search": (SearchSettings, "The budget, and how winners are chosen."),
    "tracking": (Tracking, "Where the record goes."),
    "resources": (Resources, "What one trial gets."),
    "ray": (RaySettings, "How Ray is reached."),
}


def pages() -> dict[str, str]:
    """Return the Markdown of every generated page, by its path below ``docs``."""
    entries = {entry["name"]: entry for entry in listing("algorithms")}
    made = {"algorithms/index.md": _algorithms_index(entries)}
    made |= {f"algorithms/{name}.md": _algorithm(entry) for name, entry in entries.items()}
    made |= {f"reference/{kind}.md": _kind(kind) for kind in KIND_TITLES}
    return {**made, "reference/keys.md": _keys()}


def navigation(made: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what the pages add to mkdocs' ``nav``."""
    titled = {path: text.split("\n", 1)[0].strip("# `") for path, text in made.items()}

    def under(folder: str) -> list[dict[str, str]]:
        return [{t: path} for path, t in titled.items() if path.startswith(f"{folder}/")]

    methods = [m if "index" not in str(m) else "algorithms/index.md" for m in under("algorithms")]
    return [{"Methods": methods}, {"Reference": under("reference")}]


def on_config(config: Any) -> Any:
    """Add the pages to the navigation (mkdocs calls it)."""
    config.nav = [*config.nav, *navigation(pages())]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to what is built (mkdocs calls it)."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def _algorithms_index(entries: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        (f"[`{name}`]({name}.md)", entry["paper"], entry["communication"], entry["memory"])
        for name, entry in entries.items()
    ]
    return "\n".join(
        [
            "# Methods",
            "",
            "Each is one file in `fltune/algorithms/`, held to exact trajectories in float64. "
            "Traffic is in floats per active client and round, d is the number of the model's "
            "parameters. Most methods combine with any "
            "[server optimizer](../reference/servers.md) and any "
            "[compression](../reference/compressors.md); what no paper defines is named when it "
            "starts, and what cannot be is refused. Each page says which.",
            "",
            *_table(("method", "paper", "sends", "keeps"), rows),
            "",
            "## Measured",
            "",
            *_measured(lambda row: True),
            "",
        ]
    )


def _algorithm(entry: Mapping[str, Any]) -> str:
    name, target = entry["name"], ALGORITHMS.load(entry["name"])
    module = inspect.getdoc(sys.modules[target.__module__]) or ""
    shared = ", ".join(target.compressed)
    facts = [
        ("paper", entry["paper"]),
        ("sends per active client", f"{entry['communication']} floats"),
        ("keeps", entry["memory"]),
        ("compressed", f"{shared}" if shared else "nothing"),
        ("server optimizers", _servers_of(target)),
        ("clients per round", f"{target.fewest_clients} or more"),
    ]
    written = [f"`fltune.algorithms.{Path(inspect.getfile(target)).stem}`", target.__name__]
    return "\n".join(
        [
            f"# `{name}`",
            "",
            markdown(_prose(inspect.getdoc(target) or "")),
            "",
            *_table(("in short", ""), facts),
            "",
            "## The method",
            "",
            markdown(module),
            "",
            "## Parameters",
            "",
            *_parameters(entry["parameters"]),
            "",
            f"Set as `algorithm.NAME`. The code is `{written[1]}` in {written[0]}.",
            "",
            "## In a file",
            "",
            "From `search_spaces/methods_digits.yaml`:",
            "",
            "```yaml",
            yaml.dump(
                {"methods": _methods(name)}, Dumper=_Plain, sort_keys=False, default_flow_style=None
            ).rstrip(),
            "```",
            "",
            "## Measured",
            "",
            *_measured(lambda row: row["algorithm"] == name),
            "",
        ]
    )


def _servers_of(target: Any) -> str:
    if target.plain_server:
        return "`fedavg` only: the method defines the whole server step"
    return (
        "any" if target.any_server else "`fedavg`; with others no paper defines it, and runs say so"
    )


class _Plain(yaml.SafeDumper):
    """Writes a value as often as it stands there, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return true for all."""
        return True


def _methods(algorithm: str) -> dict[str, Any]:
    """Return the methods of ``methods_digits.yaml`` that an algorithm is tuned as."""
    methods = dotted.read_yaml(SPACES)["methods"]
    own = {n: m for n, m in methods.items() if _name(m.get("algorithm", "fedavg")) == algorithm}
    plain = {n: m for n, m in own.items() if "server" not in m}
    return plain or own  # of the many servers over FedAvg, the page of servers tells


def _name(section: Any) -> str:
    return str(section["name"] if isinstance(section, Mapping) else section)


def _kind(kind: str) -> str:
    title, section, key = KIND_TITLES[kind]
    entries = listing(kind)
    lines = [
        f"# {title}",
        "",
        f"Under `{section}`, named by `{key}`; `python -m fltune list {kind}`",
    ]
    lines[-1] += " prints the same."
    rows = [(f"[`{e['name']}`](#{e['name']})", markdown(e["summary"])) for e in entries]
    lines += ["", *_table(("name", "what it is"), rows), ""]
    for entry in entries:
        prose = _prose(inspect.getdoc(REGISTRIES[kind].load(entry["name"])) or "")
        lines += [f"## `{entry['name']}` {{ #{entry['name']} }}", "", markdown(prose), ""]
        if entry.get("paper"):
            lines += [f"Paper: {entry['paper']}.", ""]
        lines += [*_parameters(entry["parameters"]), ""]
    if kind == "servers":
        lines += ["## Measured", "", *_measured(lambda row: row["server"] != "fedavg"), ""]
    return "\n".join(lines)


FILE = {
    "experiment": "one run, see below; the methods differ from it",
    "methods": "by name, what is different of each: any key of the experiment, and its `space`, "
    "`points` (where to start) and `inherit` (values of another method's winner)",
    "scenarios": "axes of cells: by axis and label, what is set there",
    "tune": "in which cells, and by which method, the values are found",
    "search": "the budget, and how winners are chosen, see below",
    "tracking, resources, ray": "where it is recorded and runs, see below",
    "name": "of the search; left out: the file's name and the time",
    "extends": "another file that this one lies over",
    "about, claims, figure, numbers": "whose experiment it is, and what `fltune reproduce` judges",
}


def _keys() -> str:
    lines = ["# Keys of a file", "", "Dotted, and the same in files, in `--set` and in MLflow.", ""]
    rows = [(", ".join(f"`{k}`" for k in key.split(", ")), what) for key, what in FILE.items()]
    lines += ["## The file", "", *_table(("section", "what it holds"), rows), ""]
    for name, (model, what) in SECTIONS.items():
        rows = [
            (f"`{key}`", _shown(field.get_default(call_default_factory=True)), _said(field))
            for key, field in model.model_fields.items()
            if field.description
        ]
        lines += [f"## {name}", "", what, "", *_table(("key", "default", "what it is"), rows), ""]
    rows = [
        (f"`{key}`", _shown(default), meta.range, _doc(meta.symbol, meta.doc))
        for key, default, meta in describe(LocalSGD)
    ]
    lines += ["## client", "", "The clients' local SGD.", ""]
    return "\n".join([*lines, *_table(("key", "default", "range", "what it is"), rows), ""])


def _said(field: FieldInfo) -> str:
    """Return what a key is and, where it takes one of a few words, which."""
    words = ", ".join(f"`{word}`" for word in _words(field.annotation))
    return f"{field.description}. One of {words}" if words else str(field.description)


def _words(annotation: Any) -> list[Any]:
    """Return the words that a type allows; none where it allows other values, null apart."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return _words(parts[0]) if len(parts) == 1 else []


def _parameters(parameters: Sequence[Mapping[str, Any]]) -> list[str]:
    if not parameters:
        return ["No parameters."]
    rows = [
        (
            f"`{p['name']}`",
            "required" if p["required"] else _shown(p["default"]),
            p["range"],
            _doc(p["symbol"], p["doc"]),
        )
        for p in parameters
    ]
    return _table(("parameter", "default", "range", "what it is"), rows)


def _doc(symbol: str, doc: str) -> str:
    return f"{symbol}: {doc}" if symbol and doc else symbol or doc


def _shown(default: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    plain = default is None or isinstance(default, bool)
    return f"`{words[default] if plain else default}`"


def _mebibytes(*bits: float | None) -> str:
    """Show a sum of traffic; of a method without a complete run none is known."""
    known = [b for b in bits if b is not None]
    return f"{sum(known) / 8 / 2**20:.1f}" if len(known) == len(bits) else "n/a"


def _measured(wanted: Any) -> list[str]:
    """Return the rows of the measured search that are wanted, or say that there is none."""
    held = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    chosen = {n: row for n, row in held.get("methods", {}).items() if wanted(row)}
    how = f"`{MEASURE}`, then `python docs/measured_rows.py methods`"
    if not chosen:
        return [f"Not measured yet. {how}, writes what stands here."]
    rows = [
        (
            name,
            ", ".join(f"`{key}` {value}" for key, value in row["best"].items()),
            f"{row['val']:.4f}",
            _interval(row["test"]),
            _mebibytes(row["bits_up"], row["bits_down"]),
            f"{row['diverged']} of {row['trials']}",
        )
        for name, row in chosen.items()
    ]
    heads = ("as", "best values", held["metric"], "test accuracy", "MiB in all", "diverged")
    return [
        *_table(heads, rows),
        "",
        f"Measured on {held['measured']} with fltune {held['fltune']} on real digits: "
        f"{held['trials']} trials each, {held['rounds']} rounds, {held['seeds']} fresh seeds "
        f"(mean ± half the 95% interval). {how}, measures it again. One task says little about "
        "another.",
    ]


def _interval(test: Mapping[str, Any]) -> str:
    half = "" if test["high"] is None else f" ± {test['high'] - test['mean']:.4f}"
    return f"{test['mean']:.4f}{half}"


def _prose(doc: str) -> str:
    """Return a docstring up to the section of its attributes."""
    return re.split(r"\n(?=(?:Attributes|Args|Raises|Returns|Yields):)", doc)[0].rstrip()


def markdown(doc: str) -> str:
    """Return a docstring as Markdown: roles, double backticks and tables become code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", doc).replace("``", "`")
    parts = [
        indent(part, "    ") if part.startswith("===") else part for part in text.split("\n\n")
    ]
    text = "\n\n".join(parts)
    return "\n".join(_roomy(text.split("\n")))


def _roomy(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with an empty one before every list and every indented block."""
    before = ""
    for line in lines:
        item = line.startswith("- ")
        block = line.startswith("    ") and not before.startswith(("    ", "- ", "  "))
        if before.strip() and (block or (item and not before.startswith(("- ", "  ")))):
            yield ""
        yield line
        before = line


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return markdown_table(heads, [[*map(str, row)] for row in rows])


if __name__ == "__main__":
    for path, text in pages().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
