"""The contract of a federated algorithm.

An algorithm is a frozen dataclass of hyperparameters with pure functions of explicit state, written
on flat vectors: server tensors [d], cohort tensors [C, d]. It never loops over clients. One round:

    sampler -> cohort
    local_problem   what each client minimises, from where         -> the local solver
    uplink          what each client sends, and its new state
    aggregate       the pseudo-gradient D and the new server state -> the server optimizer moves x
    downlink        what clients do after the server's step (optional)

A whole algorithm, FedProx (Li et al. 2020), from outside the package:

    >>> @dataclass(frozen=True)
    ... class Prox(Algorithm):
    ...     mu: float = parameter(0.1, "proximal weight; 0 is FedAvg", symbol="mu", ge=0)
    ...
    ...     def local_problem(self, x, server, client, info):
    ...         return LocalProblem(start=x, mu=self.mu, anchor=x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fltune.errors import ConfigError
from fltune.federation.compression import BITS_PER_FLOAT, Compressor
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD
from fltune.parameters import Checked, parameter
from fltune.randomness import derive_seed

State = dict[str, Tensor]
"""Named tensors: server state ([d], [N], rows of [d]), or the rows of a cohort ([C, d] or [C])."""


@dataclass(frozen=True)
class RoundInfo:
    """What every client and the server may know in a round.

    Attributes:
        round: 0-based t.
        rounds: T, all rounds of the run.
        num_clients: N, all clients.
        clients: int64 [C], the cohort S_t in ascending order.
        weights: [C], aggregation weights p_i that sum to 1 (empty in an empty round).
        client_lr: eta_l of this round.
        server_lr: eta_g of this round.
        sgd: the clients' optimizer.
        nominal_steps: K of the run, the same in all rounds: the local steps in steps mode; in
            epochs mode the mean over all clients of E ceil(n_i / B).
        steps: int64 [C], the local steps K_i that each client is to make.
        delays: int64 [C], the age in rounds of the model that each client is to start from.
        compressor: of the run, for a downlink that is compressed too.
        seed: root of the server's randomness.
    """

    round: int
    rounds: int
    num_clients: int
    clients: Tensor
    weights: Tensor
    client_lr: float
    server_lr: float
    sgd: LocalSGD
    nominal_steps: float
    steps: Tensor
    delays: Tensor
    compressor: Compressor
    seed: int

    @property
    def key(self) -> Tensor:
        """int64 scalar, the server's randomness of this round."""
        drawn = derive_seed(self.seed, "server", self.round)
        return torch.tensor(drawn, device=self.clients.device)


def uniform_only() -> Any:
    """Declare ``weighting`` for a method whose memory of all clients counts each of them alike."""
    return parameter(
        "uniform",
        "aggregation weights: the method minimises the plain mean of the clients' losses",
        symbol="p_i",
        choices=("uniform",),
    )


@dataclass(frozen=True)
class Algorithm(Checked):
    """Base of all algorithms; the defaults are those of FedAvg.

    Inactive clients keep their state bit for bit. In an empty round nothing moves, unless
    ``acts_on_empty_rounds``.

    Attributes:
        down, up: floats sent to and by each active client, in multiples of d.
        acts_on_empty_rounds: whether :meth:`aggregate` is called in an empty round, with an empty
            message.
        compressed: names of the message's entries that the run's compressor works on.
        plain_server: whether the method defines the whole server step, so that any other server
            optimizer than plain averaging (``fedavg``) would change it.
        fewest_clients: per round, below which the method is not what it claims to be.
        any_server: whether papers combine the method with server momentum or adaptive servers; a
            combination that none defines is named.
        memory: persistent vectors of the server (the model included) and of each client, in words.
        paper: authors, year, and the algorithm's number there.
    """

    weighting: str = parameter(
        "uniform",
        "aggregation weights: uniform 1/|S|, or by sample counts n_i",
        symbol="p_i",
        choices=("uniform", "samples"),
    )

    paper: ClassVar[str] = ""
    down: ClassVar[float] = 1.0
    up: ClassVar[float] = 1.0
    acts_on_empty_rounds: ClassVar[bool] = False
    compressed: ClassVar[tuple[str, ...]] = ("update",)
    plain_server: ClassVar[bool] = False
    any_server: ClassVar[bool] = False
    fewest_clients: ClassVar[int] = 1
    memory: ClassVar[str] = "server d, client 0"

    def server_state(self, x: Tensor, num_clients: int) -> State:
        """Return the server's vectors before round 0, besides the model x [d]."""
        return {}

    def client_state(self, x: Tensor) -> State:
        """Return the state of a client that has not taken part yet; x [d] is the initial model."""
        return {}

    @property
    def solves_exactly(self) -> bool:
        """Whether clients solve their problem in closed form, which few models have."""
        return False

    def oldest_start(self) -> int:
        """Return the age in rounds of the oldest model that a client may start from."""
        return 0

    def initial_problem(self, x: Tensor) -> LocalProblem | None:
        """Return a problem that all clients solve before round 0; None (the default) for none."""
        return None

    def initialise(
        self, x: Tensor, result: LocalResult, info: RoundInfo
    ) -> tuple[Tensor, State, State]:
        """Return model, server state and all clients' state, from the initial problem's result."""
        raise NotImplementedError

    def check(self, compressor: Compressor) -> None:
        """Raise ValueError if the method cannot work with this compressor."""

    def warnings(self, sgd: LocalSGD) -> list[str]:
        """Return what a user should know before running this method so, a sentence each."""
        return []

    def local_problem(
        self, x: Tensor, server: State, client: State, info: RoundInfo
    ) -> LocalProblem:
        """Return what the cohort's clients minimise, and from where."""
        return LocalProblem(start=x)

    def uplink(
        self, x: Tensor, server: State, client: State, result: LocalResult, info: RoundInfo
    ) -> tuple[State, State]:
        """Return what each client sends (rows [C, ...]) and the clients' new state."""
        return {"update": x - result.end}, client

    def aggregate(
        self, x: Tensor, server: State, message: State, info: RoundInfo
    ) -> tuple[Tensor | None, State]:
        """Return the pseudo-gradient D [d], a descent direction, and the new server state.

        None instead of D means that the server optimizer makes no step: D = 0 would still move its
        momentum.
        """
        return weighted_sum(info.weights, message["update"]), server

    def downlink(
        self,
        x: Tensor,
        server: State,
        client: State,
        message: State,
        d: Tensor | None,
        info: RoundInfo,
    ) -> State:
        """Return the clients' state after the server's step.

        Args:
            x: the model after the server's step.
            server: the new server state.
            client: the clients' state as :meth:`uplink` left it.
            message: what the clients sent, as the server received it.
            d: the pseudo-gradient; None where the server made no step.
            info: the round.
        """
        return client

    def bits_down(self, dimension: int, compressor: Compressor) -> float:
        """Bits sent to each active client: uncompressed, unless a method says otherwise."""
        return BITS_PER_FLOAT * self.down * dimension

    def bits_up(self, dimension: int, compressor: Compressor) -> float:
        """Bits sent by each active client: compressed vectors as the compressor counts them."""
        plain = BITS_PER_FLOAT * (self.up - len(self.compressed)) * dimension
        return plain + len(self.compressed) * compressor.bits(dimension)


def mean_gradient(result: LocalResult) -> Tensor:
    """Return each client's mean plain gradient over its own K_i steps, [C, d].

    Raises:
        ConfigError: the local problem did not ask for it.
    """
    if result.gradient_sum is None:
        raise ConfigError("algorithm: mean_gradient needs LocalProblem(..., gradient_sum=True)")
    return result.gradient_sum / result.steps.clamp(min=1).unsqueeze(1)


def weighted_sum(weights: Tensor, vectors: Tensor) -> Tensor:
    """Return sum_i weights_i vectors_i: [C], [C, d] -> [d]."""
    return torch.mv(vectors.T, weights)
