"""The command line: search and what goes on with it, run, plan, list, ui. No logic of its own.

Exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 interrupted,
143 ended by SIGTERM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fltune.command_help import (
    KINDS,
    File,
    Json,
    Methods,
    Name,
    Quiet,
    Sets,
    complete_kinds,
    complete_methods,
    complete_searches,
    examples,
)
from fltune.errors import ConfigError, FltuneError, nearest
from fltune.garbage import OURS

app = typer.Typer(
    help="Tune federated-learning algorithms and compare them fairly.",
    epilog=examples(""),
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.command(epilog=examples("search"))
def search(
    file: File,
    method: Methods = None,
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


@app.command(epilog=examples("resume"))
def resume(name: Name, settings: Sets = None, quiet: Quiet = False, as_json: Json = False) -> None:
    """Go on with a search after Ctrl-C, a kill or a reboot; nothing that had ended runs again."""
    from fltune.search.search import resume as go_on

    console = _console(quiet and as_json)
    _finish(go_on(name, settings or [], console=console, quiet=quiet).as_json(), as_json)


@app.command(epilog=examples("extend"))
def extend(
    name: Name,
    trials: Annotated[int, typer.Option(help="further trials per method", min=0)] = 0,
    settings: Sets = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Add trials, seeds or a wider space to a search; only what is new runs.

    Widen a range with --trials 20 --set 'methods.FedGM.space.server.lr={loguniform: [0.1, 20]}'.
    """
    from fltune.search.search import extend as add

    console = _console(quiet and as_json)
    summary = add(name, trials, settings or [], console=console, quiet=quiet)
    _finish(summary.as_json(), as_json)


@app.command(epilog=examples("compare"))
def compare(
    name: Name,
    target: Annotated[
        float | None, typer.Option(help="count the rounds until the validation metric reaches it")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="write a page for a browser")] = None,
    csv: Annotated[Path | None, typer.Option(help="write a row per method")] = None,
    latex: Annotated[Path | None, typer.Option(help="write a booktabs table")] = None,
    references: Annotated[
        bool,
        typer.Option(
            "--references", help="also run centralised training, clients alone, untuned methods"
        ),
    ] = False,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Put the tuned methods of a search side by side, finished or not: table, page, CSV, LaTeX."""
    from fltune.report.compare import print_report
    from fltune.search.search import compare as put_together

    console = _console()
    report = put_together(name, settings or [], target, references, console)
    print_report(report, console)
    from fltune.report.export import write_files

    for path in write_files(report, html, csv, latex):
        console.print(f"written to {path}", highlight=False, markup=False)
    _finish(report.as_json(), as_json)


@app.command(epilog=examples("explain"))
def explain(
    trial: Annotated[
        str,
        typer.Argument(
            help="SEARCH/METHOD#NUMBER; with --noise a SEARCH",
            metavar="TRIAL",
            show_default=False,
            autocompletion=complete_searches,
        ),
    ],
    noise: Annotated[
        bool,
        typer.Option("--noise", help="how often fewer evaluation clients would pick the winner"),
    ] = False,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Say what a trial was, how it stood, why it ended, and the command that runs it alone.

    With --noise: how much a search's choice rests on how many clients judged it.
    Needs data.val_from: clients, or data with clients of its own.
    """
    from fltune.search.search import explain as tell
    from fltune.search.search import explain_noise

    told = (explain_noise if noise else tell)(trial, settings or [], _console())
    _finish(told, as_json)


@app.command(epilog=examples("sync"))
def sync(name: Name, settings: Sets = None) -> None:
    """Send to the tracking store what it lacks of a search."""
    from fltune.search.search import sync as send

    console = _console()
    sent = send(name, settings or [], console=console)
    console.print(f"sent {sent} runs of {name}", highlight=False, markup=False)


@app.command(epilog=examples("reproduce"))
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(
            help="a file's name or an id, such as fedgm-fig5; or all", show_default=False
        ),
    ],
    mini: Annotated[
        bool, typer.Option("--mini", help="the small variant; with all: every small variant")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="fresh seeds per winner; default: as the file says", min=1)
    ] = None,
    settings: Sets = None,
    spaces: Annotated[Path, typer.Option(help="folder of the experiments")] = Path("search_spaces"),
    out: Annotated[Path, typer.Option(help="folder of the pages")] = Path("reproductions"),
    record: Annotated[
        Path | None, typer.Option(help="docs folder in which to renew the page of measured results")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a paper's experiment, or go on with it, and judge what the paper claims of it."""
    from fltune.reproduce.many import reproduce_all

    console = _console(quiet and as_json)
    failed, found = reproduce_all(
        experiment, spaces, out, mini, seeds, settings or [], record, console, quiet
    )
    _finish(found, as_json)
    if failed:
        raise typer.Exit(1)


@app.command(epilog=examples("run"))
def run(
    file: File,
    method: Annotated[
        str,
        typer.Option("--method", help="which method of the file", autocompletion=complete_methods),
    ],
    settings: Sets = None,
    save_partition: Annotated[
        Path | None,
        typer.Option(help="write who holds what to this .json file, for data.partition kind: file"),
    ] = None,
    save_participation: Annotated[
        Path | None,
        typer.Option(help="write the cohorts to this .json or .csv file, for kind: trace"),
    ] = None,
    save_model: Annotated[
        Path | None,
        typer.Option(help="write the final model's state dict to this file, for torch.load"),
    ] = None,
    processes: Annotated[
        str,
        typer.Option(
            help="processes that share the clients' work; auto: one for each free core, if the run "
            "is long enough. The results do not depend on it"
        ),
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Run one federated training of one method, and evaluate it on the test split."""
    from fltune.search.config import SearchConfig

    config = SearchConfig.read(file, settings or [], [method])
    experiment = config.method(method).experiment({})
    from fltune.report.run import print_row, print_run, run_as_json
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
        on_row=lambda row: print_row(row, console),
        save_participation=save_participation,
        save_model=save_model,
        processes=int(processes) if processes.isdecimal() else processes,  # type: ignore[arg-type]
    )
    print_run(method, result, console)
    _finish(run_as_json(method, result), as_json)


@app.command(epilog=examples("plan"))
def plan(file: File, method: Methods = None, settings: Sets = None, as_json: Json = False) -> None:
    """Print the bill of a search before the work: trials, rounds, samples, time, disk, memory."""
    from fltune.search.config import SearchConfig

    config = SearchConfig.read(file, settings or [], method or [])
    from fltune.search.plan import plan as make_plan
    from fltune.search.plan import print_bill

    bill = make_plan(config)
    print_bill(bill, config, _console())
    _finish(bill.as_json(), as_json)


@app.command("list", epilog=examples("list"))
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}", autocompletion=complete_kinds
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


@app.command(epilog=examples("ui"))
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
    here = f"http://127.0.0.1:{port}  (Ctrl-C ends it)"
    print(f"MLflow UI: {tracking.redact(uri) if tracking.is_server(uri) else here}", flush=True)
    raise typer.Exit(subprocess.call(argv, env={**os.environ, **tracking.ui_environment(uri)}))


plots = typer.Typer(help="Draw pictures.")
app.add_typer(plots, name="plot", epilog=examples("plot"))


@plots.command(epilog=examples("plot"))
def partition(
    file: File,
    method: Annotated[
        str | None, typer.Option("--method", help="whose data; needed if the methods' data differ")
    ] = None,
    settings: Sets = None,
    out: Annotated[
        Path, typer.Option(help=r".html, or .png, .svg, .pdf (pip install 'fltune\[images]')")
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
    from fltune.plain import finite

    if as_json:
        print(json.dumps(finite(result), allow_nan=False))


INTERRUPTED = 130
# click's, or that of the copy of click that newer versions of Typer carry
UsageError: Any = typer.BadParameter.__base__


def _said(error: Any) -> str:
    """Return what is wrong on the line, in the words of all other errors, and how it is used."""
    text = " ".join(error.format_message().split()).rstrip(".")
    usage = f"\n{error.ctx.get_usage()}" if error.ctx else ""
    return f"{text[:1].lower()}{text[1:]}{usage}"


def main(argv: list[str] | None = None) -> None:
    """Run a command; errors that the user can mend are printed without a traceback."""
    os.environ[OURS] = "1"
    arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
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
        code = app(args=arguments, prog_name="fltune", standalone_mode=False) or 0
    except UsageError as error:
        print(f"fltune: {_said(error)}", file=sys.stderr)
        sys.exit(2)
    except FltuneError as error:
        print(f"fltune: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    if code == INTERRUPTED:  # Typer has made it of the KeyboardInterrupt, and said nothing
        print("fltune: interrupted", file=sys.stderr)
    sys.exit(code)
