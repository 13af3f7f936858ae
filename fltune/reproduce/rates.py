"""How fast cyclic participation converges on quadratics: about 1/T^2 against 1/T.

Client m holds f_m(w) = 0.5 (w - c_m)' diag(H_m) (w - c_m), and makes one gradient step a round with
the rate a log(T) / T, whose factor a is the best of a few for every T. With as many groups as there
are cohorts (Kbar = M/N) everybody takes part once a cycle, and the variance of sampling within a
group, which dominates the error of uniform sampling, is gone (Cho et al., ICML 2023, Theorem 1).
"""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from fltune.participation.groups import Groups
from fltune.participation.trace import record
from fltune.report.figures import COLOURS, Picture, View, styled
from fltune.reproduce.computed import Computed, Setup

CLIENTS, PER_ROUND, DIMENSION = 40, 2, 10
GROUPS = (1, 5, 20)
ROUNDS = (200, 800, 3200)
FACTORS = np.array([1.0, 2.0, 4.0, 8.0])
SPREAD = 0.3
"""Standard deviation of a group's mean optimum, beside 1 of the clients' within it."""
FEWEST_SEEDS = 20


def cyclic_rates(setup: Setup) -> Computed:
    """Return the slope of log error against log T on each seed, by number of groups."""
    seeds = max(setup.seeds, FEWEST_SEEDS)
    values, rows, figure = {}, [], go.Figure()
    for place, groups in enumerate(GROUPS):
        errors = _errors(groups, seeds)
        best = errors.mean(0).argmin(1)
        chosen = np.stack([errors[:, i, a] for i, a in enumerate(best)], 1)  # [seeds, T]
        slopes = np.polyfit(np.log(ROUNDS), np.log(chosen).T, 1)[0]
        values[f"slope, Kbar {groups}"] = slopes.tolist()
        means = chosen.mean(0)
        rows.append((f"Kbar {groups}", *(f"{m:.2e}" for m in means), f"{slopes.mean():.2f}"))
        line = {"color": COLOURS[place], "width": 2.5}
        figure.add_scatter(x=list(ROUNDS), y=means.tolist(), name=f"Kbar {groups}", line=line)
    styled(figure, xaxis_title="rounds T", yaxis_title="error after T rounds")
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    text = f"Mean error f(w) - f* over {seeds} seeds by the number of rounds, both logarithmic."
    heads = ("groups", *(f"error, T = {t}" for t in ROUNDS), "slope (mean)")
    picture = Picture("rates", "Error by rounds", "axis", [View("rounds", text, figure)])
    return Computed(values, heads, rows, [picture], seeds)


def _errors(groups: int, seeds: int) -> NDArray[np.float64]:
    """Return f(w_T) - f* for each seed, T and factor a, [seeds, T, a]."""
    made = [_problem(groups, seed) for seed in range(seeds)]
    centres, curvature, cohorts = (np.stack(part) for part in zip(*made, strict=True))
    optimum = (curvature * centres).mean(1) / curvature.mean(1)
    each = np.arange(seeds)[:, None]
    found = []
    for rounds in ROUNDS:
        w = np.zeros((seeds, len(FACTORS), DIMENSION))
        rates = (FACTORS * math.log(rounds) / rounds)[:, None]
        for t in range(rounds):
            drawn = cohorts[:, t]  # [seeds, N]
            h, c = (part[each, drawn][:, None] for part in (curvature, centres))
            w -= rates * (h * (w[:, :, None] - c)).mean(2)
        away = w - optimum[:, None]
        found.append(0.5 * (away**2 * curvature.mean(1)[:, None]).sum(2))
    return np.stack(found, 1)


def _problem(groups: int, seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return the clients' optima and curvatures [M, dim], and the cohorts [T, N]."""
    pattern = Groups(groups, PER_ROUND).bind(CLIENTS, seed)
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLIENTS, DIMENSION))
    for members in pattern.members:
        centres[members.numpy()] += SPREAD * rng.standard_normal(DIMENSION)
    curvature = rng.uniform(0.5, 2.0, (CLIENTS, DIMENSION))
    return centres, curvature, np.array(record(pattern, max(ROUNDS)))
