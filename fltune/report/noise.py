"""How much of a selection rests on how many clients judged it.

Kuo et al. (2023), "On Noisy Evaluation in Federated Hyperparameter Tuning", tune with a sample of
the clients and find that a small one often picks a poor config. Here the choice among the configs
of a search, which all clients have judged, is replayed on panels of fewer. It costs no training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fltune.errors import ConfigError
from fltune.report.table import short
from fltune.search.candidate import Candidate
from fltune.search.lane import Lane
from fltune.search.objective import Objective
from fltune.search.record import TrialRecord
from fltune.search.settings import SearchSettings

DRAWS = 1000
"""Panels drawn for each number of clients."""
SEED = 0
"""Of the panels."""
JUDGED = ("val/accuracy", "val/loss")
"""What is kept client by client."""
_BLOCK = 2**22  # random numbers held at once; panels of 100,000 clients would fill the memory


@dataclass(frozen=True, eq=False)
class Votes:
    """What clients say of M configs that were run on one seed.

    Attributes:
        clients: int64 ``[C]``, their numbers.
        samples: ``[C]``, validation samples of each, > 0.
        totals: ``[M, C]``, the metric summed over a client's samples.

    Raises:
        ValueError: there is nothing to choose among, a shape that does not fit, or a bad number.
    """

    clients: NDArray[np.int64]
    samples: NDArray[np.float64]
    totals: NDArray[np.float64]

    def __post_init__(self) -> None:
        shapes = self.clients.shape, self.samples.shape, self.totals.shape
        if self.totals.ndim != 2 or 0 in shapes[2] or shapes[:2] != (shapes[2][1:],) * 2:
            raise ValueError(
                f"clients, samples and totals of shapes {shapes} are not allowed; must be [C], [C] "
                "and [M, C], none empty"
            )
        if not np.isfinite(self.totals).all() or not (self.samples > 0).all():
            raise ValueError("totals must be finite and samples above 0; leave out what is not")

    def scores(self, panels: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return ``[D, M]``: the mean over the samples of panels ``[D, C]``, config by config."""
        weights = panels.astype(np.float64)
        return (weights @ self.totals.T) / (weights @ self.samples)[:, None]


@dataclass(frozen=True)
class Replay:
    """The choice on panels of one size.

    Attributes:
        clients: k, clients of a panel.
        agreement: share of panels that pick the config that all clients pick.
        regret: mean loss of the metric, judged by all clients, by choosing on a panel; >= 0.
    """

    clients: int
    agreement: float
    regret: float


@dataclass(frozen=True)
class MethodNoise:
    """The choices among the configs of one method.

    Attributes:
        configs: M, completed ones.
        clients: C, those that judged.
        winner: number of the config that the search chose.
        best: number of the config that all clients choose by their last evaluation.
        score: its metric, over all clients and the mean over seeds.
        panels: by size, all clients last.
    """

    configs: int
    clients: int
    winner: int
    best: int
    score: float
    panels: list[Replay]


def panel_sizes(clients: int) -> list[int]:
    """Return 1, 2, 4, 8 ... below the number of clients, and that number."""
    return [*(2**power for power in range((clients - 1).bit_length())), clients]


def replay(
    votes: Sequence[Votes], maximize: bool, draws: int = DRAWS, seed: int = SEED
) -> tuple[int, float, list[Replay]]:
    """Choose the best config again and again, on random panels of clients.

    Args:
        votes: of the same configs, per seed they were run on; scores are means over seeds.
        maximize: whether a larger metric is better.
        draws: panels for each number of clients, drawn without replacement; a draw's panels are
            nested, and the same on all seeds, for all configs.
        seed: of the panels.

    Returns:
        The position of the config that all clients choose, its score, and the panels by size.
    """
    sign = 1.0 if maximize else -1.0
    everyone = [v.scores(np.ones((1, len(v.clients)), np.bool_)) for v in votes]
    gain = sign * np.mean(everyone, axis=0)[0]
    best = int(gain.argmax())  # ties go to the earlier config, as in a search
    sizes = panel_sizes(max(len(v.clients) for v in votes))
    picks = _picks(votes, sign, sizes, draws, seed)
    picks[-1] = best  # of all clients there is one panel; rounding shall not break ties anew
    regrets = (gain[best] - gain[picks]).mean(1)
    found = zip(sizes, (picks == best).mean(1), regrets, strict=True)
    return best, sign * float(gain[best]), [Replay(k, float(a), float(r)) for k, a, r in found]


def _picks(
    votes: Sequence[Votes], sign: float, sizes: Sequence[int], draws: int, seed: int
) -> NDArray[np.int64]:
    """Return which config each panel picks, ``[len(sizes), draws]``."""
    numbers = 1 + max(int(v.clients.max()) for v in votes)
    rng, rows = np.random.default_rng(seed), max(1, _BLOCK // numbers)
    found = []
    for start in range(0, draws, rows):
        order = rng.random((min(rows, draws - start), numbers))
        ranks = [order[:, v.clients].argsort(1).argsort(1) for v in votes]
        scores = (
            np.mean([v.scores(rank < k) for v, rank in zip(votes, ranks, strict=True)], axis=0)
            for k in sizes
        )
        found.append([(sign * s).argmax(1) for s in scores])
    return np.concatenate(found, axis=1)


def noise(
    name: str, lanes: Mapping[str, Lane], search: SearchSettings, console: Console
) -> dict[str, Any]:
    """Print how often fewer clients would have chosen each method's winner; return it plainly.

    Args:
        name: of the search.
        lanes: the methods' work, by name.
        search: how winners are chosen.
        console: where to print.

    Raises:
        ConfigError: the winner is chosen by what clients do not judge, or no client was asked.
    """
    goal = _goal(search)
    found = {method: _of_method(lane, goal) for method, lane in lanes.items()}
    told = {method: m for method, m in found.items() if m is not None}
    if not told:
        raise ConfigError(
            f"--noise: {name} has no method with two completed configs that were judged client by "
            "client. Set data.val_from: clients in its experiment, and search again"
        )
    _print(name, told, goal, console)
    for method, m in found.items():
        if m is None:
            text = "fewer than two completed configs were judged client by client"
            console.print(escape(f"{method}: {text}"), highlight=False, soft_wrap=True)
        elif m.best != m.winner:
            text = f"the search chose #{m.winner}; by the last evaluation alone it is #{m.best}"
            console.print(escape(f"{method}: {text}"), highlight=False, soft_wrap=True)
    plain = {method: asdict(m) for method, m in told.items()}
    return {"search": name, "metric": goal.metric, "draws": DRAWS, "seed": SEED, "methods": plain}


def _goal(search: SearchSettings) -> Objective:
    goals = search.goals
    if len(goals) > 1:
        raise ConfigError("--noise: the search has several objectives, and so no single winner")
    if goals[0].metric not in JUDGED or goals[0].target is not None:
        raise ConfigError(
            f"--noise: the search chooses by {goals[0].label}; what is kept client by client is "
            f"{' and '.join(JUDGED)}"
        )
    return goals[0]


def _of_method(lane: Lane, goal: Objective) -> MethodNoise | None:
    """Return the choices among a method's configs; None if there is nothing to choose among."""
    asked = sorted((c for c in lane.front if _asked(c)), key=lambda c: c.number)
    if not asked:
        return None
    same = [c for c in asked if _who(c) == _who(asked[0])]
    if len(same) < 2:
        return None
    votes = [_votes(column, goal.metric) for column in zip(*map(_runs, same), strict=True)]
    best, score, panels = replay(votes, goal.maximize)
    clients = panels[-1].clients
    chosen = lane.front[0].number
    return MethodNoise(len(same), clients, chosen, same[best].number, score, panels)


def _runs(candidate: Candidate) -> list[TrialRecord]:
    return sorted(candidate.runs, key=lambda run: run.seed)


def _asked(candidate: Candidate) -> bool:
    return all(run.by_client for run in candidate.runs)


def _who(candidate: Candidate) -> list[Any]:
    """Return who judged its runs; a search over the data section has no two alike."""
    return [(run.by_client["client"], run.by_client["samples"]) for run in _runs(candidate)]


def _votes(runs: Iterable[TrialRecord], metric: str) -> Votes:
    """Return what clients said of the runs on one seed, in their order."""
    tables = [run.by_client for run in runs]
    samples = np.array(tables[0]["samples"], np.float64)
    if metric == "val/accuracy":
        totals = np.array([table["correct"] for table in tables], np.float64)
    else:
        totals = np.array([table["loss"] for table in tables], np.float64) * samples
    return Votes(np.array(tables[0]["client"], np.int64), samples, totals)


def _print(
    name: str, methods: Mapping[str, MethodNoise], goal: Objective, console: Console
) -> None:
    late = " The search judged otherwise: by a mean of several evaluations, or by the best one."
    averaged = late if goal.average_last > 1 or goal.best else ""
    table = Table(
        title=escape(f"{name}: the same choice with fewer clients"),
        title_justify="left",
        caption=f"{DRAWS} panels of each size, drawn with seed {SEED}, judge the models of all "
        f"completed configs by their last evaluation.{averaged} Regret: how much worse in "
        f"{goal.metric}, judged by all clients, the config is that a panel chooses.",
        caption_justify="left",
    )
    table.add_column("method", style="bold", overflow="fold", max_width=console.width // 3)
    for column in ("configs", f"best\n{goal.metric}", "clients", "same\nwinner", "mean\nregret"):
        table.add_column(column, justify="right", no_wrap=True)
    for method, m in methods.items():
        table.add_section()
        for i, panel in enumerate(m.panels):
            own = ("", "", "") if i else (escape(method), str(m.configs), short(m.score))
            shares = f"{panel.agreement:.1%}", short(panel.regret)
            table.add_row(*own, str(panel.clients), *shares)
    console.print(table)
