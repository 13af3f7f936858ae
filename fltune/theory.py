"""Step sizes that the papers' theorems allow or recommend, and counts of visits, as functions.

Shared letters: L smoothness, mu the PL constant, sigma2 the variance of a stochastic gradient, K
local steps, T rounds, N clients. Where a paper prints a formula that its own proof contradicts, the
function follows the proof and says so. The bounds are sufficient, and often far from tight; nothing
in the package enforces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def cycp_rate(
    num_clients: int, groups: int, rounds: int, mu: float, steps: int = 1, case: str = "sgd"
) -> float:
    """Return the client rate of CyCP (Cho et al. 2023, Theorems 1 to 3).

        GD, SGD   ln(N T^2 / Kbar^2) / (tau mu T)
        SSGD      ln(N B T^2 / Kbar^2) / (mu B T)

    The paper prints the first divided by the clients per round, because its proofs of GD and SGD
    sum the clients' updates where the algorithm averages them.

    Args:
        num_clients: N.
        groups: Kbar.
        rounds: T.
        mu: PL constant.
        steps: local steps tau (1 for GD), or the number of components B of SSGD.
        case: ``gd``, ``sgd`` or ``ssgd``.
    """
    return _cycp_log(num_clients, groups, rounds, steps, case) / (steps * mu * rounds)


def cycp_min_rounds(
    num_clients: int,
    groups: int,
    rounds: int,
    mu: float,
    L: float,
    steps: int = 1,
    case: str = "sgd",
) -> float:
    """Return the rounds that :func:`cycp_rate` needs: T must be no less than this.

    c (L / mu) Kbar times the logarithm of the rate, c = 7 for GD and 10 for SGD and SSGD.
    """
    factor = 7.0 if case == "gd" else 10.0
    return factor * L / mu * groups * _cycp_log(num_clients, groups, rounds, steps, case)


def _cycp_log(num_clients: int, groups: int, rounds: int, steps: int, case: str) -> float:
    _known_case(case)
    components = steps if case == "ssgd" else 1
    return math.log(num_clients * components * rounds**2 / groups**2)


def _known_case(case: str) -> None:
    if case not in ("gd", "sgd", "ssgd"):
        raise ValueError(f"case = {case!r} is not allowed; must be gd, sgd or ssgd")


def cycp_groups_help(
    num_clients: int,
    groups: int,
    per_round: int,
    case: str = "sgd",
    steps: int = 1,
    gamma: float = 0.0,
    sigma2: float = 0.0,
) -> bool:
    """Return whether CyCP's cyclic groups cost less than sampling from all clients.

    By the paper's bounds they do only where a round takes a whole group, Kbar = M / n; with SGD
    only if gamma^2 >= M sigma2 / (n tau) too.

    Args:
        num_clients: M.
        groups: Kbar; 1 is sampling from all clients.
        per_round: n (the paper's N).
        case: ``gd``, ``sgd`` or ``ssgd``.
        steps: tau, for ``sgd``.
        gamma: how far the gradients of a group's clients are from the group's mean, for ``sgd``.
        sigma2: gradient variance, for ``sgd``.
    """
    _known_case(case)
    whole = groups > 1 and groups * per_round == num_clients
    noise = num_clients * sigma2 / (per_round * steps) if case == "sgd" else 0.0
    return whole and gamma**2 >= noise


def cycp_beats_local_rr(
    num_clients: int, per_round: int, components: int, alpha: float, gamma: float, nu: float
) -> bool:
    """Return whether CyCP with SSGD costs less than local random reshuffling.

    M > n (1 + alpha / (gamma + nu / sqrt(B))), by the paper's bounds.

    Args:
        num_clients: M.
        per_round: n (the paper's N).
        components: B.
        alpha: how far the gradients of groups are from the mean of all.
        gamma: how far those of a group's clients are from the group's mean.
        nu: how far those of a client's components are from the client's.
    """
    within = gamma + nu / math.sqrt(components)
    return (num_clients - per_round) * within > per_round * alpha


def tau_max_bound(pattern: str, num_clients: int, share: float, rounds: int = 1) -> float:
    """Return FedSUM's bound on the expected longest absence of a client, E tau_max.

        uniform     (4 N / S) ln(N T)
        bernoulli   (4 / delta) max(ln(N T), ln(1 / delta))
        cyclic      2 N / S
        reshuffled  4 N / S

    The appendix exchanges the numbers of the last two cases; these are the patterns' own.

    Args:
        pattern: one of these names.
        num_clients: N.
        share: S / N; for ``bernoulli`` delta, the smallest probability of a client.
        rounds: T, for ``uniform`` and ``bernoulli``.
    """
    logarithm = math.log(num_clients * rounds)
    factors = {
        "uniform": 4 * logarithm,
        "bernoulli": 4 * max(logarithm, math.log(1 / share)),
        "cyclic": 2.0,
        "reshuffled": 4.0,
    }
    if pattern not in factors:
        raise ValueError(f"pattern = {pattern!r} is not allowed; must be one of {list(factors)}")
    return factors[pattern] / share


def fedsum_rates(
    num_clients: int,
    steps: int,
    rounds: int,
    L: float,
    gap: float,
    sigma2: float,
    tau_max: float,
    tau_avg: float,
) -> tuple[float, float]:
    """Return (eta_g, eta_l) of the FedSUM family (Theorem 4.1).

        eta_g = 1 / sqrt(tm)
        eta_l = min(1 / (10 sqrt(tm) K L), sqrt(N tm gap) / sqrt(ta K T L sigma2))

    with tm = max(1, tau_max), ta = max(1, tau_avg): full participation has tau_max = 0. The
    appendix writes N eta_g and eta_l / N for the same two, and exchanges them once.

    Args:
        num_clients: N.
        steps: K.
        rounds: T.
        L: smoothness.
        gap: f(x^0) - f*.
        sigma2: gradient variance; 0 drops the second bound.
        tau_max: longest absence of a client in rounds.
        tau_avg: mean over rounds of the longest absence.
    """
    tm, ta = max(1.0, tau_max), max(1.0, tau_avg)
    local = 1 / (10 * math.sqrt(tm) * steps * L)
    if sigma2 > 0:
        local = min(local, math.sqrt(num_clients * tm * gap / (ta * steps * rounds * L * sigma2)))
    return 1 / math.sqrt(tm), local


def fedcom_max_rate(L: float, steps: int, gamma: float, q: float, clients: int) -> float:
    """Return the largest eta of FedCOM: tau^2 L^2 eta^2 + (q/m + 1) eta gamma L tau <= 1.

    Args:
        L: smoothness.
        steps: tau.
        gamma: server rate.
        q: the compressor's variance factor.
        clients: m.
    """
    a = (q / clients + 1) * gamma
    return (math.sqrt(a * a + 4) - a) / (2 * L * steps)


def fedcomgate_max_rate(L: float, steps: int, gamma: float, q: float, mu: float = 0.0) -> float:
    """Return the largest eta of FedCOMGATE, the root of its conditions.

        30 eta^2 L^2 tau^2 <= 1
        1 - c - L eta gamma tau (q + 1) >= 0,   c = 10 eta^4 gamma^2 (q + 1) L^4 tau^4

    Under the PL condition (mu > 0) c is divided by
    1 - mu tau gamma eta + 20 mu gamma eta^3 L^2 tau^3, which must be positive.
    """

    def allowed(eta: float) -> bool:
        c = 10 * eta**4 * gamma**2 * (q + 1) * L**4 * steps**4
        share = 1 - mu * steps * gamma * eta + 20 * mu * gamma * eta**3 * L**2 * steps**3
        return share > 0 and 1 - c / share - L * eta * gamma * steps * (q + 1) >= 0

    return _largest(allowed, 1 / (math.sqrt(30) * L * steps))


def fedcomgate_sufficient_rate(L: float, steps: int, gamma: float, q: float) -> float:
    """Return 1 / (L gamma (q + 1) tau sqrt(30)), which is small enough for gamma >= 1."""
    return 1 / (L * gamma * (q + 1) * steps * math.sqrt(30))


def _largest(allowed: Callable[[float], bool], most: float) -> float:
    """Return the largest number in (0, most] that is allowed, if all smaller ones are."""
    if allowed(most):
        return most
    low, high = 0.0, most
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def fedcdr_margin(eta: float, L: float, alpha: float = 1.0, inexactness: float = 0.0) -> float:
    """Return the left side of FedCDR's condition (60); theory wants it positive.

    2 - alpha - alpha eta L - 2 eta^2 L^2 - 2 alpha g (1 + eta L)^2.
    """
    reach = 2 * alpha * inexactness * (1 + eta * L) ** 2
    return 2 - alpha - alpha * eta * L - 2 * eta**2 * L**2 - reach


def fedcdr_max_eta(L: float, alpha: float = 1.0, inexactness: float = 0.0) -> float:
    """Return the prox coefficient below which FedCDR converges: the root of :func:`fedcdr_margin`.

    With an exact prox and alpha = 1 it is 1/(2L). The paper's (59) forgets a term and admits eta
    that its own (60) forbids. Its experiments have eta = 10 to 1e4, beyond this bound unless L is
    tiny; recommended by theory are alpha = 1 and eta = 1/(4L).

    Args:
        L: smoothness.
        alpha: relaxation in (0, 2).
        inexactness: g >= 0 of the inexact prox; 0 is exact.

    Raises:
        ValueError: g >= (2 - alpha) / (2 alpha), where no eta is small enough.
    """
    room = 2 - alpha - 2 * alpha * inexactness
    if room <= 0:
        raise ValueError(
            f"inexactness = {inexactness} is not allowed; must be below "
            f"(2 - alpha) / (2 alpha) = {(2 - alpha) / (2 * alpha):g}"
        )
    square, linear = 2 + 2 * alpha * inexactness, alpha + 4 * alpha * inexactness
    return (math.sqrt(linear**2 + 4 * square * room) - linear) / (2 * square * L)


def fedcdr_bound(L: float, gap: float, meta_epochs: int) -> float:
    """Return (125/4) L gap / T, FedCDR's bound at alpha = 1, eta = 1/(4L), over T meta-epochs."""
    return 125 / 4 * L * gap / meta_epochs


def fedcdr_accuracy(budget: float, blocks: int, meta_epoch: int, block: int) -> float:
    """Return eps, how near the inner solver must come to the prox (FedCDR, Definition 5).

    eps^2 = M / (2 (r + t (R + 1) + 1)^2). Summed over all rounds it stays below M pi^2 / 12, and
    so meets the definition's budget (1/R) sum_t sum_r eps^2 <= M (which prints 1/n for 1/R).

    Args:
        budget: M, the constant that bounds the errors of all rounds together.
        blocks: R, rounds of a meta-epoch.
        meta_epoch: 0-based t.
        block: 0-based r.

    Raises:
        ValueError: a budget that is not positive.
    """
    if not budget > 0:
        raise ValueError(f"budget = {budget} is not allowed; must be > 0")
    return math.sqrt(budget / 2) / (block + meta_epoch * (blocks + 1) + 1)


def fedgm_max_rate(L: float, steps: int, etas: Sequence[float], W1: float) -> float:
    """Return the largest client rate of (Multistage) FedGM with all clients.

    min(1 / (8 K L), 1 / (K S C (L mean(eta) + 1 + L^2 W1^2 C))), C = eta_1 / eta_S.

    Args:
        L: smoothness.
        steps: K.
        etas: server rate of each of the S stages.
        W1: eta beta nu / (1 - beta), the same in all stages.
    """
    mean, C = sum(etas) / len(etas), etas[0] / etas[-1]
    second = steps * len(etas) * C * (L * mean + 1 + (L * W1) ** 2 * C)
    return min(1 / (8 * steps * L), 1 / second)


def fedgm_max_rate_partial(
    L: float, steps: int, etas: Sequence[float], W1: float, per_round: int, num_clients: int
) -> float:
    """Return the largest client rate of (Multistage) FedGM with m of n clients per round.

    eta_l <= 1 / (8 K L) and
    eta_l (C + L mean(eta) C + L^2 W1^2 C) S K <= min(m (n - 1) / (n (m - 1)), 17 m / 282).
    """
    mean, C = sum(etas) / len(etas), etas[0] / etas[-1]
    m, n = per_round, num_clients
    right = 17 * m / 282
    if m > 1:
        right = min(right, m * (n - 1) / (n * (m - 1)))
    return min(
        1 / (8 * steps * L),
        right / (C * (1 + L * mean + (L * W1) ** 2) * len(etas) * steps),
    )


def autonomous_max_rate(
    L: float, most_steps: int, etas: Sequence[float], delay: int, uniform_arrival: bool = True
) -> float:
    """Return the largest client rate of Autonomous FedGM.

    min(1 / (8 K_max L), 1 / (K_max L sqrt(120 C tau))), C = eta_1 / eta_S.

    Args:
        L: smoothness.
        most_steps: K_max.
        etas: server rate of each stage.
        delay: tau, the greatest; 0 drops the second bound.
        uniform_arrival: whether all clients are equally likely to arrive; 180 for 120 if not.
    """
    first = 1 / (8 * most_steps * L)
    if delay == 0:
        return first
    constant = 120 if uniform_arrival else 180
    return min(first, 1 / (most_steps * L * math.sqrt(constant * etas[0] / etas[-1] * delay)))


def visit_probability(probability: float, draws: int) -> float:
    """Return 1 - (1 - p)^draws: that a client is drawn at least once in so many draws.

    With the gamma N draws of a round it is the chance of taking part in it (FedCDR, appendix D).

    Args:
        probability: p of the client in one draw.
        draws: independent, with replacement.
    """
    return 1 - (1 - probability) ** draws


def expected_unseen(num_clients: int, per_round: int, rounds: int) -> float:
    """Return the expected number of clients never drawn, N (1 - 1/N)^(gamma N R), exactly.

    Args:
        num_clients: N.
        per_round: draws gamma N per round, uniform with replacement.
        rounds: R.
    """
    return num_clients * (1 - 1 / num_clients) ** (per_round * rounds)


def unseen_share(gamma: float, rounds: int) -> float:
    """Return e^(-gamma R), the share of clients never drawn, for many clients (FedCDR, Table 5).

    Never below :func:`expected_unseen` / N, and at most exp(gamma R / (2 (N - 1))) times as large.
    The paper prints N e^(-gamma R), rounded to the nearest whole number.

    Args:
        gamma: share of the clients drawn per round.
        rounds: R.
    """
    return math.exp(-gamma * rounds)


def visits_for_even_counts(deviation: float, confidence: float) -> float:
    """Return the visits per client gamma R that make counts even: 3 ln(2 / (1 - P)) / e^2.

    A Chernoff bound (FedCDR, Table 6): after so many expected visits, each client's own number of
    visits is within e of the mean, relatively, with probability P or more.

    Args:
        deviation: e in (0, 1].
        confidence: P in [0, 1).

    Raises:
        ValueError: a deviation or confidence outside these bounds.
    """
    if not 0 < deviation <= 1:
        raise ValueError(f"deviation = {deviation} is not allowed; must be in (0, 1]")
    if not 0 <= confidence < 1:
        raise ValueError(f"confidence = {confidence} is not allowed; must be in [0, 1)")
    return 3 * math.log(2 / (1 - confidence)) / deviation**2
