"""One method of a comparison: its experiment without the searched values, and its space."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fltune import dotted
from fltune.errors import ConfigError
from fltune.experiment import DataSection, Experiment
from fltune.search.by_hand import switch
from fltune.search.panels import trial_panel
from fltune.search.scenarios import Inherit
from fltune.search.settings import SearchSettings
from fltune.search.space import Space
from fltune.search.space_check import space_problems
from fltune.search.space_parser import Surroundings, parse_space
from fltune.search.warm_points import parse_points

OWN_KEYS = ("space", "points", "scenario", "inherit")
"""What a method's section holds besides its experiment."""


class Method:
    """One method of a comparison.

    Attributes:
        name: as the file calls it.
        raw: its whole experiment, nested, without the searched values.
        space: what is searched.
        scenario: the method's own name and the labels of the axes, where there are any.
        inherit: whose winner some values are taken over from.
    """

    def __init__(self, name: str, raw: Mapping[str, Any], space: Space) -> None:
        self.name = name
        self.raw = dict(raw)
        self.space = space
        self.scenario: dict[str, str] = {}
        self.inherit: Inherit | None = None

    @property
    def seed(self) -> int:
        """The seed of its runs, the first one where there are several."""
        return int(self.raw.get("seed", 0))

    def fixing(self, values: Mapping[str, Any]) -> Method:
        """Return the method with some of its parameters no longer searched but set."""
        kept = {k: v for k, v in values.items() if k in self.space.entries}
        return self._rebuilt(self.to_yaml(), kept)

    def widened(self, entries: Mapping[str, Any]) -> Method:
        """Return the method with some entries of its space replaced, written as in a file."""
        written = self.to_yaml()
        return self._rebuilt({**written, "space": {**written["space"], **entries}}, {})

    def _rebuilt(self, section: Mapping[str, Any], overrides: Mapping[str, Any]) -> Method:
        """Return the method of another section, with some of its parameters set by hand."""
        found: list[str] = []
        built = build_method(self.name, self.raw, section, overrides, [], found)
        if built is None or found:
            raise ConfigError(found)
        return built

    def raw_with(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the nested config of a point of the space.

        What a partial point leaves open keeps the method's own value; names that are not of the
        space (``seed``) are set as they are. For ``beside`` see :meth:`of_trials`.

        Raises:
            ValueError: a tied value cannot be computed at this point.
        """
        return dotted.with_values(self.raw, self.space.resolve(point, beside))

    def experiment(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> Experiment:
        """Return the validated config of one trial.

        Raises:
            ConfigError: all that is wrong with it.
        """
        try:
            raw = self.raw_with(point, beside)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return Experiment.parse(raw)

    def readable(
        self, values: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a config's values as a person wants to see them: no draws that lists are made of.

        Where a tie cannot be computed it is the draws, which say where.
        """
        try:
            shown = self.space.readable(values, beside)
        except ValueError:
            return dict(values)
        drawn = self.space.active(values)
        return {**{k: v for k, v in values.items() if k not in drawn}, **shown}

    def problems(
        self, point: Mapping[str, Any], beside: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Return what is wrong with the config of one trial."""
        try:
            self.experiment(point, beside)
        except ConfigError as error:
            return error.problems
        return []

    def first_values(self) -> dict[str, Any]:
        """Return one point of the space: the first value of every dimension."""
        return self.space.first()

    def first_experiment(self, beside: Mapping[str, Any] | None = None) -> Experiment:
        """Return the config at these values: an example of what its trials run."""
        return self.experiment(self.first_values(), beside)

    def of_trials(self, settings: SearchSettings) -> dict[str, Any]:
        """Return what every trial sets, and no confirmation: fewer rounds, a growing panel."""
        rounds = self.trial_rounds(settings)
        panel = trial_panel(settings, self.first_experiment(), rounds)
        shorter = {} if settings.rounds is None else {"rounds": rounds}
        return {**shorter, **({} if panel is None else {"data.val_clients": panel})}

    def trial_rounds(self, settings: SearchSettings) -> int:
        """Return the rounds of a trial: those of the experiment, or fewer if the search says so."""
        own = self.first_experiment().rounds
        return min(own, settings.rounds or own)

    def exact(self, settings: SearchSettings) -> bool:
        """Whether every cell is run once, instead of drawing."""
        cells = self.space.cells
        return settings.sampler == "grid" or (cells is not None and cells <= settings.trials)

    def trials(self, settings: SearchSettings) -> int:
        """Return how many trials the method gets."""
        if not self.needs_trials(settings):
            return 0
        return (self.space.cells or 1) if self.exact(settings) else settings.trials

    def needs_trials(self, settings: SearchSettings) -> bool:
        """Whether configs are run in the search; a method's only one is confirmed right away.

        It is run where a trial says what confirmations do not: how it stands in several objectives,
        whether it keeps the constraints, how much better a wider space is, or anything at all.
        """
        told_by_trials = settings.constraints or settings.extend_edges or len(settings.goals) > 1
        return bool(told_by_trials) or not settings.confirm_seeds or self.space.cells != 1

    def too_short(self, settings: SearchSettings) -> list[str]:
        """Return what is wrong with a trial of fewer rounds than its experiment has."""
        if settings.rounds is None:
            return []
        where = f"methods.{self.name}"
        if "rounds" in self.space.entries:
            return [f"{where}.space.rounds: search.rounds says how many a trial makes; drop one"]
        rounds = self.trial_rounds(settings)

        def judge(point: Mapping[str, Any]) -> list[str]:
            return self.problems(point, {"rounds": rounds})

        always = [f"{where}: in a trial of search.rounds: {p}" for p in judge(self.first_values())]
        found = always or space_problems(self.space, judge, f"{where}.space")
        return found if always else [f"{p} (in a trial of search.rounds)" for p in found]

    def without_grid(self) -> list[str]:
        """Return why the cells of the space cannot all be run; empty if they can."""
        where = f"methods.{self.name}.space"
        text = "a range; sampler grid needs grid or choice"
        return [f"{where}.{name}: {text}" for name in self.space.open_ended[:1]]

    def to_yaml(self) -> dict[str, Any]:
        """Return what the method's section holds besides its experiment."""
        written: dict[str, Any] = {"space": self.space.to_yaml()}
        if self.space.points:
            written["points"] = [p.to_yaml() for p in self.space.points]
        if self.scenario:
            written["scenario"] = self.scenario
        if self.inherit is not None:
            written["inherit"] = self.inherit.as_yaml()
        return written

    def extendable_edges(self, point: Mapping[str, Any]) -> dict[str, str]:
        """Return the borders the winner sits on, beyond which there are allowed values."""
        active = self.space.active(point)
        return {
            name: edge
            for name, edge in self.space.edges(point).items()
            if any(self.allows(point, name, outside) for outside in active[name].beyond(edge))
        }

    def allows(self, point: Mapping[str, Any], name: str, outside: float) -> bool:
        """Whether the config allows a point with a value from outside the space.

        A model's constructor declares no ranges: what its space is of (whole numbers, none below 0,
        none but positive ones) is all that is known of a parameter.
        """
        if name.startswith("model.") and not _akin(outside, self.space.active(point)[name].values):
            return False
        try:
            values = self.space.resolve({**point, name: outside})
        except ValueError:
            # A value outside a paired list has no partner: the point's own partner stays. A draw
            # that is not a parameter itself (a share of the rounds) has nothing outside.
            if name not in self.space.entries:
                return False
            values = {**self.space.resolve(point), name: outside}
        try:
            Experiment.parse(dotted.with_values(self.raw, values))
        except ConfigError:
            return False
        return True


def _akin(number: float, known: Sequence[float]) -> bool:
    """Whether a number is whole where the known ones are, and on their side of 0."""
    if all(isinstance(value, int) for value in known) and number != int(number):
        return False
    lowest = min(known)
    return number > 0 or lowest < 0 or (number == 0 and lowest == 0)


def build_method(
    name: str,
    base: Mapping[str, Any],
    entry: Mapping[str, Any],
    overrides: Mapping[str, Any],
    known: list[str],
    found: list[str],
) -> Method | None:
    """Build one method and add what is wrong with it to ``found``.

    Args:
        name: as the file calls it.
        base: the base experiment, nested.
        entry: the method's section.
        overrides: parameters set by hand, by dotted name.
        known: what is wrong with the base already.
        found: problems, a sentence each.
    """
    raw = dotted.merge(base, {k: v for k, v in entry.items() if k not in OWN_KEYS})
    for key, value in overrides.items():
        switch(raw, key, value, {})
    where = f"methods.{name}"
    written = entry.get("space")
    if not isinstance(written, Mapping):
        shown = "nothing" if written is None else repr(written)
        found.append(
            f"{where}.space: found {shown}; name the parameters to tune, or write {{}} to run the "
            "method's own values"
        )
        return None
    wrong: list[str] = []
    own: Mapping[str, Any] | None = None
    try:
        own = Experiment.parse(raw).as_params()
    except ConfigError as error:
        wrong = [p for p in error.problems if p not in known]
    before = len(found)
    space = parse_space(
        written, Surroundings(own, overrides, lambda s: _kept(raw, s)), f"{where}.space", found
    )
    sound = len(found) == before
    _relations(method := Method(name, raw, space), entry, overrides, where, found)
    found += [f"{where}.{p}" for p in wrong]
    if own is not None:
        found += space_problems(space, method.problems, f"{where}.space")
    if sound and "points" in entry:
        points = parse_points(entry["points"], space, f"{where}.points", overrides, found)
        method.space = dataclasses.replace(space, points=points)
    return method


def _relations(
    method: Method,
    entry: Mapping[str, Any],
    overrides: Mapping[str, Any],
    where: str,
    found: list[str],
) -> None:
    """Read what :mod:`fltune.search.scenarios` writes into a method's section.

    What is set by hand is taken over from nobody.
    """
    scenario = entry.get("scenario", {})
    if isinstance(scenario, Mapping):
        method.scenario = {str(k): str(v) for k, v in scenario.items()}
    else:
        found.append(f"{where}.scenario: found {scenario!r}; write AXIS: LABEL")
    if "inherit" in entry:
        try:
            method.inherit = Inherit.parse(entry["inherit"]).without(overrides)
        except ValueError as error:
            found.append(f"{where}.inherit: {error}")


def _kept(raw: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return what stays in a section when another component comes there.

    As in :func:`fltune.dotted.merge`, the parameters of one component mean nothing to another. Only
    the ``data`` section has keys that every component has: clients, partition, ...
    """
    here = raw.get("data") if section == "data" else None
    common = here if isinstance(here, Mapping) else {}
    return {key: value for key, value in common.items() if key in DataSection.model_fields}
