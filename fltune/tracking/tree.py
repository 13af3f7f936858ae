"""A search as a tree of runs: search, tuned methods, their trials and confirmation seeds.

The method runs are what a user selects and compares in the UI: they carry the winner's values and
its confirmed metrics. Everything below them is the evidence.

A search that was cut off goes on in the same tree: runs are found again by their tags, finished
ones are left as they are, and one that was cut off half written is written anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fltune.tracking.client import tracking_calls
from fltune.tracking.series import with_final
from fltune.tracking.store import PARENT, FoundRun, Store, TrackedRun
from fltune.tracking.views import SHARED, View

STATUSES = {"complete": "FINISHED", "pruned": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}

_KIND = "fltune.kind"
_SEARCH = "fltune.search"
_METHOD = "fltune.method"
_KEY = "fltune.key"  # what a trial or seed is found by when the search goes on
_RESULT = "fltune.result"  # as soon as a method run begins to get its outcome; in the end which
_CONFIRMED = "fltune.confirmed"
_NAME_CHARACTERS = 100

Rows = Iterable[Mapping[str, Any]]


class SearchTree:
    """The run of a search, above its methods. As a context manager it leaves no run open.

    Args:
        store: an open store.
        name: the name of the search.
        config_yaml: the frozen config, kept as ``search.yaml``.
        tags: more tags of a new search run; one that is found keeps those that it has.
        resume: go on in the newest tree of this name, if the store has one.

    Attributes:
        run: the search run.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        config_yaml: str,
        tags: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        self.store = store
        self.name = name
        self._branches: list[MethodBranch] = []
        own = {_KIND: "search", _SEARCH: name}
        found = store.find(own) if resume else []
        if found:
            self.run = store.reopen(found[0].id)
        else:
            self.run = store.start_run(name, tags={**(tags or {}), **own})
        try:
            self.run.log_text(config_yaml, "search.yaml")
        except BaseException:
            self.run.close_quietly()
            raise

    def method(self, name: str, params: Mapping[str, Any]) -> MethodBranch:
        """Return the branch of one tuned method, found again when the search goes on.

        Args:
            name: the method, as the user named it; with scenarios, the method and its cell.
            params: what is fixed for all its trials, under dotted names.
        """
        branch = MethodBranch(self, name, params)
        self._branches.append(branch)
        return branch

    def _keep(self, views: Sequence[View]) -> str:
        """Keep views of this search in the UI; return links to them, as Markdown.

        The UI's list of saved views, which is short, has those of the experiment's newest search.
        """
        now, tags, links = int(time.time() * 1000), {}, []
        table = f"#/experiments/{self.store.experiment_id}/runs"
        for view in views:
            key = f"{self.run.id}-{view.key}"
            tags[f"{SHARED}{key}"] = view.state()
            tags[f"{SHARED}fltune-{view.key}"] = view.saved(f"{self.name}: {view.title}", now)
            links.append(f"[{view.title}]({table}?viewStateShareKey={key})")
        self.store.tag_experiment(tags)
        return f"In the table of runs: {'; '.join(links)}."

    def finish(self, note_markdown: str = "", views: Sequence[View] = ()) -> None:
        """Close the search run, with the report as its description.

        A method that has no result by now is closed as killed.

        Args:
            note_markdown: the report.
            views: of its runs; links to them stand below the first paragraph of the report, for
                the UI folds away what comes after the first lines.
        """
        for branch in self._branches:
            branch.run.finish("KILLED")
        first, _, rest = note_markdown.partition("\n\n")
        note = [first, self._keep(views) if views else "", rest]
        if any(note):
            self.run.set_note("\n\n".join(filter(None, note)))
        self.run.finish()

    def __enter__(self) -> SearchTree:
        return self

    def __exit__(self, *error: object) -> None:
        for run in [*(branch.run for branch in self._branches), self.run]:
            run.close_quietly()


class MethodBranch:
    """One tuned method: its run, and below it its trials and confirmation seeds.

    Made by :meth:`SearchTree.method`.

    Attributes:
        run: the method run; another one after :meth:`finish` had to replace it.
        sent: runs below it that were written here, those found in the store not counted.
    """

    def __init__(self, tree: SearchTree, name: str, params: Mapping[str, Any]) -> None:
        self.name = name
        self.sent = 0
        self._tree = tree
        self._store = tree.store
        self._params = dict(params)
        self._tags = {_KIND: "method", _SEARCH: tree.name, _METHOD: name}
        own = {PARENT: tree.run.id, _KIND: "method", _METHOD: name}
        found = self._store.find(own)
        self._children: dict[str, FoundRun] = {}
        if not found:
            self.run = self._start(self._params)
            return
        self.run = self._store.reopen(found[0].id)
        known = found[0].params  # none, if it was cut off as it began
        self.run.log_params({k: v for k, v in self._params.items() if k not in known})
        for older in found[1:]:  # cut off while one run took the place of another
            self._take_over(older.id)
        self._find_children()

    def _find_children(self) -> None:
        """Learn what is written already; of what is there twice the whole one stays.

        A run is made twice where the answer to the first call was lost with the connection.
        """
        found = self._store.find({PARENT: self.run.id})
        children = [child for child in found if _KEY in child.tags]  # others are a user's own
        for child in sorted(children, key=lambda c: c.status in STATUSES.values()):
            twin = self._children.get(child.tags[_KEY])
            if twin is not None:
                self._store.delete(twin.id)
            self._children[child.tags[_KEY]] = child

    def _start(self, params: Mapping[str, Any]) -> TrackedRun:
        return self._store.start_run(self.name, self._tree.run, params, self._tags)

    def trial(
        self,
        number: int,
        values: Mapping[str, Any],
        rows: Rows,
        status: str,
        stop_reason: str = "",
        summary: Mapping[str, Any] | None = None,
        config_yaml: str = "",
        seed: int | None = None,
    ) -> str:
        """Write one ended trial and return its run id; one that is written already is left.

        Args:
            number: the trial's number within the method.
            values: the searched values, under dotted names.
            rows: its curve, ``{"round": 1, "val/accuracy": ...}`` each.
            status: ``complete``, ``pruned``, ``diverged`` or ``failed``.
            stop_reason: why it ended, as a sentence.
            summary: final metrics; text in it is left out.
            config_yaml: the resolved config, kept as ``experiment.yaml``: it runs the trial alone.
            seed: of a config that is run on several seeds, all but the first.
        """
        again = "" if seed is None else f" seed {seed}"
        title = f"{self.name} #{number}{again} {_short_values(values)}"
        tags = {_KIND: "trial", _KEY: f"trial {number}{again}", "fltune.trial": number}
        if seed is not None:
            tags["fltune.seed"] = seed
        return self._child(title, tags, values, rows, status, stop_reason, summary, config_yaml)

    def confirmation(
        self,
        seed: int,
        values: Mapping[str, Any],
        rows: Rows,
        summary: Mapping[str, Any] | None = None,
        status: str = "complete",
        stop_reason: str = "",
        config_yaml: str = "",
    ) -> str:
        """Write the winner's run on a fresh seed and return its run id; see :meth:`trial`."""
        # After more trials another winner may be run on the same seeds: the values belong to it.
        key = f"seed {seed} {json.dumps(dict(values), sort_keys=True, default=str)}"
        tags = {_KIND: "confirmation", _KEY: key, "fltune.seed": seed}
        title = f"{self.name} seed {seed}"
        return self._child(title, tags, values, rows, status, stop_reason, summary, config_yaml)

    def _child(
        self,
        title: str,
        tags: dict[str, Any],
        values: Mapping[str, Any],
        rows: Rows,
        status: str,
        stop_reason: str,
        summary: Mapping[str, Any] | None,
        config_yaml: str,
    ) -> str:
        if status not in STATUSES:
            raise ValueError(f"status: found {status!r}, allowed {', '.join(STATUSES)}")
        written = self._children.get(tags[_KEY])
        if written and written.status in STATUSES.values():
            return written.id
        if written:
            self._store.delete(written.id)
        tags |= {_SEARCH: self._tree.name, _METHOD: self.name, "fltune.status": status}
        tags |= {"fltune.stop_reason": stop_reason} if stop_reason else {}
        with (
            tracking_calls(self._store.uri),
            self._store.start_run(title[:_NAME_CHARACTERS], self.run, tags=tags) as run,
        ):
            run.log_curve(with_final(rows, summary or {}), params=values)
            if config_yaml:
                run.log_text(config_yaml, "experiment.yaml")
            run.finish(STATUSES[status])
        self.sent += 1
        texts = {key: str(value) for key, value in tags.items()}
        self._children[tags[_KEY]] = FoundRun(run.id, STATUSES[status], texts, {})
        return run.id

    def choose(self, numbers: Collection[int], tags: Mapping[str, Any]) -> None:
        """Tag the trials whose config was confirmed, and no longer those that were before.

        A search that goes on may choose others.

        Args:
            numbers: of the chosen trials; all runs of a config are tagged.
            tags: more tags of theirs, which no other trial has.
        """
        known = {_CONFIRMED: "true", **{key: str(value) for key, value in tags.items()}}
        for child in self._children.values():
            if child.tags.get("fltune.trial") in set(map(str, numbers)):
                self._store.tag(child.id, known)
                child.tags.update(known)
            elif _CONFIRMED in child.tags:
                self._store.untag(child.id, [key for key in known if key in child.tags])
                for key in known:
                    child.tags.pop(key, None)

    def finish(
        self, winner_values: Mapping[str, Any], rows_mean: Rows, metrics: Mapping[str, Any]
    ) -> None:
        """Give the method run its result and close it.

        Params and steps of MLflow are written once. So where the run has another result already
        (the search was extended, or cut off just here) a fresh run takes its place and children.

        Args:
            winner_values: the winner's values, under dotted names.
            rows_mean: its mean curve over the confirmation seeds.
            metrics: final metrics: ``{"test/accuracy": 0.9, "test/accuracy_std": 0.01}`` or
                ``{"test/accuracy": {"mean": 0.9, "std": 0.01, "low": ..., "high": ...}}``.
        """
        params, curve = {**self._params, **winner_values}, with_final(rows_mean, _flat(metrics))
        result = _digest([params, curve])
        if self._store.get(self.run.id).tags.get(_RESULT) != result:
            self._renew_if_written(params)
            self.run.set_tags({_RESULT: "begun", "fltune.status": "complete"})
            self.run.log_params(winner_values)
            self.run.log_curve(curve)
            self.run.set_tags({_RESULT: result})
        self.run.finish()

    def fail(self, reason: str) -> None:
        """Close the run of a method that got no result, e.g. because every trial diverged."""
        tags = {_RESULT: "false", "fltune.status": "failed", "fltune.stop_reason": reason}
        self.run.set_tags(tags)
        self.run.finish("FAILED")

    def _renew_if_written(self, params: Mapping[str, Any]) -> None:
        now = self._store.get(self.run.id)
        changed = any(str(params.get(key, text)) != text for key, text in now.params.items())
        if not changed and _RESULT not in now.tags:
            return
        old = self.run
        self.run = self._start(params)
        old.close_quietly()
        self._take_over(old.id)

    def _take_over(self, run_id: str) -> None:
        for child in self._store.find({PARENT: run_id}):
            self._store.move(child.id, self.run)
        self._store.delete(run_id)


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _short_values(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_short(value)}" for key, value in values.items())


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ",".join(_short(item) for item in value)
    return str(value)


def _flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(value, Mapping):
            flat[name] = value
            continue
        flat |= {
            name if part == "mean" else f"{name}_{part}": number for part, number in value.items()
        }
    return flat
