"""One experiment from file to verdicts: its search is run, or gone on with, and then judged.

A search is known by what it finds, not by its file: two views of the same runs (a figure against
rounds, another against bits) share one, a changed file starts a new one, and more seeds are added
to the one there is.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from rich.console import Console

import fltune
from fltune import dotted
from fltune.errors import ConfigError, FltuneError
from fltune.federation.cores import allowed
from fltune.plain import finite
from fltune.report.figures import Picture
from fltune.report.spaces import missing_data
from fltune.reproduce import numbers, printed
from fltune.reproduce.catalogue import Entry
from fltune.reproduce.computed import compute, worlds
from fltune.reproduce.judge import Judgement, judge, judge_computed
from fltune.reproduce.numbers import NumbersTable, mean_and_half
from fltune.reproduce.pictures import draw
from fltune.reproduce.readings import Evidence
from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.session import InterruptedSearchError, Session

JUDGED, NOT_RUN, FAILED = "judged", "not run", "failed"
IRRELEVANT = ("confirm_seeds", "concurrent", "pack")
"""Search settings that leave open what a search finds: more seeds are added to it."""
LATER = ("rounds", "first_panel")
"""Settings that came after the first searches were kept; unset, they leave these known."""
WHERE = ("tracking.", "resources.", "ray.", "search.concurrent", "search.pack", "data.root")
"""Settings that say where a search runs, not what; no part of the command that others repeat."""


@dataclass
class Outcome:
    """What became of one file.

    Attributes:
        entry: the file.
        status: judged, not run, or failed.
        reason: why it is not judged, or which runs failed; else empty.
        judgements: of its claims.
        facts: how it was run, in plain values.
        heads, rows: the table of results.
        numbers: printed tables with ours in them.
        pictures: its figure.
    """

    entry: Entry
    status: str = JUDGED
    reason: str = ""
    judgements: list[Judgement] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: Sequence[NumbersTable] = ()
    pictures: Sequence[Picture] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values; infinities and NaN become null."""
        plain = {
            "id": self.entry.name,
            "experiment": self.entry.experiment,
            "paper": self.entry.paper,
            "shows": self.entry.shows,
            "status": self.status,
            "reason": self.reason,
            **self.facts,
            "claims": [
                {**asdict(j), "ours": [f"{f.cell}: {f.text}" if f.cell else f.text
                                       for f in j.findings]}
                for j in self.judgements
            ],
            "numbers": [asdict(one) for one in self.numbers],
            "heads": list(self.heads),
            "rows": [list(row) for row in self.rows],
        }  # fmt: skip
        return finite(plain)


def reproduce(
    entry: Entry,
    seeds: int | None = None,
    settings: Iterable[str] = (),
    console: Console | None = None,
    quiet: bool = False,
) -> Outcome:
    """Run one file and judge its claims.

    Args:
        entry: the file.
        seeds: fresh seeds per winner, or repetitions of what is computed; None: as the file says.
        settings: ``KEY=VALUE`` overrides of the file; of what is computed, where its data is alone.
        console: where progress goes; silent if None.
        quiet: no progress.

    Raises:
        ConfigError: the file or its claims are wrong; nothing was started.
        FltuneError: the search failed, or was interrupted.
    """
    out = console or Console(quiet=True)
    if entry.claims.computes is not None:
        return _computed(entry, seeds or 3, list(settings))
    chosen = list(settings)
    if seeds is not None:
        chosen.append(f"search.confirm_seeds={seeds}")
    whole = SearchConfig.read(entry.path, [s for s in chosen if not _leaves_out_cells(s)])
    check_claims(entry, Evidence.planned(whole))
    config = SearchConfig.read(entry.path, chosen)
    entry = about_cells(entry, Evidence.planned(config))
    lacking = _lacking(config)
    if lacking:
        return Outcome(entry, NOT_RUN, lacking)
    return _trained(entry, config, out, quiet, list(settings))


def _leaves_out_cells(setting: str) -> bool:
    return setting.strip().startswith("scenarios.")


def about_cells(entry: Entry, planned: Evidence) -> Entry:
    """Return the entry with the claims and the part of the figure that some cells are enough for.

    Raises:
        ConfigError: no claim is about them alone.
    """
    claims = {k: c for k, c in entry.claims.claims.items() if not planned.problems(k, c)}
    if entry.claims.claims and not claims:
        cells = "; ".join(f"{axis}: {', '.join(labels)}" for axis, labels in planned.axes.items())
        raise ConfigError(f"no claim is about these cells alone ({cells})", str(entry.path))
    figure = entry.claims.figure
    drawn = {k: v for k, v in figure.where.items() if v in planned.axes.get(k, [])}
    update = {"claims": claims, "figure": figure.model_copy(update={"where": drawn})}
    return replace(entry, claims=entry.claims.model_copy(update=update))


def check_claims(entry: Entry, planned: Evidence) -> None:
    """Refuse claims about what the file does not have, or what is not printed.

    Raises:
        ConfigError: all problems at once, with dotted keys.
    """
    found: list[str] = []
    for name, claim in entry.claims.claims.items():
        if claim.statistic == "computed":
            found.append(f"claims.{name}.statistic: this file trains; nothing is computed")
        else:
            found += planned.problems(f"claims.{name}", claim)
    found += _wrong_references(entry)
    for name, wanted in entry.claims.numbers.items():
        found += numbers.problems(f"numbers.{name}", wanted, planned)
    panels = entry.claims.figure.panels
    if panels is not None and panels not in ("method", *planned.axes):
        known = ", ".join(("method", *planned.axes))
        found.append(f"figure.panels: no axis {panels!r}; there: {known}")
    for axis, label in entry.claims.figure.where.items():
        if label not in planned.axes.get(axis, []):
            known = ", ".join(planned.axes.get(axis, planned.axes)) or "none"
            found.append(f"figure.where.{axis}: found {label!r}; there: {known}")
    if found:
        raise ConfigError(found, str(entry.path))


def _wrong_references(entry: Entry) -> list[str]:
    return [
        problem
        for name, claim in entry.claims.claims.items()
        if claim.theirs is not None
        for problem in printed.problems(
            f"claims.{name}.theirs", claim.theirs.table, claim.theirs.rows, claim.theirs.columns
        )
    ]


def _lacking(config: SearchConfig) -> str:
    """Return what this machine lacks for a search; empty if nothing."""
    missing = missing_data(config)
    if missing:
        return f"its data is not here: {', '.join(missing)}"
    needs = config.settings.resources.gpus
    return "it needs a GPU" if needs and not torch.cuda.is_available() else ""


def check_computed(entry: Entry, assigned: Mapping[str, Any]) -> None:
    """Refuse what goes with training alone, of a file that trains nothing.

    Args:
        entry: the file.
        assigned: what is set by hand, by dotted key.

    Raises:
        ConfigError: all problems at once, with dotted keys.
    """
    problems = _wrong_references(entry) + [
        f"{key}: found {value!r}; this file trains nothing, and of it data.root alone can be set"
        for key, value in assigned.items()
        if not key.startswith(WHERE)
    ]
    problems += [
        f"claims.{name}.statistic: found {claim.statistic}; what is not trained is computed"
        for name, claim in entry.claims.claims.items()
        if claim.statistic != "computed"
    ]
    problems += [
        f"numbers.{name}: found {wanted.table}; runs fill it, and what is not trained has none"
        for name, wanted in entry.claims.numbers.items()
    ]
    if problems:
        raise ConfigError(problems, str(entry.path))


def _computed(entry: Entry, seeds: int, settings: Sequence[str]) -> Outcome:
    assigned = dict(map(dotted.parse_assignment, settings))
    check_computed(entry, assigned)
    root = assigned.get("data.root")
    missing = missing_data(worlds(entry.path, root).values())
    if missing:
        return Outcome(entry, NOT_RUN, f"its data is not here: {', '.join(missing)}")
    assert entry.claims.computes is not None
    began = time.monotonic()
    found = compute(entry.path, entry.claims.computes, seeds, root)
    there = ", ".join(found.values)
    unknown = [
        f"claims.{name}.of: nothing called {claim.of!r} is computed; there: {there}"
        for name, claim in entry.claims.claims.items()
        if claim.of not in found.values
    ]
    if unknown:
        raise ConfigError(unknown, str(entry.path))
    judged = [
        judge_computed(name, claim, found.values[claim.of])
        for name, claim in entry.claims.claims.items()
    ]
    wall = round(time.monotonic() - began, 1)
    facts = {"wall_seconds": wall, "core_seconds": wall, "runs": 0}
    facts = {**_facts(entry, found.seeds, []), **facts}
    return Outcome(
        entry,
        judgements=judged,
        facts=facts,
        heads=found.heads,
        rows=found.rows,
        pictures=found.pictures,
    )


def _trained(
    entry: Entry, config: SearchConfig, out: Console, quiet: bool, settings: Sequence[str]
) -> Outcome:
    session = _session(config, entry, out, quiet)
    if not _is_done(session, config):
        session.run(again=session.state.begun)
    campaign = Campaign(session.config, session.state, lambda event, record: None)
    evidence = Evidence.found(campaign.lanes)
    judged = [judge(name, claim, evidence) for name, claim in entry.claims.claims.items()]
    failed = [r for r in campaign.records if r.status == "failed"]
    facts = {
        **_facts(entry, config.settings.search.confirm_seeds, settings),
        "wall_seconds": round(session.state.seconds, 1),
        "core_seconds": round(sum(r.seconds for r in campaign.records), 1),
        "runs": len(campaign.records),
        "search": session.name,
    }
    reason = f"{len(failed)} runs failed; the first said: {failed[0].message}" if failed else ""
    heads, rows = results_table(evidence)
    pictures = draw(evidence, entry.claims.figure)
    status = FAILED if failed else JUDGED
    tables = [numbers.fill(wanted, evidence) for wanted in entry.claims.numbers.values()]
    return Outcome(entry, status, reason, judged, facts, heads, rows, tables, pictures)


def _session(config: SearchConfig, entry: Entry, out: Console, quiet: bool) -> Session:
    """Return the session of the search that finds what the file asks for."""
    frozen = yaml.safe_load(config.as_yaml())
    unset = [k for k in LATER if frozen["search"][k] is None]
    search = {k: v for k, v in frozen["search"].items() if k not in (*IRRELEVANT, *unset)}
    found = json.dumps([frozen["experiment"], frozen["methods"], search], sort_keys=True)
    mark = hashlib.sha256(found.encode()).hexdigest()[:10]
    session = Session(config, f"{entry.name}-{mark}", out, quiet)
    before = sorted((session.home / "searches").glob(f"*-{mark}/search.yaml"))
    if before:
        session = Session(config, before[0].parent.name, out, quiet)
    return session


def _is_done(session: Session, config: SearchConfig) -> bool:
    """Whether all that is asked for has been found before; fewer seeds take away none."""
    state = session.state
    if not (state.begun and state.finished):
        return False
    before = SearchConfig.read(state.frozen).settings.search.confirm_seeds
    return before >= config.settings.search.confirm_seeds


def results_table(evidence: Evidence) -> tuple[list[str], list[list[str]]]:
    """Return every method's final numbers: mean over seeds that did not diverge, 95% interval."""
    metrics = list(
        dict.fromkeys(
            name
            for one in evidence.series.values()
            for run in one.runs
            for name in run.metrics
            if name.split("/")[0] in ("test", "val", "train")
        )
    )
    rows = []
    for one in evidence.series.values():
        whole = [run for run in one.runs if run.status != "diverged"]
        cells = [mean_and_half([r.metrics.get(m, float("nan")) for r in whole]) for m in metrics]
        diverged = "all" if one.lost else str(len(one.runs) - len(whole))
        chosen = ", ".join(f"{k} = {v}" for k, v in one.chosen.items()) or "-"
        rows.append([one.name, chosen, *cells, str(len(one.runs)), diverged])
    return ["method", "chosen", *metrics, "seeds", "diverged"], rows


def _facts(entry: Entry, seeds: int, settings: Sequence[str]) -> dict[str, Any]:
    """Return who ran what, when and where."""
    chosen = [s for s in settings if not s.strip().startswith(WHERE)]
    sets = "".join(f" --set {shlex.quote(s)}" for s in chosen)
    fresh = f" --seeds {seeds}" if seeds else ""  # a formula has none
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return {
        "command": f"python -m fltune reproduce {shlex.quote(entry.name)}{fresh}{sets}",
        "seeds": seeds,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{allowed()} cores {platform.machine()}{gpu}",
        "version": fltune.__version__,
        "commit": _commit(),
    }


def _commit() -> str:
    """Return the commit of the source, marked if it was changed since; empty outside a checkout."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def attempt(entry: Entry, **options: Any) -> Outcome:
    """Run one file of many: what fails is an outcome, and the next one has its turn.

    Raises:
        InterruptedSearchError: Ctrl-C, or SIGTERM.
    """
    try:
        return reproduce(entry, **options)
    except InterruptedSearchError:
        raise
    except FltuneError as error:
        return Outcome(entry, FAILED, str(error))
