"""The page's pictures of a method's space: which parameters matter, and where it is good or fails.

Importances are Optuna's, of the study that the method's proposals were made from. Optuna's other
pictures know the positions of ordered values, not the values, and nothing of what diverged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from fltune.report import axes
from fltune.report.axes import Scale
from fltune.report.compare import Report, Row
from fltune.report.figures import (
    BROKEN,
    COLOURS,
    GREY,
    Picture,
    View,
    heights,
    hover,
    score_scale,
    shown,
    styled,
    trial_marks,
)
from fltune.report.table import short
from fltune.search.candidate import Candidate
from fltune.search.dimension import Dimension
from fltune.search.lane import Lane
from fltune.search.proposer import ListProposer, OptunaProposer, Proposal
from fltune.search.study import Outcome, quiet

if TYPE_CHECKING:
    from optuna import Study

SCALE = [[0.0, "#b8560a"], [0.5, "#8d8495"], [1.0, "#2f86d1"]]
"""From bad to good; both ends are seen on light and on dark paper."""
ENOUGH_TRIALS = 10
"""Completed trials below which an importance is mostly noise."""
TREES = 16
"""Of Optuna's 64: a page of 300 trials would spend most of its time on them."""
MOST_WEIGHED = 300
"""Completed trials that importances are told from: their seconds grow with the square of it."""
BEYOND = 0.1
"""How far off the axis of scores, which goes from 0 to 1, a trial that diverged stands."""
SLICE_HEIGHT = 230
"""Pixels per parameter, those below it for its name included."""
TITLE_HEIGHT = 75


def study_of(lane: Lane) -> Study:
    """Return what is known of a method as an Optuna study; of an exact grid too."""
    if isinstance(lane.proposer, OptunaProposer):
        return lane.proposer.study()
    assert isinstance(lane.proposer, ListProposer)
    proposer = OptunaProposer(
        lane.method.space,
        "random",
        {},
        budget=lane.planned,
        seed=0,
        directions=lane.judge.directions,
        worst=lane.judge.worst,
    )
    proposer.restore(
        [
            (Proposal(c.number, own_values(lane, c)), Outcome(c.status, c.scores, c.rounds))
            for c in lane.finished
        ]
    )
    return proposer.study()


def own_values(lane: Lane, candidate: Candidate) -> dict[str, Any]:
    """Return the values that the method searched itself, without inherited ones."""
    return {k: v for k, v in candidate.values.items() if k not in lane.inherited}


def _parameters(lane: Lane) -> dict[str, Dimension]:
    """Return the dimensions of all trials, by name, in the order in which they first appear."""
    found: dict[str, Dimension] = {}
    for candidate in lane.finished:
        active = lane.method.space.active(own_values(lane, candidate))
        found |= {k: d for k, d in active.items() if k in candidate.values and k not in found}
    return found


def _scale(dimension: Dimension) -> dict[str, Any]:
    """Return an axis's type and ticks."""
    at = axes.ticks(dimension)
    if at is None:
        return {"type": axes.kind(dimension)}
    text = [shown(short(value)) for value in at]
    return {
        "type": axes.kind(dimension),
        "tickvals": _places(dimension, at),
        "ticktext": text,
    }


def _places(dimension: Dimension, values: Sequence[Any]) -> list[Any]:
    return list(values) if axes.numeric(dimension) else [shown(short(v)) for v in values]


def parallel_coordinates(report: Report) -> Picture:
    """Return a line per trial through its score and all its values."""
    views = [_parallel(row, report.lanes[row.name]) for row in report.rows]
    return Picture("parallel", "All values at once", "method", views)


def _parallel(row: Row, lane: Lane) -> View:
    complete, parameters = lane.complete, _parameters(lane)
    if not complete or not parameters:
        return View(row.name, _nothing(row, lane))
    rising = lane.judge.directions[0] == "maximize"
    scale = Scale.of([c.scores[0] for c in complete], rising)
    good = sorted(complete, key=lambda c: c.scores[0], reverse=not rising)
    lost = [c for c in lane.finished if c.status == "diverged"]
    lines = [_line(c, parameters, None, rising) for c in lost]  # what is drawn last is on top
    lines += [_line(c, parameters, scale.share(c.scores[0]), rising) for c in good]
    figure = go.Figure(lines)
    names = [lane.search.objective_name, *parameters]
    _label_axis(figure, 0, {at: scale.at(at) for at in (0.0, 0.5, 1.0)})
    for place, dimension in enumerate(parameters.values(), start=1):
        values = axes.labels(dimension)
        _label_axis(figure, place, {axes.share(dimension, v): v for v in values})
    styled(figure, height=440, showlegend=False, hovermode="closest")
    ticks = {"tickvals": list(range(len(names))), "ticktext": list(map(shown, names))}
    figure.update_xaxes(range=[-0.35, len(names) - 0.8], tickangle=-25, **ticks)
    figure.update_xaxes(gridcolor=GREY, gridwidth=2, zeroline=False)
    figure.update_yaxes(visible=False, range=[-0.15, 1.15])
    text = f"{row.name}: a line for each of {len(complete)} completed trials, through its "
    text += f"{names[0]} and its values of {', '.join(parameters)}; blue is good, brown is bad, "
    text += f"dotted diverged. The best one has {_values(lane.front[0])}."
    return View(row.name, text, figure)


def _line(
    candidate: Candidate, parameters: Mapping[str, Dimension], at: float | None, rising: bool
) -> go.Scatter:
    """Return a trial's line; ``at`` is its place on the axis of scores, None if it diverged."""
    places = {
        place: axes.share(dimension, candidate.values[name])
        for place, (name, dimension) in enumerate(parameters.items(), start=1)
        if name in candidate.values and axes.has_place(dimension, candidate.values[name])
    }
    bad = -BEYOND if rising else 1.0 + BEYOND
    good = at if at is None or rising else 1.0 - at
    colour = COLOURS[5] if good is None else sample_colorscale(SCALE, [good])[0]
    return go.Scatter(
        x=[0, *places],
        y=[bad if at is None else at, *places.values()],
        mode="lines",
        line={"color": colour, "width": 1.8, "dash": "dot" if at is None else "solid"},
        text=hover(candidate),
        hoverinfo="text",
    )


def _label_axis(figure: go.Figure, place: int, values: Mapping[float, Any]) -> None:
    for at, value in values.items():
        text = shown(short(value))
        figure.add_annotation(
            x=place, y=at, text=text, showarrow=False, xanchor="right", xshift=-5, font={"size": 11}
        )


def _values(candidate: Candidate) -> str:
    return ", ".join(f"{k} = {short(v)}" for k, v in candidate.values.items())


def _nothing(row: Row, lane: Lane) -> str:
    if not _parameters(lane) and lane.candidates:
        return f"{row.name} searches no parameter."
    return f"{row.name} has no completed trial."


def importances(report: Report) -> Picture:
    """Return how much of the scores' variance each parameter explains (fANOVA)."""
    views = [_importance(row, report.lanes[row.name]) for row in report.rows]
    return Picture("importance", "Which parameters matter", "method", views)


def _importance(row: Row, lane: Lane) -> View:
    complete, parameters = lane.complete, _parameters(lane)
    if len(parameters) < 2:
        return View(row.name, f"{row.name} searches {len(parameters)} parameter: none to weigh.")
    if len(complete) < ENOUGH_TRIALS:
        text = f"{row.name} has {len(complete)} completed trials; an importance from fewer than "
        return View(row.name, f"{text}{ENOUGH_TRIALS} would be mostly noise.")
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    with quiet():
        try:
            found = get_param_importances(
                _some_of(study_of(lane)),
                evaluator=FanovaImportanceEvaluator(n_trees=TREES, seed=0),
                target=lambda trial: trial.values[0],
            )
        except (RuntimeError, ValueError) as error:  # all scores are equal, to Optuna
            return View(row.name, f"{row.name}: no importance can be told: {error}")
    if not found:
        return View(row.name, f"{row.name}: no parameter is searched in every trial.")
    names = list(reversed(found))
    bars = go.Bar(
        x=[found[n] for n in names],
        y=[shown(n) for n in names],
        orientation="h",
        marker={"color": COLOURS[0]},
        text=[f"{found[n]:.0%}" for n in names],
        hoverinfo="skip",
    )
    figure = styled(go.Figure(bars), height=140 + 45 * len(names))
    figure.update_layout(xaxis={"title": "share of the variance", "tickformat": ".0%"})
    figure.update_yaxes(automargin=True)
    weights = ", ".join(f"{n} {found[n]:.0%}" for n in found)
    many = f"{len(complete)} completed trials"
    if len(complete) > MOST_WEIGHED:
        many = f"{MOST_WEIGHED} of {many}, spread evenly"
    return View(
        row.name,
        f"{row.name}: {weights} of the variance of the scores (fANOVA: Hutter, Hoos, "
        f"Leyton-Brown, 2014), from {many}; those that diverged have no part in it. Few trials "
        "make it a hint, not a finding.",
        figure,
    )


def _some_of(study: Study) -> Study:
    """Return a study of its complete trials, of many some, spread evenly."""
    import optuna
    from optuna.trial import TrialState

    found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    count = min(len(found), MOST_WEIGHED)
    some = optuna.create_study(directions=study.directions)
    some.add_trials(found[i * len(found) // count] for i in range(count))
    return some


def slices(report: Report) -> Picture:
    """Return the score against each parameter, with the ends of its range."""
    views = [_slices(row, report.lanes[row.name]) for row in report.rows]
    return Picture("slices", "Score against each parameter", "method", views)


def _slices(row: Row, lane: Lane) -> View:
    parameters = _parameters(lane)
    if not lane.complete or not parameters:
        return View(row.name, _nothing(row, lane))
    ended, edges = lane.finished, row.summary.edges
    count = len(parameters)
    gap = TITLE_HEIGHT / (SLICE_HEIGHT * count)
    figure = make_subplots(rows=count, cols=1, vertical_spacing=gap)
    scale = score_scale(lane, ended)
    for place, (name, dimension) in enumerate(parameters.items(), start=1):
        having = [c for c in ended if name in c.values]
        x = _places(dimension, [c.values[name] for c in having])
        marks = trial_marks(having, x, _heights(lane, ended, having), legendgroup="ends")
        for trace in marks:
            trace.showlegend = place == 1
        figure.add_traces(marks, rows=place, cols=1)
        figure.update_xaxes(title=shown(name), **_scale(dimension), row=place, col=1)
        score = shown(lane.search.objective_name)
        figure.update_yaxes(title=score, type=scale.kind, row=place, col=1)
        if axes.numeric(dimension):
            _mark_ends(figure, dimension, edges.get(name), place)
    styled(figure, height=90 + SLICE_HEIGHT * count)
    figure.update_layout(legend={"y": -0.25 / count})
    on_edge = "; ".join(f"the best {k} is the {side} of its space" for k, side in edges.items())
    text = f"{row.name}: each trial's score against {', '.join(parameters)}. Dashed lines are the "
    text += f"ends of the space; {on_edge or 'no winning value is on an end that could be moved'}."
    return View(row.name, text, figure)


def _heights(lane: Lane, ended: Sequence[Candidate], having: Sequence[Candidate]) -> list[float]:
    placed = dict(zip((c.number for c in ended), heights(lane, ended), strict=True))
    return [placed[c.number] for c in having]


def _mark_ends(figure: go.Figure, dimension: Dimension, edge: str | None, place: int) -> None:
    """Draw the ends of a range; the one that the winner sits on in the colour of warnings."""
    for side, value in (("lowest", min(dimension.values)), ("highest", max(dimension.values))):
        there = side == edge
        line = {"dash": "dash", "width": 2 if there else 1}
        line["color"] = COLOURS[1] if there else GREY
        figure.add_vline(x=value, line=line, row=place, col=1)
        if there:
            # plotly takes a line's place on a log axis as it is, but a note's as its logarithm
            at = math.log10(value) if axes.kind(dimension) == "log" else value
            inward = "left" if side == "lowest" else "right"
            note = {"text": "winner on this edge", "showarrow": False, "xanchor": inward}
            note["xshift"] = 8 if side == "lowest" else -8  # off the winner's mark
            figure.add_annotation(x=at, y=1.0, yref="y domain", **note, row=place, col=1)


def stability_map(report: Report) -> Picture:
    """Return where a method trains and where it diverges, over two of its rates."""
    views = [_map(row, report.lanes[row.name]) for row in report.rows]
    return Picture("stability", "Where it is stable", "method", views)


def rates(lane: Lane) -> list[str]:
    """Return the two parameters of the stability map: learning rates first, then other numbers."""
    numeric = [name for name, d in _parameters(lane).items() if axes.numeric(d)]
    first = [name for name in ("server.lr", "client.lr") if name in numeric]
    return [*first, *(name for name in numeric if name not in first)][:2]


def _map(row: Row, lane: Lane) -> View:
    chosen = rates(lane)
    if len(chosen) < 2:
        text = "a map needs two searched numbers; see the score against each parameter"
        return View(row.name, f"{row.name}: {text}.")
    if not lane.complete:
        return View(row.name, _nothing(row, lane))
    ended = [c for c in lane.finished if all(name in c.values for name in chosen)]
    x, y = ([c.values[name] for c in ended] for name in chosen)
    figure = go.Figure(trial_marks(ended, x, y))
    by_score = _by_score(lane, ended)
    for trace in figure.data:
        trace.marker.size = 13
        if trace.name in by_score:
            trace.marker.update(by_score[trace.name])
        elif trace.name != "diverged":
            trace.marker.color = GREY  # blue would say that the score is good
    dimensions = [_parameters(lane)[name] for name in chosen]
    for update, name, dimension, at in zip(
        (figure.update_xaxes, figure.update_yaxes), chosen, dimensions, (x, y), strict=True
    ):
        update(title=shown(name), range=axes.whole(dimension, at), **_scale(dimension))
    lost = [c for c in ended if c.status == "diverged"]
    far = ", ".join(f"{n} from {short(min(c.values[n] for c in lost))}" for n in chosen if lost)
    text = f"{row.name}: {len(ended)} trials over {chosen[0]} and {chosen[1]}, coloured by score; "
    text += f"{len(lost)} diverged (crosses){f', with {far}' if lost else ''}."
    return View(row.name, text, styled(figure, height=460))


def _by_score(lane: Lane, ended: Sequence[Candidate]) -> dict[str, dict[str, Any]]:
    """Return the colours of the marks that have a score, and the bar that explains them."""
    complete = [c for c in ended if c.status == "complete"]
    if not complete:
        return {}
    rising = lane.judge.directions[0] == "maximize"
    scale = Scale.of([c.scores[0] for c in complete], rising)
    colours = {"colorscale": SCALE, "reversescale": not rising}
    ends: dict[str, float] = {"cmin": scale.low, "cmax": scale.high}
    bar: dict[str, Any] = {"title": {"text": "score"}, "thickness": 14}
    if scale.log:
        ends = {key: math.log10(end) for key, end in ends.items()}
        values = [scale.at(share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        bar |= {"tickvals": list(map(math.log10, values)), "ticktext": list(map(short, values))}
    found: dict[str, dict[str, Any]] = {}
    for kept, name in ((True, "complete"), (False, BROKEN)):
        scores = [c.scores[0] for c in complete if c.feasible == kept]
        placed = list(map(math.log10, scores)) if scale.log else scores
        found[name] = {"color": placed, **colours, **ends}
        if not any(other.get("showscale") for other in found.values()) and scores:
            found[name] |= {"colorbar": bar, "showscale": True}
    return found
