"""What the command line says of itself: examples, shared options, and what a shell completes.

The examples of ``search`` and what follows it are one story: a search named ``first``. A test runs
them all. Nothing here may import what is slow: a shell waits for it at every press of Tab.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fltune import dotted
from fltune.errors import ConfigError

_FILE = "search_spaces/digits_fedgm.yaml"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (f"search {_FILE} --name first", "compare first --html compare.html"),
    "search": (
        f"search {_FILE} --name first",
        f"search {_FILE} --method FedGM --trials 30 --set rounds=300",
    ),
    "resume": ("resume first", "resume first --set search.concurrent=1"),
    "extend": (
        "extend first --trials 20",
        "extend first --trials 20 --set 'methods.FedGM.space.server.lr={loguniform: [0.1, 20]}'",
    ),
    "compare": ("compare first --target 0.8", "compare first --html compare.html --csv rows.csv"),
    "explain": ("explain first/FedGM#3", "explain first/FedGM#3 --json"),
    "sync": ("sync first", "sync first --set tracking.uri=http://127.0.0.1:5001"),
    "reproduce": ("reproduce mini-fedgm-stability --seeds 3", "reproduce all --mini"),
    "run": (
        f"run {_FILE} --method FedGM --set server.lr=2",
        f"run {_FILE} --method FedAvg --save-participation cohorts.json --json",
    ),
    "plan": (f"plan {_FILE}", f"plan {_FILE} --method FedGM --set search.trials=50"),
    "list": ("list algorithms", "list spaces --json"),
    "ui": ("ui", "ui --port 5001"),
    "plot": (
        f"plot partition {_FILE} --out partition.html",
        f"plot partition {_FILE} --set data.partition.alpha=0.05 --out harsh.html",
    ),
}
"""By command, what stands behind ``python -m fltune``; the empty name is fltune's own help."""

KINDS = (
    *("algorithms", "servers", "participation", "partitions", "datasets", "models"),
    *("compressors", "schedules", "work", "delays", "clocks", "spaces"),
)
"""What ``list`` lists; a test holds it to :data:`fltune.report.listing.KINDS`."""


def examples(command: str) -> str:
    """Return the end of a command's help, a paragraph per example, in Rich's markup."""
    lines = (f"python -m fltune {words}" for words in EXAMPLES[command])
    return "\n\n".join(["Examples:", *(line.replace("[", r"\[") for line in lines)])


def complete_searches(incomplete: str) -> list[str]:
    """Return the names of the searches in the default folder."""
    names = sorted(path.name for path in Path("mlruns/searches").glob("*") if path.is_dir())
    return [name for name in names if name.startswith(incomplete)]


def complete_methods(context: typer.Context, incomplete: str) -> list[str]:
    """Return the methods of the file on the line, as it names them itself."""
    words = [context.params.get("file"), *context.args]  # the rest of a line cut at its end
    file = next((str(word) for word in words if word), "")
    try:
        raw = dotted.read_yaml(file)
    except ConfigError:
        return []
    methods = raw.get("methods")
    names = map(str, methods) if isinstance(methods, dict) else ()
    return [name for name in names if name.startswith(incomplete)]


def complete_kinds(incomplete: str) -> list[str]:
    """Return what can be listed."""
    return [kind for kind in KINDS if kind.startswith(incomplete)]


# what several commands take

File = Annotated[
    Path, typer.Argument(help="a search file (YAML)", metavar="FILE", show_default=False)
]
Name = Annotated[
    str,
    typer.Argument(
        help="name of a search",
        metavar="NAME",
        show_default=False,
        autocompletion=complete_searches,
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="only this method (repeatable)", autocompletion=complete_methods),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a value, by its dotted name"),
]
Json = Annotated[bool, typer.Option("--json", help="end with one JSON object on the last line")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="print the final table only; with --json, the object only")
]
