"""A whole search: tune every method, confirm the winners, keep and report everything."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape

from fltune.errors import ConfigError, FltuneError
from fltune.report.live import LiveDisplay
from fltune.report.summary import MethodSummary, Summary, mean_curve, summarise
from fltune.report.table import markdown, print_summary
from fltune.search.config import Method, SearchConfig
from fltune.search.confirm import winner
from fltune.search.record import CONFIRMATION, TRIAL, RecordFile, TrialRecord
from fltune.search.settings import Tracking
from fltune.search.tuner import concurrency, ray_session, resources_here, run_campaign
from fltune.tracking import (
    MethodBranch,
    SearchTree,
    Store,
    TrackingError,
    redact,
    resolve_uri,
    sqlite_path,
    ui_hint,
)


def search(
    config: str | Path | Mapping[str, Any] | SearchConfig,
    settings: Iterable[str] = (),
    methods: Sequence[str] = (),
    name: str | None = None,
    console: Console | None = None,
) -> Summary:
    """Tune the methods of a search file and confirm the winners.

    Args:
        config: a YAML file, the same as a nested mapping, or a validated config.
        settings: ``KEY=VALUE`` overrides, for a file.
        methods: names to keep; all if empty.
        name: of the search; default: file name and time.
        console: where progress and the table go; silent if None.

    Raises:
        ConfigError: anything wrong with the config, the resources or the store; nothing started.
        DataError: the data set cannot be loaded or divided so.
        FltuneError: every trial of a method failed.
    """
    if isinstance(config, SearchConfig):
        chosen = config
    elif isinstance(config, Mapping):
        chosen = SearchConfig.parse(config, methods=methods)
    else:
        chosen = SearchConfig.read(config, settings, methods)
    return Session(chosen, name, console or Console(quiet=True)).run()


class Session:
    """One search in progress.

    Args:
        config: the validated file.
        name: of the search; None: file name and time.
        console: where progress and the table go.

    Raises:
        ConfigError: a search of that name exists, or the store cannot be opened.
    """

    def __init__(self, config: SearchConfig, name: str | None, console: Console) -> None:
        stem = Path(config.source).stem
        chosen = name or config.settings.name
        self.config = config
        self.console = console
        self.name = chosen or f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        if self.name != Path(self.name).name:  # it becomes a folder
            raise ConfigError(f"name: found {self.name!r}; must be a plain name, without slashes")
        root = Path(config.settings.tracking.root).resolve()
        self.uri = resolve_uri(config.settings.tracking.uri, root)
        local = sqlite_path(self.uri)
        self.home = local.parent if local is not None else root
        self.folder = self.home / "searches" / self.name
        self.hint = self._ui_hint(root)
        self.experiment = config.settings.tracking.experiment or stem

    def _ui_hint(self, root: Path) -> str:
        hint = ui_hint(self.uri, root)
        moved = root != Path(Tracking().root).resolve()
        return f"{hint} --set tracking.root={root}" if moved and "fltune ui" in hint else hint

    def run(self) -> Summary:
        """Do all of it."""
        config = self.config
        if self.folder.exists():
            raise ConfigError(f"a search named {self.name!r} exists already; choose another --name")
        if config.settings.ray.address is None:
            concurrency(config.settings, resources_here())  # refuses what this machine lacks
        check_data(config)
        store = Store.open(self.uri, self.experiment, self.home / "artifacts")
        try:
            self.folder.mkdir(parents=True)
            (self.folder / "search.yaml").write_text(config.as_yaml(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write to {self.folder}: {error.strerror}") from error
        tags = {"fltune.source": config.source}
        with SearchTree(store, self.name, config.as_yaml(), tags) as tree:
            record = Recorder(tree, RecordFile(self.folder / "trials.jsonl"), self.console)
            with ray_session(config.settings) as concurrent:
                summary = self._tune_and_confirm(record, concurrent)
            record.close(summary, markdown(summary, self.hint))
        shutil.rmtree(self.folder / "ray", ignore_errors=True)
        seeds = config.settings.search.confirm_seeds
        print_summary(summary, self.console, self.hint, seeds)
        return summary

    def _tune_and_confirm(self, record: Recorder, concurrent: int) -> Summary:
        config, search = self.config, self.config.settings.search
        totals = {name: m.trials(search) for name, m in config.methods.items()}
        self.console.print(
            f"{self.name}: {len(totals)} methods, {sum(totals.values())} trials, "
            f"{concurrent} at a time, then {search.confirm_seeds} fresh seeds per winner",
            highlight=False,
            markup=False,
        )
        seeds = search.confirm_seeds
        with LiveDisplay(totals, seeds, search.maximize, concurrent, self.console) as live:

            def listen(event: str, trial: TrialRecord) -> None:
                live(event, trial)
                if event == "end":
                    record.ended(trial)

            for method in config.methods.values():
                record.open(method)
            records = run_campaign(config, concurrent, self.folder / "ray", listen)
        if records and all(r.status == "failed" for r in records):
            raise FltuneError(f"every trial failed; the first one said: {records[0].message}")
        summary = Summary(
            self.name, redact(self.uri), self.experiment, search.metric, search.maximize
        )
        for name, method in config.methods.items():
            own = [r for r in records if r.method == name]
            trials = [r for r in own if r.kind == TRIAL]
            confirmed = sorted((r for r in own if r.kind == CONFIRMATION), key=lambda r: r.number)
            best = winner(trials, search.maximize)
            summary.methods[name] = summarise(method, trials, best, confirmed)
            record.method_done(name, summary.methods[name], confirmed)
        return summary


def check_data(config: SearchConfig) -> None:
    """Load every data set of the search once, in the driver, and make its paths absolute.

    Workers have working directories of their own, and a missing file or a population larger than
    the data set must stop the search before it starts.

    Raises:
        DataError, ConfigError: as loading or building the model says.
    """
    from fltune.runner import build_network, load_data

    seen = set()
    for method in config.methods.values():
        data = method.raw.get("data")
        if isinstance(data, dict) and isinstance(data.get("root"), str):
            data["root"] = str(Path(data["root"]).resolve())
        experiment = method.experiment(method.first_values())
        key = (repr(experiment.data), repr(experiment.model))
        if key not in seen:
            seen.add(key)
            build_network(experiment, load_data(experiment.data, experiment.seed))


class Recorder:
    """Keeps every ended trial: first in our own file, then in MLflow.

    A store that fails in the middle costs no result: it is named once, and the file goes on.

    Args:
        tree: the search's runs in MLflow.
        file: our own record.
        console: where a failing store is named.
    """

    def __init__(self, tree: SearchTree, file: RecordFile, console: Console) -> None:
        self.tree = tree
        self.file = file
        self.console = console
        self.alive = True
        self._branches: dict[str, MethodBranch] = {}
        self._methods: dict[str, Method] = {}

    def open(self, method: Method) -> None:
        """Make the run of a method."""
        self._methods[method.name] = method
        fixed = method.experiment(method.first_values()).as_params()
        params = {k: v for k, v in fixed.items() if k not in method.space.dimensions}

        def write() -> None:
            branch = self.tree.method(method.name, params)
            self._branches[method.name] = branch
            branch.run.log_dict(_partition_of(method), "partition.json")

        self._try(write)

    def ended(self, trial: TrialRecord) -> None:
        """Keep one ended trial or confirmation run."""
        self.file.append(trial)
        confirmation = trial.kind == CONFIRMATION
        values = {**trial.values, "seed": trial.seed} if confirmation else trial.values
        own = yaml.safe_dump(self._methods[trial.method].raw_with(values), sort_keys=False)
        totals = {f"comm/{name}": bits for name, bits in trial.comm.items()}
        final: dict[str, Any] = {**trial.metrics, **totals, "client_samples": trial.client_samples}
        final.update({f"participation/{k}": v for k, v in trial.participation.items()})
        if trial.score is not None and not confirmation:
            final["score"] = trial.score

        def write() -> None:
            branch = self._branches[trial.method]
            common = {"status": trial.status, "stop_reason": trial.message, "config_yaml": own}
            if confirmation:
                branch.confirmation(trial.seed, trial.values, trial.rows, final, **common)
            else:
                branch.trial(trial.number, trial.values, trial.rows, summary=final, **common)

        self._try(write)

    def method_done(
        self, name: str, summary: MethodSummary, confirmed: Sequence[TrialRecord]
    ) -> None:
        """Give the method's run its winner and its confirmed metrics."""

        def write() -> None:
            branch = self._branches[name]
            if not summary.best:
                branch.fail("no trial completed")
                return
            metrics: dict[str, Any] = {
                key: {"mean": i.mean, "std": i.std, "low": i.low, "high": i.high}
                for key, i in summary.metrics.items()
            }
            metrics["search/score"] = summary.val
            counts = {k: getattr(summary, k) for k in ("trials", "pruned", "diverged", "failed")}
            branch.run.set_tags({f"fltune.{k}": v for k, v in counts.items()})
            metrics["search/client_samples"] = float(summary.client_samples)
            branch.finish(summary.best, mean_curve(confirmed), metrics)

        self._try(write)

    def close(self, summary: Summary, note: str) -> None:
        """End the search's run."""
        self._try(lambda: self.tree.finish(note))

    def _try(self, write: Any) -> None:
        if not self.alive:
            return
        try:
            write()
        except TrackingError as error:
            self.alive = False
            self.console.print(
                f"[red]the tracking store failed:[/red] {escape(str(error))}\n"
                f"The search goes on; every result is in {escape(str(self.file.path))}.",
                highlight=False,
                soft_wrap=True,
            )


def _partition_of(method: Method) -> dict[str, Any]:
    """Return who holds what in the trials of a method: summary, sizes, label histograms."""
    from fltune.runner import load_data

    experiment = method.experiment(method.first_values())
    data = load_data(experiment.data, experiment.seed)
    return {**data.report(), **data.holdings()}
