"""A whole search: tune every method, confirm the winners, keep and report everything."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fltune.errors import ConfigError, FltuneError
from fltune.report.live import LiveDisplay
from fltune.report.summary import Summary, summarise
from fltune.report.table import markdown, print_summary
from fltune.search.config import SearchConfig
from fltune.search.confirm import winner
from fltune.search.record import CONFIRMATION, TRIAL, RecordFile, TrialRecord
from fltune.search.recorder import Recorder
from fltune.search.settings import Tracking
from fltune.search.tuner import concurrency, ray_session, resources_here, run_campaign
from fltune.tracking import (
    SearchTree,
    Store,
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
        for name, method in config.methods.items():
            for text in method.experiment(method.first_values()).cautions():
                self.console.print(f"note: {name}: {text}", highlight=False, markup=False)
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

    Workers have working directories of their own, and a missing file, a population larger than the
    data set, or a model that does not fit data or loss must stop the search before it starts.

    Raises:
        DataError, ConfigError: as loading or building the model says.
    """
    from fltune.runner import build_module, build_participation, load_data

    seen = set()
    for method in config.methods.values():
        data = method.raw.get("data")
        if isinstance(data, dict) and isinstance(data.get("root"), str):
            data["root"] = str(Path(data["root"]).resolve())
        pattern = method.raw.get("participation")
        if isinstance(pattern, dict) and isinstance(pattern.get("file"), str):
            pattern["file"] = str(Path(pattern["file"]).expanduser().resolve())
        for section, name in (("data", "tokenizer"), ("model", "pretrained")):
            named = method.raw.get(section)
            if isinstance(named, dict) and Path(str(named.get(name))).is_dir():
                named[name] = str(Path(named[name]).resolve())
        experiment = method.experiment(method.first_values())
        settled = ("data", "model", "loss", "batch_norm", "dtype", "strategy", "participation")
        key = tuple(repr(getattr(experiment, name)) for name in settled)
        if key in seen:
            continue
        seen.add(key)
        loaded = load_data(experiment.data, experiment.seed)
        try:
            build_module(experiment, loaded)
            build_participation(experiment, loaded)
        except ConfigError as error:
            problems = [f"methods.{method.name}.{text}" for text in error.problems]
            raise ConfigError(problems, config.source) from error
