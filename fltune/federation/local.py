"""The one local solver: every method of the papers is local SGD on a corrected objective.

A local step of client i is

    g  = grad f_i(w; batch) + weight_decay * w + correction_i + mu * (w - anchor_i)
    w <- w - lr * momentum(g)

An algorithm states the :class:`LocalProblem` of a cohort; :class:`LocalSolver` solves all clients
together and owns all speed. How it does so is a strategy: ``loop`` (one client after another, the
readable reference), ``stacked`` (all clients as one batched computation), ``compiled`` (the same by
``torch.compile``) or ``dense`` (by hand, for chains of dense layers). They give the same numbers;
only the order of floating-point sums differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan
from fltune.federation.flat import FlatNetwork
from fltune.federation.schedules import Schedule
from fltune.parameters import Checked, parameter

if TYPE_CHECKING:  # it imports this module
    from fltune.federation.parallel import Team

Losses = Callable[[Tensor, Tensor], Tensor]
"""Per-sample losses [B] of outputs and targets."""


@dataclass(frozen=True)
class LocalSGD(Checked):
    """The clients' optimizer: SGD on mini-batches, its buffers new in every round.

    Raises:
        ValueError: a value outside its range, or both of ``epochs`` and ``steps``.
    """

    lr: float = parameter(0.1, "client learning rate of round 0", symbol="eta_l", gt=0)
    epochs: int | None = parameter(
        None,
        "passes over a client's own samples per round; 1 if steps is null too",
        symbol="E",
        ge=1,
    )
    steps: int | None = parameter(
        None,
        "mini-batch steps per round, instead of epochs; every round begins a new pass",
        symbol="K",
        ge=1,
    )
    batch_size: int | None = parameter(32, "samples per batch; null is the full batch", ge=1)
    momentum: float = parameter(0.0, "heavy-ball momentum, reset every round", ge=0, lt=1)
    weight_decay: float = parameter(0.0, "added to the gradient times w", ge=0)
    clip_norm: float | None = parameter(
        None,
        "longest gradient of a step, by its 2-norm, with all that a method adds to it; longer ones "
        "are shortened before momentum; null: none is",
        gt=0,
    )
    schedule: Schedule | None = parameter(None, "client learning rate over rounds; null: constant")
    batches: str = parameter(
        "shuffled",
        "shuffled: drawn anew in every pass; fixed: drawn once per client, every pass visits them "
        "in a new random order (shuffled SGD)",
        choices=("shuffled", "fixed"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and self.steps is not None:
            raise ValueError(
                f"epochs = {self.epochs} and steps = {self.steps} are both set; set one to null"
            )

    @property
    def unit(self) -> str:
        """``"epochs"`` or ``"steps"``."""
        return "epochs" if self.steps is None else "steps"

    @property
    def amount(self) -> int:
        """The nominal number of local epochs E or steps K."""
        return self.steps or self.epochs or 1

    def rate(self, round: int, rounds: int) -> float:
        """The client learning rate eta_l of 0-based round t of ``rounds``."""
        return self.lr if self.schedule is None else self.lr * self.schedule.factor(round, rounds)


@dataclass(frozen=True)
class LocalProblem:
    """What an algorithm asks of a cohort of C clients; vectors are shared [d] or per client [C, d].

    Attributes:
        start: where local steps begin.
        correction: added to every gradient (SCAFFOLD's c - c_i, FedGATE's -delta_i).
        mu: proximal weight, a number or a tensor [C, 1]; 0 switches the anchor off.
        anchor: the point that mu pulls toward.
        lr_scale: factor on the client learning rate (FedSUM's 1 / N), a number or [C, 1].
        momentum, weight_decay: instead of those of the clients' optimizer, a number or [C, 1].
        frozen: take all gradients at ``start`` while w moves (FedSUM-B).
        gradient_sum: also return the sum of the plain gradients, accumulated as they come; in
            float32 (start - end) / lr would cancel badly.
        start_gradient: also return the full gradient at ``start``, an extra pass over the data
            (SCAFFOLD I).
        exact: instead of steps, go to argmin f_i(w) + mu/2 |w - anchor|^2 where a closed form
            exists (:mod:`fltune.federation.exact`).
    """

    start: Tensor
    correction: Tensor | None = None
    mu: float | Tensor = 0.0
    anchor: Tensor | None = None
    lr_scale: float | Tensor = 1.0
    momentum: float | Tensor | None = None
    weight_decay: float | Tensor | None = None
    frozen: bool = False
    gradient_sum: bool = False
    start_gradient: bool = False
    exact: bool = False

    def remembers(self, sgd: LocalSGD) -> bool:
        """Whether any client has momentum, and needs a buffer."""
        momentum = chosen(self.momentum, sgd.momentum)
        return isinstance(momentum, Tensor) or momentum > 0


@dataclass(frozen=True)
class LocalResult:
    """What a cohort's local work led to.

    Attributes:
        end: [C, d], the clients' models y_i.
        loss: [C], mean batch loss over the local steps; 0 for a client without a step.
        steps: int64 [C], local steps K_i made.
        gradient_sum: [C, d], sum of the plain gradients (weight decay included) if asked for.
        start_gradient: [C, d], full gradient at the start (weight decay included) if asked for.
        statistics: [C, m], BatchNorm's running means and variances after the batches of the local
            steps, where the network keeps any; those it started with for a client without a step.
    """

    end: Tensor
    loss: Tensor
    steps: Tensor
    gradient_sum: Tensor | None = None
    start_gradient: Tensor | None = None
    statistics: Tensor | None = None


def chosen(own: float | Tensor | None, otherwise: float) -> float | Tensor:
    """Return a problem's own number, or the clients' optimizer's where it has none."""
    return otherwise if own is None else own


def rows(value: Any, clients: Any) -> Any:
    """Select clients of a per-client tensor [C, ...]; pass numbers, None and shared [d] on."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        return value
    if isinstance(clients, Tensor) and clients.dim() == 1:
        return value.index_select(0, clients)  # a third of the time of value[clients]
    return value[clients]


def shrinkage(norm: Tensor, most: float) -> Tensor:
    """Return the factors that make vectors of these norms no longer than ``most``."""
    return (most / norm).clamp(max=1.0)


@dataclass
class Steps:
    """The update rule above, on any leading shape: [d] in the loop, [C, d] when stacked.

    Attributes:
        lr, momentum, weight_decay: numbers, or tensors that broadcast against w.
        clip_norm: of what moves w, before momentum; None: any.
    """

    lr: float | Tensor
    momentum: float | Tensor
    weight_decay: float | Tensor
    correction: Tensor | None
    mu: float | Tensor
    anchor: Tensor | None
    clip_norm: float | None = None

    @classmethod
    def of(cls, problem: LocalProblem, sgd: LocalSGD, lr: float, clients: Any) -> Steps:
        """The rule for some clients of a problem (an index, a slice or an index tensor)."""
        free = not isinstance(problem.mu, Tensor) and problem.mu == 0
        return cls(
            lr=lr * rows(problem.lr_scale, clients),
            momentum=rows(chosen(problem.momentum, sgd.momentum), clients),
            weight_decay=rows(chosen(problem.weight_decay, sgd.weight_decay), clients),
            correction=rows(problem.correction, clients),
            mu=rows(problem.mu, clients),
            anchor=None if free else rows(problem.anchor, clients),
            clip_norm=sgd.clip_norm,
        )

    @property
    def bare(self) -> bool:
        """Whether a step is the plain gradient times one number."""
        numbers = not isinstance(self.lr, Tensor) and not isinstance(self.weight_decay, Tensor)
        added = self.correction is not None or self.anchor is not None
        return numbers and not self.weight_decay and not added and self.clip_norm is None

    def drift(self, w: Tensor) -> Tensor | None:
        """What is added to the plain gradient at w; None for nothing."""
        drift = self.correction
        if self.anchor is not None:
            pull = self.mu * (w - self.anchor)
            drift = pull if drift is None else drift + pull
        return drift

    def plain(self, gradient: Tensor, w: Tensor) -> Tensor:
        """The gradient of f_i with weight decay."""
        decay = self.weight_decay
        if isinstance(decay, Tensor):
            return gradient + decay * w
        return gradient.add(w, alpha=decay) if decay else gradient

    def whole(self, plain: Tensor, w: Tensor) -> Tensor:
        """The plain gradient with all that is added to it."""
        g = plain
        if self.correction is not None:
            g = g + self.correction
        if self.anchor is not None:
            g = g + self.mu * (w - self.anchor)
        return g

    def apply(self, w: Tensor, plain: Tensor, velocity: Tensor | None) -> None:
        """Move w by one step, in place; ``velocity`` is the momentum buffer, also in place."""
        g = self.whole(plain, w)
        if self.clip_norm is not None:
            g = g * shrinkage(torch.linalg.vector_norm(g, dim=-1, keepdim=True), self.clip_norm)
        self.advance(w, g, velocity)

    def advance(self, w: Tensor, g: Tensor, velocity: Tensor | None) -> None:
        """Move w by a gradient that is whole, and clipped where it is to be."""
        if velocity is not None:
            g = velocity.mul_(self.momentum).add_(g)
        if isinstance(self.lr, Tensor):
            w.sub_(self.lr * g)
        else:
            w.sub_(g, alpha=self.lr)


Strategy = Callable[
    [FlatNetwork, Losses, Split, LocalProblem, BatchPlan, LocalSGD, float, Tensor], LocalResult
]


class LocalSolver:
    """Solves the local problems of a cohort.

    Args:
        network: the model, as a function of a flat vector.
        losses: per-sample losses [B] of (output, target).
        sgd: the clients' optimizer.
        strategy: ``"loop"``, ``"stacked"``, ``"dense"``, ``"compiled"``, ``"auto"`` or
            ``"fastest"`` (:mod:`fltune.federation.strategies`).

    Attributes:
        strategy: the one in use; ``auto`` or ``fastest`` until the first local work, where that
            decides.
        timings: seconds of each candidate for that work, where it was timed.
        team: the processes that share the work, where there are several.

    Raises:
        ValueError: an unknown strategy, or one that the network or its precision does not allow.
    """

    def __init__(
        self, network: FlatNetwork, losses: Losses, sgd: LocalSGD, strategy: str = "auto"
    ) -> None:
        from fltune.federation.strategies import AUTO, FASTEST, check_strategy, choose_strategy

        model = (network.network, losses, network.precision)
        if strategy == AUTO:
            strategy = choose_strategy(*model)
        elif strategy != FASTEST:
            check_strategy(strategy, *model)
        self.strategy = strategy
        self._by_cohort = strategy == AUTO
        self.timings: dict[str, float] = {}
        self.team: Team | None = None
        self.network = network
        self.losses = losses
        self.sgd = sgd

    def settle(self, strategy: str) -> None:
        """Take a strategy in place of a choice that is still open."""
        self.strategy, self._by_cohort = strategy, False

    def solve(
        self,
        problem: LocalProblem,
        data: Split,
        plan: BatchPlan,
        lr: float,
        keys: Tensor,
        full: BatchPlan | None = None,
    ) -> LocalResult:
        """Run the local work of all clients of a cohort.

        Args:
            problem: the algorithm's corrections, anchors and starts.
            data: the training samples that ``plan`` indexes.
            plan: the batches of C clients.
            lr: client learning rate eta_l of this round.
            keys: int64 [C], the clients' randomness of this round.
            full: one full batch of each client, for ``start_gradient`` and ``exact``.

        Raises:
            ValueError: mu without an anchor, or an exact solution that has no closed form.
        """
        from fltune.federation.exact import solve_exact
        from fltune.federation.strategies import choose_by_cohort

        if problem.anchor is None and (isinstance(problem.mu, Tensor) or problem.mu != 0):
            raise ValueError(f"mu = {problem.mu} needs an anchor, the point that it pulls toward")
        if problem.exact:
            assert full is not None
            return solve_exact(self.network, self.losses, data, problem, full, self.sgd)
        if self._by_cohort:
            self.strategy = choose_by_cohort(self.network.flops(data.x), plan)
        result = self._steps(problem, data, plan, lr, keys)
        if not problem.start_gradient:
            return result
        assert full is not None
        # BatchNorm takes its batch's statistics here too, but this pass leaves no trace in them
        decay = problem.weight_decay
        at_start = LocalProblem(problem.start, weight_decay=decay, frozen=True, gradient_sum=True)
        gradient = self._steps(at_start, data, full, lr, keys).gradient_sum
        return replace(result, start_gradient=gradient)

    def _steps(
        self, problem: LocalProblem, data: Split, plan: BatchPlan, lr: float, keys: Tensor
    ) -> LocalResult:
        from fltune.federation.bundles import Work, solve_bundles
        from fltune.federation.strategies import FASTEST, time_strategies

        work = Work(self.network, self.losses, data, problem, plan, self.sgd, lr, keys)
        network = self.network.network
        training = network.training
        if not all(module.training for module in network.modules()):  # setting it is slow
            network.train()
        try:
            device = problem.start.device
            own = [device] if device.type == "cuda" else []
            # "dense" draws from no global generator
            with torch.random.fork_rng(own, enabled=self.strategy != "dense"):
                if self.strategy == FASTEST:
                    self.timings = time_strategies(work)
                    self.strategy = min(self.timings, key=self.timings.__getitem__)
                if self.team is not None:
                    return self.team.solve(self.strategy, work)
                return solve_bundles(self.strategy, work)
        finally:
            if not training:
                network.eval()
