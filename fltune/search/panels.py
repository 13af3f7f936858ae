"""Clients as a second fidelity: a trial that has not come far is judged by few of them.

Where clients answer over a network, their answers are what an evaluation costs. So a few judge on a
scheduler's first rung, where most trials end, more on each further one, and all judge what comes to
its end: completed configs are ranked by the same clients, and the winner is picked by all. Panels
are nested (:func:`fltune.data.validation.panel`), and two trials are compared at equal rounds only,
where the same clients have judged both.

Kuo et al. (2023), "On Noisy Evaluation in Federated Hyperparameter Tuning", measure what a choice
by few clients costs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fltune.search.rungs import Asha

if TYPE_CHECKING:
    from fltune.experiment import Experiment
    from fltune.search.method import Method
    from fltune.search.settings import SearchSettings

SAME = ("rounds", "eval_every", "data.clients", "data.val_from", "data.val_clients")
"""What a growing panel is worked out from, and so is the same for all trials of a method."""


def trial_panel(
    search: SearchSettings, experiment: Experiment, rounds: int
) -> dict[int, int | None] | None:
    """Return how many clients judge a trial, by the round from which on; None is all.

    ``first_panel`` on the first rung and before it, ``reduction`` times as many on each further
    one, and all once the last rung has been judged. The rungs are those of the rounds, whatever
    bracket of Hyperband a trial is in: its brackets share them, but for the first ones.

    Args:
        search: says grace and reduction.
        experiment: of a trial.
        rounds: T, of a trial.

    Returns:
        None where all judge always: without a ``first_panel``, or where no rung comes before T.
    """
    if search.first_panel is None:
        return None
    rungs = Asha(search.maximize, rounds, search.grace, search.reduction).rungs
    if not rungs:
        return None
    most = experiment.data.clients if experiment.data.val_from == "clients" else math.inf
    # A trial stands on a rung with its first evaluation there or later.
    judged = math.ceil(rungs[-1] / experiment.eval_every) * experiment.eval_every
    last = min(judged + 1, rounds)
    growth: dict[int, int | None] = {1: search.first_panel}
    for place, rung in enumerate(rungs[1:], 1):
        count = int(search.first_panel * search.reduction**place)
        if count >= most:
            last = min(math.ceil(rung), last)
            break
        if count > max(k or 0 for k in growth.values()):
            growth[math.ceil(rung)] = count
    return {**{r: k for r, k in growth.items() if r < last}, last: None}


def panel_problems(method: Method, search: SearchSettings) -> list[str]:
    """Return why trials of a method cannot be judged by a panel that grows."""
    own = method.first_experiment().data.val_clients
    where = f"methods.{method.name}"
    if search.first_panel is None:
        mixed = search.scheduler == "median" or any(
            goal.best or goal.average_last > 1 or goal.target is not None for goal in search.goals
        )
        if mixed and isinstance(own, dict):
            text = "scores of different rounds are compared, and fewer clients judge the early ones"
            return [f"{where}: data.val_clients: found {own}; {text}. Take one number of clients"]
        return []
    panel = method.of_trials(search).get("data.val_clients")
    if own not in (None, panel):
        text = "search.first_panel says how many clients judge a trial; drop one"
        return [f"{where}: data.val_clients: found {own}; {text}"]
    varied = [key for key in SAME if key in method.space.entries]
    if varied:
        text = "search.first_panel needs it to be the same for all trials"
        return [f"{where}.space.{key}: {text}; drop one" for key in varied]
    wrong = method.problems(method.first_values(), method.of_trials(search))
    return [f"{where}: in a trial of search.first_panel: {p}" for p in wrong]
