"""A whole search: start it, go on with it, add to it; keep and report everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from fltune.errors import ConfigError
from fltune.report.compare import Report
from fltune.report.explain import explain as explain_trial
from fltune.report.explain import find_trial, parse_trial
from fltune.report.noise import noise
from fltune.report.summary import Summary
from fltune.search.campaign import Campaign
from fltune.search.caps import Caps
from fltune.search.config import SearchConfig
from fltune.search.entries import Undrawn
from fltune.search.method import Method
from fltune.search.record import TrialRecord
from fltune.search.session import Session, home
from fltune.search.state import SearchState

ADJUSTABLE = ("tracking", "resources", "ray", "search.concurrent")
"""What may differ when a search goes on: where it runs and is recorded, never what it finds."""


def search(
    config: str | Path | Mapping[str, Any] | SearchConfig,
    settings: Iterable[str] = (),
    methods: Sequence[str] = (),
    name: str | None = None,
    console: Console | None = None,
    quiet: bool = False,
) -> Summary:
    """Tune the methods of a search file and confirm the winners.

    Args:
        config: a YAML file, the same as a nested mapping, or a validated config.
        settings: ``KEY=VALUE`` overrides, for a file or a mapping.
        methods: names to keep, likewise; all if empty.
        name: of the search; default: file name and time.
        console: where progress and the table go; silent if None.
        quiet: no progress, only the table.

    Raises:
        ConfigError: anything wrong with the config, the resources or the store; nothing started.
        DataError: the data set cannot be loaded or divided so.
        FltuneError: every run failed, or the disk is full.
        InterruptedSearchError: Ctrl-C, or SIGTERM; ``resume`` goes on.
    """
    if isinstance(config, SearchConfig):
        chosen = config
    elif isinstance(config, Mapping):
        chosen = SearchConfig.of(config, settings=settings, methods=methods)
    else:
        chosen = SearchConfig.read(config, settings, methods)
    session = Session(chosen, name, console or Console(quiet=True), quiet)
    if session.state.begun:
        raise ConfigError(
            f"a search named {session.name!r} exists already; choose another --name, or go on with "
            f"it: {session.command('resume')}"
        )
    return session.run()


def resume(
    name: str,
    settings: Iterable[str] = (),
    console: Console | None = None,
    quiet: bool = False,
) -> Summary:
    """Go on with a search that was interrupted, killed, or ended by a reboot.

    What had ended is not run again; what had started starts again under its own number. A search
    that is finished is reported anew.

    Args:
        name: of the search.
        settings: ``KEY=VALUE`` overrides of ``tracking``, ``resources``, ``ray`` and
            ``search.concurrent``.
        console: where progress and the table go; silent if None.
        quiet: no progress, only the table.

    Raises:
        ConfigError: there is no such search, or a setting would change what it finds.
        FltuneError: another process is running it.
    """
    return reopen(name, list(settings), console, quiet).run(again=True)


def extend(
    name: str,
    trials: int = 0,
    settings: Iterable[str] = (),
    console: Console | None = None,
    quiet: bool = False,
) -> Summary:
    """Add to a search: more trials, a wider space, more seeds. Only what is new runs.

    Args:
        name: of the search; finished or not.
        trials: so many more per method. A list of values whose cells all run, as those of a grid
            do, runs its new ones, whatever the number; of a wider range nothing runs without.
        settings: ``KEY=VALUE`` overrides of ``search.*``, of where it runs and is recorded, and of
            ``methods.NAME.space.PARAMETER``.
        console: where progress and the table go; silent if None.
        quiet: no progress, only the table.

    Raises:
        ConfigError: there is no such search, or a setting would change what a trial is: a value
            that is fixed, tied or paired in the space says what the trials there are were. Or
            more trials are asked for, and a cap forbids them; or a space is changed from which no
            trial would be drawn any more.
    """
    chosen = list(settings)
    folder = home_of(chosen)
    state = SearchState.find(folder, name)
    before = SearchConfig.read(state.frozen)
    if trials:
        chosen.append(f"search.trials={before.settings.search.trials + trials}")
    after = SearchConfig.read(state.frozen, chosen)
    _refuse_other_trials(before, after, state.records())
    if after.settings.search.trials > before.settings.search.trials:
        _refuse_what_caps_forbid(after, state)
    session = Session(after, name, console or Console(quiet=True), quiet, folder)
    _refuse_unsearched_space(before, session)
    return session.run(again=True)


FIXED = (
    "rounds",
    "first_panel",
    "metric",
    "mode",
    "select",
    "average_last",
    "objectives",
    "constraints",
    "deterministic",
)
"""Settings by which the trials so far were run, judged and proposed: an extension keeps them."""


def _refuse_other_trials(
    before: SearchConfig, after: SearchConfig, records: Iterable[TrialRecord] = ()
) -> None:
    """Refuse an extension whose trials cannot be ranked with those there are.

    Args:
        before, after: the search as it was, and extended.
        records: its ended runs; what they were, they are to stay.
    """
    old, new = before.settings.search, after.settings.search
    rungs = ("grace", "reduction") if old.first_panel else ()  # they say how many clients judge
    fixed = (*FIXED, *rungs)
    wrong = [f"search.{key}" for key in fixed if getattr(old, key) != getattr(new, key)]
    wrong += [
        f"methods.{name}"
        for name, method in after.methods.items()
        if name not in before.methods or before.methods[name].raw != method.raw
    ]
    wrong += dict.fromkeys(
        f"methods.{record.method}.space.{key}"
        for record in records
        for key in _meant_otherwise(before.methods, after.methods, record)
    )
    found = [
        f"{key}: an extension cannot change what a trial is or how it is judged; start a "
        "new search, from a file that says extends: and what differs"
        for key in wrong
    ]
    if new.seeds < old.seeds:  # the fresh seeds are those after the last one of the search
        found.append(
            f"search.seeds: found {new.seeds}; the search has run on {old.seeds}, and a winner "
            f"is not to be confirmed on seeds that chose it; must be {old.seeds} or more"
        )
    if found:
        raise ConfigError(found)


def _refuse_what_caps_forbid(after: SearchConfig, state: SearchState) -> None:
    """Refuse more trials where none would start."""
    caps = Caps(after.settings.search)
    for record in state.records():
        caps.count(record)
    found = [
        f"{cap} is spent: none of the trials would start; raise it too, with "
        f"--set {cap.partition(' ')[0]}=..."
        for cap in caps.spent(state.seconds)
    ]
    if found:
        raise ConfigError(found)


def _refuse_unsearched_space(before: SearchConfig, session: Session) -> None:
    """Refuse a changed space of which nothing would be tried: its edges would look searched."""
    found = []
    for name, lane in session.lanes().items():
        if not lane.spent:
            continue
        old, space = before.methods[name].space.to_yaml(), session.config.methods[name].space
        found += [
            f"methods.{name}.space.{key}: the changed space gets no new trial: add --trials "
            f"{session.config.settings.search.trials}, or as many as it is worth"
            for key, entry in space.to_yaml().items()
            if entry != old.get(key) and not isinstance(space.entries[key], Undrawn)
        ]
    if found:
        raise ConfigError(found)


def _meant_otherwise(
    before: Mapping[str, Method], after: Mapping[str, Method], record: TrialRecord
) -> list[str]:
    """Return the parameters that would no longer be what they were in a run.

    Its record holds what was drawn; what is fixed, tied or paired follows from the space.
    """
    old, new = before.get(record.method), after.get(record.method)
    if old is None or new is None:
        return []
    try:
        was = old.space.resolve(record.values)
    except ValueError:  # it has failed, and stays so
        return []
    try:
        now = new.space.resolve(record.values)
    except ValueError as error:
        return [str(error).partition(":")[0]]
    was, now = {**old.space.own, **was}, {**new.space.own, **now}
    return [key for key in {**was, **now} if was.get(key) != now.get(key)]


def reopen(
    name: str, settings: Sequence[str], console: Console | None, quiet: bool = False
) -> Session:
    """Return the session of an earlier search, from its frozen config.

    Raises:
        ConfigError: there is no such search, or a setting would change what it finds.
    """
    wrong = [s.partition("=")[0] for s in settings if not _adjustable(s.partition("=")[0])]
    if wrong:
        allowed = ", ".join(ADJUSTABLE)
        raise ConfigError(
            [f"{k}: cannot change now; what can: {allowed}; see extend" for k in wrong]
        )
    folder = home_of(settings)
    state = SearchState.find(folder, name)
    config = SearchConfig.read(state.frozen, settings)
    return Session(config, name, console or Console(quiet=True), quiet, folder)


def _adjustable(key: str) -> bool:
    return any(key == known or key.startswith(f"{known}.") for known in ADJUSTABLE)


def home_of(settings: Iterable[str]) -> Path:
    """Return the folder in which searches are kept, from ``tracking.*`` overrides."""
    return home(SearchConfig.tracking_of(s for s in settings if s.startswith("tracking.")))


def sync(name: str, settings: Iterable[str] = (), console: Console | None = None) -> int:
    """Send to the tracking store what it lacks of a search; return how many runs were sent.

    Raises:
        ConfigError: there is no such search, or the store cannot be opened.
        FltuneError: the store failed before it had all.
    """
    return reopen(name, list(settings), console).sync()


def explain(
    trial: str, settings: Iterable[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Print what is known of one trial; return the same in plain values.

    Args:
        trial: ``SEARCH/METHOD#NUMBER``.
        settings: ``KEY=VALUE`` overrides of ``tracking``.
        console: where to print; silent if None.

    Raises:
        ConfigError: there is no such search, method or trial.
    """
    name, method, number = parse_trial(trial)
    out = console or Console(quiet=True)
    session = reopen(name, list(settings), out)
    lane, candidate = find_trial(session.lanes(), method, number)
    return explain_trial(lane, candidate, session.state.frozen, out)


def explain_noise(
    name: str, settings: Iterable[str] = (), console: Console | None = None
) -> dict[str, Any]:
    """Print how often fewer evaluation clients would have chosen each method's winner.

    Args:
        name: of the search; finished or not.
        settings: ``KEY=VALUE`` overrides of ``tracking``.
        console: where to print; silent if None.

    Returns:
        The same in plain values.

    Raises:
        ConfigError: there is no such search, or its clients were not asked one by one.
    """
    out = console or Console(quiet=True)
    session = reopen(name, list(settings), out)
    return noise(name, session.lanes(), session.config.settings.search, out)


def compare(
    name: str,
    settings: Iterable[str] = (),
    target: float | None = None,
    references: bool = False,
    console: Console | None = None,
) -> Report:
    """Put the methods of a search side by side, as far as it has come.

    Args:
        name: of the search; finished or not.
        settings: ``KEY=VALUE`` overrides of ``tracking``.
        target: of the validation metric, for the rounds that each method needs to reach it.
        references: also run what the methods are held to: see :mod:`fltune.report.references`.
        console: where the runs of references are named; silent if None.

    Raises:
        ConfigError: there is no such search, or the target is no number.
        DataError: the data of the references cannot be loaded here.
    """
    session = reopen(name, list(settings), console)
    campaign = Campaign(session.config, session.state, lambda event, record: None)
    return session.report(campaign, target, references)
