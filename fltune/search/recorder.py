"""Writes ended runs to MLflow, and catches up where the store was away.

The search's own log has every run before the store hears of it, so a store that fails costs
nothing: it is asked again from time to time, and `fltune sync` sends what it still lacks. A run
takes MLflow a tenth of a second, most of it waiting for the disk; so runs are sent beside the
search, by one thread, which alone talks to the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from fltune import dotted
from fltune.report.summary import MethodSummary, Summary, mean_curve
from fltune.search.config import SearchConfig
from fltune.search.courier import Courier
from fltune.search.entries import Fixed
from fltune.search.method import Method
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord
from fltune.search.table_views import RANK, views_of
from fltune.tracking import MethodBranch, SearchTree, TrackingError

PATIENCE_SECONDS = 30.0
"""Time between two attempts to reach a store that failed."""


class Recorder:
    """Keeps the runs of a search in MLflow.

    Args:
        config: the search.
        open_tree: opens the search's runs in the store, found again where they exist.
        console: where a failing store is named.
        sync_hint: the command that sends what is missing.
        searching: whether a search goes on meanwhile.

    Attributes:
        missing: ended runs that are still to be sent; the store may have some already.
    """

    def __init__(
        self,
        config: SearchConfig,
        open_tree: Callable[[], SearchTree],
        console: Console,
        sync_hint: str,
        searching: bool = True,
    ) -> None:
        self.config = config
        self.console = console
        self.sync_hint = sync_hint
        self.searching = searching
        self.missing: list[TrialRecord] = []
        self._courier = Courier("tracking")
        self._open_tree = open_tree
        self._tree: SearchTree | None = None
        self._branches: dict[str, MethodBranch] = {}
        self._failed_at: float | None = None
        self._sent_before = 0

    def start(self, earlier: Sequence[TrialRecord] = ()) -> bool:
        """Make the run of every method; send what an earlier process could not.

        Returns:
            Whether all is sent.
        """
        self.missing = list(earlier)
        return self._courier.now(self._catch_up)

    def ended(self, record: TrialRecord) -> None:
        """Keep one ended run; it is sent while the search goes on."""
        self._courier.later(self._ended, record)

    def wait(self) -> None:
        """Return when all that has ended is sent, or the store has failed."""
        self._courier.now(lambda: None)

    def _ended(self, record: TrialRecord) -> None:
        self.missing.append(record)
        waited = time.monotonic() - (self._failed_at or 0.0)
        if self._failed_at is None or waited > PATIENCE_SECONDS:
            self._catch_up()

    def _catch_up(self) -> bool:
        """Send all that is missing; a store that fails is named, once for each time it fails."""
        back = self._failed_at is not None
        before = self.sent

        def send() -> None:
            if self._tree is None:
                self._open()
            while self.missing:
                self._send(self.missing[0])
                self.missing.pop(0)

        done = self._attempt(send)
        if done and back:
            sent = self.sent - before
            self.console.print(f"the tracking store answers again; sent {sent} runs")
        return done

    def _open(self) -> None:
        self._sent_before = self.sent
        self._branches = {}
        self._tree = self._open_tree()
        for method in self.config.methods.values():
            branch = self._tree.method(method.name, _fixed(method))
            branch.run.log_dict(_partition_of(method), "partition.json")
            self._branches[method.name] = branch

    def _send(self, record: TrialRecord) -> None:
        method, branch = self.config.methods[record.method], self._branches[record.method]
        search = self.config.settings.search
        beside = method.of_trials(search) if record.kind == TRIAL else None
        values = method.readable(record.values, beside)
        totals = {f"comm/{name}": bits for name, bits in record.comm.items()}
        final: dict[str, Any] = {**record.metrics, **totals}
        final["client_samples"] = record.client_samples
        final.update({f"participation/{k}": v for k, v in record.participation.items()})
        common = {
            "status": record.status,
            "stop_reason": record.message,
            "config_yaml": _own_config(method, record, beside),
        }
        if record.kind == CONFIRMATION:
            branch.confirmation(record.seed, values, record.rows, final, **common)
            return
        if record.score is not None:
            final["score"] = record.score
        replicate = record.seed if record.seed != method.seed else None
        branch.trial(record.number, values, record.rows, summary=final, seed=replicate, **common)

    def finish(
        self,
        summary: Summary,
        confirmed: dict[str, list[TrialRecord]],
        note: str,
        runs: Sequence[TrialRecord] = (),
        files: Callable[[], Mapping[str, str]] = dict,
    ) -> bool:
        """Give every method's run its winner and close the search; return whether all is sent.

        Args:
            summary: what was found.
            confirmed: each method's runs on fresh seeds.
            note: the report, for the search's own run.
            runs: all ended runs; what clients said of them is kept there too.
            files: makes the texts that are kept there, by path: the page and its figures.
        """

        def write() -> None:
            ranks = summary.ranks
            for name, method in summary.methods.items():
                self._method_done(name, method, ranks[name], confirmed[name])
            assert self._tree is not None
            judged = _by_client(runs)
            if judged:
                self._tree.run.log_dict({"runs": judged}, "evaluation/per_client.json")
            for path, text in files().items():
                self._tree.run.log_text(text, path)
            self._tree.finish(note, views=views_of(summary, self._searched(summary)))

        done = self._courier.now(lambda: self._catch_up() and self._attempt(write))
        if not done:
            self.console.print(
                f"The tracking store lacks this search's results; they are kept on this disk. When "
                f"it answers again, send them with\n    {escape(self.sync_hint)}",
                highlight=False,
                soft_wrap=True,
            )
        return done

    def _method_done(
        self, name: str, summary: MethodSummary, rank: int, confirmed: Sequence[TrialRecord]
    ) -> None:
        branch = self._branches[name]
        if not summary.trials and not confirmed:
            return  # a search that was cut off has not come to it
        counts = {k: getattr(summary, k) for k in ("trials", "pruned", "diverged", "failed")}
        if summary.val is None:
            branch.fail(f"no {'trial' if summary.trials else 'run'} completed")
            branch.run.set_tags({f"fltune.{k}": v for k, v in counts.items()})
            return
        metrics: dict[str, Any] = {
            key: {"mean": i.mean, "std": i.std, "low": i.low, "high": i.high}
            for key, i in summary.metrics.items()
        }
        metrics["search/score"] = summary.val
        metrics[RANK] = float(rank)
        metrics["search/client_samples"] = float(summary.client_samples)
        best = self.config.methods[name].readable(summary.best)
        before = branch.run.id
        branch.finish(best, mean_curve(confirmed), metrics)
        edge = "; ".join(f"{k} {side}" for k, side in summary.edges.items()) or "none"
        winner = {"edge": edge, "confirmed": len(confirmed)}
        if summary.winner is not None:
            winner["winner"] = summary.winner
        branch.run.set_tags({f"fltune.{k}": v for k, v in {**counts, **winner}.items()})
        branch.choose({run.number for run in confirmed}, {"fltune.edge": edge})
        if branch.run.id != before:  # another run has taken its place
            branch.run.log_dict(_partition_of(self.config.methods[name]), "partition.json")

    def _searched(self, summary: Summary) -> list[str]:
        """Return what the methods searched, by the names that their runs have as parameters."""
        own = self.config.methods
        return [key for name, m in summary.methods.items() for key in own[name].readable(m.best)]

    @property
    def sent(self) -> int:
        """Runs that the store did not have before."""
        return self._sent_before + sum(branch.sent for branch in self._branches.values())

    def close(self) -> None:
        """Send what has ended and leave no run open; nothing can be kept any more."""
        self._courier.now(self._close_tree)
        self._courier.close()

    def _close_tree(self) -> None:
        tree = self._tree
        if tree is not None and self._failed_at is None:
            self._attempt(lambda: tree.__exit__(None, None, None))

    def _attempt(self, write: Callable[[], None]) -> bool:
        """Do what may fail with the store; the tree is opened anew after it did."""
        try:
            write()
        except TrackingError as error:
            if self._failed_at is None:
                kept = "The search goes on; every" if self.searching else "Every"
                self.console.print(
                    f"[red]the tracking store failed:[/red] {escape(str(error))}\n"
                    f"{kept} result is kept on this disk.",
                    highlight=False,
                    soft_wrap=True,
                )
            self._failed_at = time.monotonic()
            self._tree = None
            return False
        self._failed_at = None
        return True


def _partition_of(method: Method) -> dict[str, Any]:
    """Return who holds what in the trials of a method: summary, sizes, label histograms."""
    from fltune.pieces import load_data

    experiment = method.first_experiment()
    data = load_data(experiment.data, experiment.seed)
    return {**data.report(), **data.holdings()}


def _by_client(runs: Sequence[TrialRecord]) -> list[dict[str, Any]]:
    """Return what each client said of each trial, where clients were asked."""
    return [
        {"method": r.method, "trial": r.number, "seed": r.seed, "values": r.values, **r.by_client}
        for r in runs
        if r.kind == TRIAL and r.by_client
    ]


def _fixed(method: Method) -> dict[str, Any]:
    """Return the parameters that all trials of a method share, by dotted name.

    Where a component is searched its whole section is left out, but for what every component has.
    """
    space = method.space
    searched = [
        k for k, e in space.entries.items() if space.when.get(k) or not isinstance(e, Fixed)
    ]

    def shared(name: str) -> bool:
        if any(name == key or name.startswith(f"{key}.") for key in searched):
            return False
        for component, kept in space.sections.items():
            section = component.rpartition(".")[0] + "."
            if name.startswith(section) and name.removeprefix(section).split(".")[0] not in kept:
                return False
        return True

    params = method.first_experiment().as_params()
    return {name: value for name, value in params.items() if shared(name)}


def _own_config(method: Method, record: TrialRecord, beside: Mapping[str, Any] | None) -> str:
    """Return the config that runs it alone; nothing if a tie could not be computed there."""
    try:
        point = {**record.values, "seed": record.seed}
        return dotted.dump_yaml(method.raw_with(point, beside))
    except ValueError:
        return ""
