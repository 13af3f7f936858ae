"""The verdict on a claim: shown, not shown or opposite, from the interval of its statistic.

    shown       the whole 95% interval over the seeds is where the claim says
    opposite    the whole interval is on the other side of no effect (or of the threshold, where a
                statistic has no such place)
    not shown   anything else: the seeds do not tell

What is computed, counted or set by the search is exact: one number is its own interval. Of what is
trained, one seed tells nothing, whether no other was run or both sides diverged on the others, and
neither do several that have the same number: whole samples and rounds coincide by chance, and a
spread of 0 would make certain what the seeds do not tell. There are two exceptions: a claim that a
number is exactly so is about every run, not about a mean; and runs that all diverged have the worst
there is, which is no coincidence. A claim about several cells is as good as its worst one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fltune.report.statistics import Interval, coincide
from fltune.reproduce.claims import Claim
from fltune.reproduce.printed import theirs
from fltune.reproduce.readings import BySeed, Evidence
from fltune.reproduce.statistics import NEUTRAL, by_seed

SHOWN, NOT_SHOWN, OPPOSITE = "shown", "not shown", "opposite"
WORST_FIRST = (OPPOSITE, NOT_SHOWN, SHOWN)


@dataclass(frozen=True)
class Finding:
    """A claim's statistic in one cell.

    Attributes:
        cell: its labels; empty where there is one cell alone.
        values: by seed, as text for JSON.
        mean: over the seeds.
        low, high: the 95% interval of the mean; the mean itself where it is exact, NaN where one
            seed is all there is, or all have the same number.
        verdict: on the claim in this cell.
        bound: where runs never reached a target, which counts as a round more than they have made,
            what the mean is a bound of: ``≤`` if it would be smaller had they gone on, ``≥`` if
            larger, ``≶`` if some values would be this and some that.
    """

    cell: str
    values: dict[str, float]
    mean: float
    low: float
    high: float
    verdict: str
    bound: str = ""

    @property
    def text(self) -> str:
        """The number with its interval."""
        if not self.values:
            return "cannot be told"
        return f"{self.bound} {self._number}" if self.bound else self._number

    @property
    def _number(self) -> str:
        if self.low == self.high:
            return number(self.mean)
        if math.isnan(self.low):
            alone = len(self.values) == 1
            why = "one seed tells nothing" if alone else "the same on every seed: no interval"
            return f"{number(self.mean)} ({why})"
        return f"{number(self.mean)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True)
class Judgement:
    """A claim and what became of it.

    Attributes:
        claim: its name in the file.
        says, statistic, threshold: in words.
        theirs: the printed numbers; empty where the paper prints none.
        note: what explains the outcome; empty if nothing does.
        verdict: the worst of the findings'.
        findings: a cell each.
    """

    claim: str
    says: str
    statistic: str
    threshold: str
    theirs: str
    note: str
    verdict: str
    findings: list[Finding]


def number(value: float) -> str:
    """Show a number with as many digits as tell something."""
    return f"{value:.4g}" if abs(value) < 1000 or not math.isfinite(value) else f"{value:,.0f}"


def judge(name: str, claim: Claim, evidence: Evidence) -> Judgement:
    """Judge a claim about runs."""
    cells = evidence.cells(claim)
    findings = []
    for cell in cells:
        label = ", ".join(cell.values()) if len(cells) > 1 else ""
        values = by_seed(evidence, claim, cell)
        finding = _finding(label, claim, values)
        if claim.take == "rounds":
            later = by_seed(evidence.unending(), claim, cell)
            finding = replace(finding, bound=_bound(values, later))
        findings.append(finding)
    return _judgement(name, claim, findings)


def judge_computed(name: str, claim: Claim, values: Sequence[float]) -> Judgement:
    """Judge a claim about numbers that were computed without training."""
    return _judgement(name, claim, [_finding("", claim, dict(enumerate(values)))])


def _judgement(name: str, claim: Claim, findings: list[Finding]) -> Judgement:
    verdict = worst(finding.verdict for finding in findings)
    printed = theirs(claim) if claim.theirs is not None else ""
    says, formula, threshold = claim.says, claim.formula, claim.threshold
    return Judgement(name, says, formula, threshold, printed, claim.note, verdict, findings)


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst of some verdicts; not shown where there are none."""
    return min(verdicts, key=WORST_FIRST.index, default=NOT_SHOWN)


def _bound(values: BySeed, later: BySeed) -> str:
    """Compare values with those of runs that would have missed their target for much longer."""
    lower = any(later[seed] < value for seed, value in values.items())
    higher = any(later[seed] > value for seed, value in values.items())
    return {(True, False): "≤", (False, True): "≥", (True, True): "≶"}.get((lower, higher), "")


def _finding(cell: str, claim: Claim, values: BySeed) -> Finding:
    known = {seed: v for seed, v in values.items() if not math.isnan(v)}
    exact = claim.statistic == "computed" or claim.exact
    mean, low, high = _interval(list(known.values()), exact)
    if not exact and len(known) > 1 and _by_chance(claim, list(known.values())):
        low = high = math.nan
    verdict = _verdict(claim, low, high)
    return Finding(cell, {str(s): v for s, v in known.items()}, mean, low, high, verdict)


def _by_chance(claim: Claim, values: Sequence[float]) -> bool:
    """Whether the same number on every seed may be a coincidence."""
    accuracy = claim.metric.endswith("accuracy") and claim.take != "rounds"
    if not all(map(math.isfinite, values)) or not coincide(values, 1.0 if accuracy else 0.0):
        return False  # an infinite one is of runs that diverged
    diverged = accuracy and claim.statistic == "level" and not any(values)
    return claim.above != claim.below and not diverged


def _interval(values: Sequence[float], exact: bool) -> tuple[float, float, float]:
    """Return mean and interval; where a value is infinite, from the smallest to the largest.

    Of one number the interval is that number if it is exact, which one that diverged is not; NaN
    otherwise, by which nothing is shown.
    """
    if len(values) == 1:
        end = values[0] if exact and math.isfinite(values[0]) else math.nan
        return values[0], end, end
    if not all(map(math.isfinite, values)):
        return sum(values), min(values), max(values)
    interval = Interval.of(values)
    if interval is None:
        return math.nan, math.nan, math.nan
    return interval.mean, interval.low, interval.high


def _verdict(claim: Claim, low: float, high: float) -> str:
    above = -math.inf if claim.above is None else claim.above
    below = math.inf if claim.below is None else claim.below
    if above <= low and high <= below:
        return SHOWN
    neutral = NEUTRAL.get(claim.statistic)
    if claim.above is not None and claim.below is not None:
        return OPPOSITE if high < above or low > below else NOT_SHOWN
    floor = above if neutral is None else min(above, neutral)
    ceiling = below if neutral is None else max(below, neutral)
    return OPPOSITE if high < floor or low > ceiling else NOT_SHOWN
