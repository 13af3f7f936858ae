"""How a method stands: which of its configs are the best, and what fresh seeds say of them so far.

All of it follows from the runs that have ended, so a search is reported from its logs as it is
while it goes on. What is to be done next is the business of :mod:`fltune.search.lane`.
"""

from __future__ import annotations

from fltune.search.candidate import Candidate, winners
from fltune.search.confirm import Confirmation
from fltune.search.method import Method
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord
from fltune.search.settings import SearchSettings


class Standing:
    """The configs of a method with their runs, and the winners' runs on fresh seeds.

    Args:
        method: what is tuned.
        search: how the winner is chosen.

    Attributes:
        judge: of trials.
        worst: scores of a diverged run, by its kind.
        seeds: on which a config is run in the search.
        candidates: the configs so far, by number.
        confirmation: the winners' runs on fresh seeds.
    """

    def __init__(self, method: Method, search: SearchSettings) -> None:
        self.method = method
        self.search = search
        one = method.first_experiment()
        self._judged = (one.max_loss, method.trial_rounds(search))
        self.judge = search.judge(*self._judged)
        whole = search.judge(one.max_loss, one.rounds)
        self.worst = {TRIAL: self.judge.worst, CONFIRMATION: whole.worst}
        self.seeds = [method.seed + i for i in range(search.seeds)]
        self._trial_seeds = self.seeds if method.needs_trials(search) else []
        self.confirmation = Confirmation(self.seeds, search.confirm_seeds)
        self.candidates: dict[int, Candidate] = {}

    @property
    def front(self) -> list[Candidate]:
        """The best complete candidates in order; with several objectives, the Pareto front."""
        found = list(self.candidates.values())
        if not self._trial_seeds:
            return [c for c in found if c.status == "complete"]
        return winners(found, self.judge.directions, len(found))

    @property
    def winners(self) -> list[Candidate]:
        """The candidates that are confirmed."""
        return self.front[: self.search.confirm_top]

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that is reported: of those confirmed, the best score on fresh seeds.

        A validation score, as in the search; test data chooses nothing.
        """
        worst = self.worst[CONFIRMATION][0]
        return self.confirmation.best(self.winners, worst, self.search.maximize)

    @property
    def reported(self) -> list[TrialRecord]:
        """The confirmation runs of the chosen candidate, by seed."""
        chosen = self.chosen
        return self.confirmation.of(chosen) if chosen else []

    @property
    def records(self) -> list[TrialRecord]:
        """All ended runs, the confirmations last."""
        searched = [run for c in self.candidates.values() for run in c.runs]
        return [*searched, *self.confirmation.runs]

    @property
    def tried(self) -> list[Candidate]:
        """The configs that are run in the search; a method's only one is confirmed right away."""
        return [c for c in self.candidates.values() if c.seeds or c.runs]

    @property
    def finished(self) -> list[Candidate]:
        """Those of them that have ended, however."""
        return [c for c in self.tried if c.status != "running"]

    @property
    def complete(self) -> list[Candidate]:
        """Those that have run to their end, and have a score."""
        return [c for c in self.tried if c.status == "complete" and c.scores]

    @property
    def planned_confirmations(self) -> int:
        """Confirmation runs that there will be, as far as is known."""
        single = self.search.confirm_top == 1  # whoever it is
        return self.search.confirm_seeds * (1 if single else max(1, len(self.winners)))

    @property
    def done_confirmations(self) -> int:
        """Those of them that have ended."""
        if not self.confirmation.runs:
            return 0
        return sum(len(self.confirmation.of(candidate)) for candidate in self.winners)

    def scores_by_round(self, run: TrialRecord) -> dict[int, float]:
        """Return the main score that a run had after each evaluated round."""
        judge = self.search.judge(*self._judged)
        return {int(row["round"]): judge.add(row)[0] for row in run.rows}
