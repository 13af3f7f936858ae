"""One search in this process: the store, Ray, the display, and an orderly end whatever happens."""

from __future__ import annotations

import contextlib
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from fltune.errors import ConfigError, FltuneError
from fltune.report.compare import Report, build_report, validation_metric
from fltune.report.description import description
from fltune.report.live import LiveDisplay
from fltune.report.references import Reference, make_references
from fltune.report.summary import Summary, summarise
from fltune.report.table import caps_warning, print_summary
from fltune.search.bequest import without_inherited
from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.interrupts import TerminatedError, orderly_interrupts
from fltune.search.lane import Lane
from fltune.search.names import plain_name
from fltune.search.nodes import nodes
from fltune.search.packer import usual_size
from fltune.search.preparation import check_data
from fltune.search.ray_session import RayStartError, check_cluster, ray_session
from fltune.search.record import TrialRecord
from fltune.search.recorder import Recorder
from fltune.search.settings import Tracking
from fltune.search.state import SearchState
from fltune.search.tuner import run_campaign
from fltune.tracking import (
    ENVIRONMENT_NAME,
    SearchTree,
    Store,
    moved_to,
    redact,
    resolve_uri,
    sqlite_path,
    ui_hint,
)


class InterruptedSearchError(FltuneError):
    """Ctrl-C or SIGTERM ended the search before its end; nothing that had ended is lost.

    Args:
        text: what is kept, and how to go on.
        terminated: whether it was SIGTERM. The exit code is the signal's, as a shell gives it.
    """

    def __init__(self, text: str, terminated: bool = False) -> None:
        super().__init__(f"ended by SIGTERM; {text}" if terminated else f"interrupted; {text}")
        self.exit_code = 128 + (signal.SIGTERM if terminated else signal.SIGINT)


def home(tracking: Tracking) -> Path:
    """Return the folder that holds the local store, and the state of all searches."""
    root = Path(tracking.root).resolve()
    local = sqlite_path(resolve_uri(tracking.uri, root))
    return local.parent.resolve() if local is not None else root


def _is_home(folder: Path, tracking: Tracking) -> bool:
    """Return whether searches are kept in a folder, by some settings and the environment."""
    try:
        return home(tracking) == folder
    except ConfigError:  # the environment names what is no store
        return False


class Session:
    """One search in progress.

    Args:
        config: the validated file.
        name: of the search; None: file name and time.
        console: where progress and the table go.
        quiet: no progress, only the table and what goes wrong.
        found: the folder in which the search was found; None: as ``tracking`` says. A store that is
            a file lies there too, wherever both were when the search began.

    Attributes:
        home: the folder that holds the state of all searches, and a local store.
        state: the logs of the search.

    Raises:
        ConfigError: the name is no plain name.
    """

    def __init__(
        self,
        config: SearchConfig,
        name: str | None,
        console: Console,
        quiet: bool = False,
        found: Path | None = None,
    ) -> None:
        stem = Path(config.source).stem
        tracking = config.settings.tracking
        self.config = config
        self.console = Console(quiet=True) if quiet else console
        self.out = console
        if name is None:
            name = config.settings.name or f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        try:
            self.name = plain_name(name)
        except ValueError as error:
            raise ConfigError(f"name: {error}") from None
        self.home = found or home(tracking)
        self.uri = resolve_uri(tracking.uri, found or Path(tracking.root).resolve())
        if found is not None:
            self.uri = moved_to(self.uri, found)
        self.state = SearchState(self.home / "searches" / self.name)
        self._elsewhere, self._before = "", ""
        if not _is_home(self.home, Tracking()):
            self._elsewhere = f" --set {shlex.quote(f'tracking.root={self.home}')}"
            if not _is_home(self.home, Tracking(root=str(self.home))):
                self._before = f"{ENVIRONMENT_NAME}= "  # which would lead to another folder
        hint = ui_hint(self.uri, self.home)
        self.hint = f"{hint}{self._elsewhere}" if "fltune ui" in hint else hint
        self.experiment = tracking.experiment or stem

    def command(self, verb: str) -> str:
        """Return the command that does something with this search, from this folder."""
        named = shlex.quote(self.name)
        return f"{self._before}python -m fltune {verb} {named}{self._elsewhere}"

    @property
    def _go_on(self) -> str:
        return f"go on with: {self.command('resume')}"

    def run(self, again: bool = False) -> Summary:
        """Do all of it that is not done yet.

        Args:
            again: whether the search was begun by an earlier process.
        """
        config = self.config
        config.check_sources()
        check_data(config)
        check_cluster(config)
        with self._recording(again) as recorder:
            try:
                self.state.freeze(self.frozen_yaml())
                return self._tune_and_report(recorder)
            except KeyboardInterrupt as error:
                ended = isinstance(error, TerminatedError)
                raise InterruptedSearchError(self._go_on, ended) from None
            except RayStartError as error:
                raise FltuneError(f"{error}\n{self._go_on}") from error

    def frozen_yaml(self) -> str:
        """Return the config, with experiment and store as they are found from any folder."""
        named = bool(self.config.settings.tracking.uri)
        return self.config.as_yaml(self.experiment, self.uri if named else None)

    @contextlib.contextmanager
    def _recording(self, again: bool, searching: bool = True) -> Iterator[Recorder]:
        """Have the search to ourselves, and a store that takes its record; leave both in order."""
        store = Store.open(self.uri, self.experiment, self.home / "artifacts")
        self.state.lock()
        tags = {"fltune.source": self.config.source}
        opened: list[bool] = []

        def open_tree() -> SearchTree:
            resume = again or bool(opened)
            opened.append(True)
            return SearchTree(store, self.name, self.frozen_yaml(), tags, resume=resume)

        sync = self.command("sync")
        recorder = Recorder(self.config, open_tree, self.out, sync, searching)
        try:
            yield recorder
        finally:
            recorder.close()
            self.state.release()

    def _tune_and_report(self, recorder: Recorder) -> Summary:
        live: LiveDisplay | None = None

        def listen(event: str, record: TrialRecord) -> None:
            assert live is not None
            live(event, record)
            if event == "end":
                recorder.ended(record)

        campaign = Campaign(self.config, self.state, listen)
        with orderly_interrupts(campaign, self._on_interrupt), contextlib.ExitStack() as around:
            recorder.start(campaign.records)
            # a second Ctrl-C, the first is noted; or SIGTERM
            with contextlib.suppress(KeyboardInterrupt):
                if campaign.reserve_first():
                    # left when all is told: Ray takes a second for it
                    concurrent = around.enter_context(ray_session(self.config.settings))
                    self._announce(campaign, concurrent)
                    with LiveDisplay(campaign.lanes, concurrent, self.console) as live:
                        run_campaign(campaign, self.config, concurrent)
                    recorder.wait()  # Ray leaves best when no other thread is at work
            if campaign.stopping:
                self._say_how_to_go_on(campaign)
            return self._report(campaign, recorder)

    def _announce(self, campaign: Campaign, concurrent: int) -> None:
        search = self.config.settings.search
        methods = self.config.methods
        own = [without_inherited(m, methods) for m in methods.values()]
        trials = sum(method.trials(search) for method in own)
        tuned = f"{trials} trials" if trials else "nothing to tune"
        done = len(campaign.records)
        earlier = f"; {done} runs had ended before" if done else ""
        each = self.config.settings.resources
        count = len(nodes()) if self.config.settings.ray.cluster else 1
        machines = f" on {count} machines" if count > 1 else ""
        most = max(usual_size(m, search, concurrent) for m in methods.values())
        packs = f", in packs of up to {most} trials" if most > 1 else ""
        self.console.print(
            f"{self.name}: {len(campaign.lanes)} methods, {tuned}, {concurrent} at a time "
            f"({each}){machines}{packs}, then {search.confirm_seeds} fresh seeds per "
            f"winner{earlier}",
            highlight=False,
            markup=False,
        )
        for text in self.config.notes:
            self.console.print(f"note: {text}", highlight=False, markup=False)
        for name, method in methods.items():
            for text in method.first_experiment().cautions():
                self.console.print(f"note: {name}: {text}", highlight=False, markup=False)

    def _on_interrupt(self) -> None:
        self.console.print(
            "stopping: no new run starts; Ctrl-C again to leave those that are out",
            highlight=False,
        )

    def _say_how_to_go_on(self, campaign: Campaign) -> None:
        """Raise what ended the search before its end, with the command that goes on."""
        kept = f"{len(campaign.records)} ended runs are kept"
        if campaign.fault is not None:
            raise FltuneError(f"{campaign.fault}\n{kept}; free some space, then {self._go_on}")
        raise InterruptedSearchError(f"{kept}; {self._go_on}", campaign.terminated)

    def _report(self, campaign: Campaign, recorder: Recorder) -> Summary:
        records = campaign.records
        if records and all(r.status == "failed" for r in records):
            raise FltuneError(f"every trial failed; the first one said: {records[0].message}")
        self.state.finish(campaign.seconds)
        summary = self.summary(campaign)
        sent = self._send_results(campaign, summary, recorder)
        seeds = self.config.settings.search.confirm_seeds
        print_summary(summary, self.out, self.hint if sent else "", seeds)
        return summary

    def _send_results(self, campaign: Campaign, summary: Summary, recorder: Recorder) -> bool:
        """Give the methods' runs in the store their winners; return whether all is sent."""
        confirmed = {name: lane.reported for name, lane in campaign.lanes.items()}
        report = self.report(campaign)
        note = description(report, [self.command("compare"), self.command("extend"), self.hint])

        def files() -> Mapping[str, str]:
            from fltune.report.page import artifacts  # plotly takes a second to import

            return artifacts(report)

        return recorder.finish(summary, confirmed, note, campaign.records, files)

    def lanes(self) -> Mapping[str, Lane]:
        """Return the methods' work as far as it has come, from the logs."""
        return Campaign(self.config, self.state, _ignore).lanes

    def summary(self, campaign: Campaign) -> Summary:
        """Reduce what a campaign has found."""
        search = self.config.settings.search
        blank = Summary(
            self.name,
            redact(self.uri),
            self.experiment,
            search.objective_name,
            search.maximize,
            objectives=[g.label for g in search.goals] if len(search.goals) > 1 else [],
            seeds=search.seeds,
            extend=self.command("extend"),
            trial_rounds=search.rounds,
            short_of=_short_of(campaign),
        )
        return summarise(campaign.lanes, blank)

    def report(
        self, campaign: Campaign, target: float | None = None, references: bool = False
    ) -> Report:
        """Put the methods of a campaign side by side, as far as it has come.

        Args:
            campaign: the search.
            target: of the validation metric.
            references: run, or read, what stands beside the methods.
        """
        summary = self.summary(campaign)
        known: list[Reference] = []
        if references:
            known = make_references(
                summary,
                campaign.lanes,
                self.state.folder,
                validation_metric(self.config.settings.search, campaign.lanes),
                self.config.settings.resources.cpus,
                lambda text: self.console.print(text, highlight=False, markup=False),
            )
        return build_report(
            summary,
            campaign.lanes,
            self.state.frozen,
            target,
            hint=self.hint,
            resume="" if self.state.finished else self.command("resume"),
            references=known,
        )

    def sync(self) -> int:
        """Send to the store what it lacks; return how many runs it lacked.

        Of a search that is not finished these are its runs, not results: it has none yet.

        Raises:
            FltuneError: the store failed before it had all.
        """
        with self._recording(again=True, searching=False) as recorder:
            campaign = Campaign(self.config, self.state, _ignore)
            if not recorder.start(campaign.records):
                raise FltuneError(
                    f"{len(recorder.missing)} runs are still to be sent; when the store answers: "
                    f"{self.command('sync')}"
                )
            if self.state.finished:
                summary = self.summary(campaign)
                if not self._send_results(campaign, summary, recorder):
                    raise FltuneError("the runs are sent; the results are still to be sent")
            return recorder.sent


def _short_of(campaign: Campaign) -> str:
    """Say which trials a spent cap has cost; empty if none."""
    trials = {name: (len(lane.tried), lane.planned) for name, lane in campaign.lanes.items()}
    return caps_warning(campaign.spent, trials)


def _ignore(event: str, record: TrialRecord) -> None:
    """Listen to nothing."""
