"""The command line: search and what goes on with it, run, plan, list, ui. No logic of its own.

Exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fltune.errors import ConfigError, FltuneError, nearest

app = typer.Typer(
    help="Tune federated-learning algorithms and compare them fairly.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

File = Annotated[Path, typer.Argument(help="a search file (YAML)", show_default=False)]
Name = Annotated[str, typer.Argument(help="name of a search", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="override a value, by its dotted name"),
]
Json = Annotated[bool, typer.Option("--json", help="end with one JSON object on the last line")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="print the final table only; with --json, the object only")
]


@app.command(epilog="python -m fltune search search_spaces/digits_fedgm.yaml --trials 30")
def search(
    file: File,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="only this method (repeatable)")
    ] = None,
    settings: Sets = None,
    trials: Annotated[int | None, typer.Option(help="trials per method")] = None,
    name: Annotated[str | None, typer.Option(help="name of the search")] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="the same search with any number of workers")
    ] = False,
    extend_edges: Annotated[
        int | None, typer.Option(help="times a space is widened where its winner is on an edge")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tune the methods of a file, confirm the winners on fresh seeds, keep all of it in MLflow."""
    chosen = list(settings or [])
    if trials is not None:
        chosen.append(f"search.trials={trials}")
    if deterministic:
        chosen.append("search.deterministic=true")
    if extend_edges is not None:
        chosen.append(f"search.extend_edges={extend_edges}")
    from fltune.search.config import SearchConfig

    config = SearchConfig.read(file, chosen, method or [])
    from fltune.search.search import search as run_search

    summary = run_search(config, name=name, console=_console(quiet and as_json), quiet=quiet)
    _finish(summary.as_json(), as_json)


@app.command(epilog="python -m fltune resume digits_fedgm-20261127-101500")
def resume(name: Name, settings: Sets = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Go on with a search after Ctrl-C, a kill or a reboot; nothing that had ended runs again."""
    from fltune.search.search import resume as go_on

    console = _console(quiet and as_json)
    _finish(go_on(name, settings or [], console=console, quiet=quiet).as_json(), as_json)


@app.command(epilog="python -m fltune extend digits_fedgm-20261127-101500 --trials 20")
def extend(
    name: Name,
    trials: Annotated[int, typer.Option(help="so many more trials per method", min=0)] = 0,
    settings: Sets = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Add trials, seeds or a wider space to a search; only what is new runs.

    Widen a range with --set 'methods.FedGM.space.server.lr={loguniform: [0.1, 20]}'.
    """
    from fltune.search.search import extend as add

    console = _console(quiet and as_json)
    summary = add(name, trials, settings or [], console=console, quiet=quiet)
    _finish(summary.as_json(), as_json)


@app.command(epilog="python -m fltune compare digits_fedgm-20261127-101500 --html compare.html")
def compare(
    name: Name,
    target: Annotated[
        float | None, typer.Option(help="count the rounds until the validation metric reaches it")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="write a page for a browser")] = None,
    csv: Annotated[Path | None, typer.Option(help="write a row per method")] = None,
    latex: Annotated[Path | None, typer.Option(help="write a booktabs table")] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Put the tuned methods of a search side by side, finished or not: table, page, CSV, LaTeX."""
    from fltune.report.compare import print_report
    from fltune.search.search import compare as put_together

    report, console = put_together(name, settings or [], target), _console()
    print_report(report, console)
    from fltune.report.export import write_files

    for path in write_files(report, html, csv, latex):
        console.print(f"written to {path}", highlight=False, markup=False)
    _finish(report.as_json(), as_json)


@app.command(epilog="python -m fltune explain digits_fedgm-20261127-101500/FedGM#3")
def explain(
    trial: Annotated[
        str, typer.Argument(help="SEARCH/METHOD#NUMBER", metavar="TRIAL", show_default=False)
    ],
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Say what a trial was, how it stood, why it ended, and the command that runs it alone."""
    from fltune.search.search import explain as tell

    _finish(tell(trial, settings or [], _console()), as_json)


@app.command(epilog="python -m fltune sync digits_fedgm-20261127-101500")
def sync(name: Name, settings: Sets = None) -> None:
    """Send to the tracking store what it lacks of a search."""
    from fltune.search.search import sync as send

    console = _console()
    sent = send(name, settings or [], console=console)
    console.print(f"sent {sent} runs of {name}", highlight=False, markup=False)


@app.command(
    epilog="python -m fltune run search_spaces/digits_fedgm.yaml --method FedGM --set server.lr=2"
)
def run(
    file: File,
    method: Annotated[str, typer.Option("--method", help="which method of the file")],
    settings: Sets = None,
    save_partition: Annotated[
        Path | None,
        typer.Option(help="write who holds what to this .json file, for data.partition kind: file"),
    ] = None,
    save_participation: Annotated[
        Path | None,
        typer.Option(help="write the cohorts to this .json or .csv file, for kind: trace"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one federated training of one method, and evaluate it on the test split."""
    from fltune.search.config import SearchConfig

    config = SearchConfig.read(file, settings or [], [method])
    experiment = config.method(method).experiment({})
    from fltune.runner import run as run_experiment
    from fltune.runner import save_partition as write_partition
    from fltune.runner import use_threads

    console = _console()
    for text in experiment.cautions():
        console.print(f"note: {text}", highlight=False, markup=False)
    if save_partition is not None:
        write_partition(experiment, save_partition)
    use_threads(config.settings.resources.cpus)  # as a trial of a search: the same numbers
    result = run_experiment(
        experiment,
        on_row=lambda row: _print_row(row, console),
        save_participation=save_participation,
    )
    console.print(f"{method}: {result.message}", highlight=False, markup=False)
    held = result.data
    console.print(
        f"  {held['clients']} clients with {held['size_min']} to {held['size_max']} samples "
        f"(median {held['size_median']:g})",
        highlight=False,
    )
    for text in held["partition_notes"]:
        console.print(f"  {text}", highlight=False, markup=False)
    for key, value in sorted(result.metrics.items()):
        console.print(f"  {key:16} {value:.4f}", highlight=False)
    up, down = (result.comm[k] / 8 / 2**20 for k in ("up_bits", "down_bits"))
    console.print(
        f"  {result.rounds} rounds, {result.client_samples:,} client samples, {up:.1f} MiB up, "
        f"{down:.1f} MiB down, {result.seconds:.1f} s ({result.strategy})",
        highlight=False,
    )
    if result.timings:
        timed = ", ".join(f"{name} {value:.4f} s" for name, value in result.timings.items())
        console.print(f"  a round's local work: {timed}", highlight=False)
    seen = result.participation
    console.print(
        f"  {seen['coverage']:.0%} of the clients seen, away for up to {seen['tau_max']} rounds "
        f"(mean {seen['tau_avg']:.1f}); visits within {seen['fairness']:.0%} of their mean "
        f"(cv {seen['count_cv']:.2f})",
        highlight=False,
    )
    plain = asdict(result)
    kept = ["rounds", "metrics", "comm", "participation", "client_samples", "seconds"]
    kept += ["strategy", "timings", "data"]
    reason = {"stop_reason": result.stop_reason.value, "message": result.message}
    _finish({"method": method, **reason, **{k: plain[k] for k in kept}}, as_json)


def _print_row(row: dict[str, float], console: Console) -> None:
    if console.is_terminal:
        text = "  ".join(f"{k} {v:.4f}" for k, v in row.items() if k.startswith(("val", "train")))
        console.print(f"round {row['round']:g}  {text}", highlight=False, end="\r")


@app.command(epilog="python -m fltune plan search_spaces/digits_fedgm.yaml")
def plan(
    file: File,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="only this method (repeatable)")
    ] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Print the bill of a search before the work: trials, rounds, samples, time, disk, memory."""
    from fltune.search.config import SearchConfig

    config = SearchConfig.read(file, settings or [], method or [])
    from fltune.search.plan import plan as make_plan
    from fltune.search.plan import print_bill

    bill = make_plan(config)
    print_bill(bill, config, _console())
    _finish(bill.as_json(), as_json)


@app.command("list", epilog="python -m fltune list servers")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="algorithms, servers, participation, partitions, datasets, models, compressors, "
            "schedules, work, delays, clocks or spaces"
        ),
    ],
    as_json: Json = False,
) -> None:
    """List what there is, with parameters, ranges and defaults."""
    from fltune.report.listing import listing, print_listing

    entries = listing(kind)
    if as_json:
        print(json.dumps(entries, default=str))
    else:
        print_listing(kind, entries, _console())


@app.command(epilog="python -m fltune ui --port 5001")
def ui(
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 5000,
    settings: Sets = None,
) -> None:
    """Open the MLflow UI on this project's store, on 127.0.0.1 only."""
    from fltune import tracking
    from fltune.search.config import SearchConfig

    chosen = SearchConfig.tracking_of(settings or [])
    root = Path(chosen.root).resolve()
    uri = tracking.resolve_uri(chosen.uri, root)
    path = tracking.sqlite_path(uri)
    if path is not None and not path.exists():
        raise ConfigError(f"there is no store at {path} yet; run a search first")
    home = path.parent if path is not None else root
    argv = tracking.ui_command(uri, port, home / "artifacts")
    print(f"MLflow UI: http://127.0.0.1:{port}  (Ctrl-C ends it)", flush=True)
    raise typer.Exit(subprocess.call(argv, env={**os.environ, **tracking.UI_ENVIRONMENT}))


plots = typer.Typer(help="Draw pictures.", no_args_is_help=True)
app.add_typer(
    plots, name="plot", epilog="python -m fltune plot partition search_spaces/digits_fedgm.yaml"
)


@plots.command(
    epilog="python -m fltune plot partition search_spaces/digits_fedgm.yaml --out partition.html"
)
def partition(
    file: File,
    method: Annotated[
        str | None, typer.Option("--method", help="whose data; needed if the methods' data differ")
    ] = None,
    settings: Sets = None,
    out: Annotated[
        Path, typer.Option(help=".html, or .png, .svg, .pdf (pip install 'fltune[images]')")
    ] = Path("partition.html"),
) -> None:
    """Draw who holds what: the classes and sizes of the clients."""
    from fltune.search.config import SearchConfig

    config = SearchConfig.read(file, settings or [], [method] if method else [])
    from fltune.report.partition_plot import plot_partition

    plot_partition([m.experiment({}) for m in config.methods.values()], out)
    _console().print(f"drawn to {out}", highlight=False, markup=False)


def _console(silent: bool = False) -> Console:
    """Return the console; output that goes to a file or a pipe is not cut to 80 columns."""
    console = Console(quiet=silent)
    return console if console.is_terminal else Console(width=120, quiet=silent)


def _finish(result: dict[str, Any], as_json: bool) -> None:
    from fltune.report.summary import finite

    if as_json:
        print(json.dumps(finite(result), allow_nan=False))


def main(argv: list[str] | None = None) -> None:
    """Run a command; errors that the user can mend are printed without a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    known = [c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands]
    known += [group.name or "" for group in app.registered_groups]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in known:
        print(
            f"fltune: unknown command {arguments[0]!r}{nearest(arguments[0], known)}; "
            f"there are: {', '.join(known)}",
            file=sys.stderr,
        )
        sys.exit(2)
    try:
        app(args=arguments, prog_name="fltune")
    except FltuneError as error:
        print(f"fltune: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("fltune: interrupted", file=sys.stderr)
        sys.exit(130)
