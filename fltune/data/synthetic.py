"""Synthetic(alpha, beta): clients with classifiers and inputs of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.data.partition import Floats, Ints, lognormal_sizes
from fltune.parameters import parameter
from fltune.randomness import derive_seed

FEATURES = 60
CLASSES = 10


@dataclass(frozen=True)
class Form:
    """What the two papers' generators differ in.

    Attributes:
        base_scale: standard deviation of the entries of the classifier that clients share.
        mu, sigma, add, clip: sizes; see :func:`fltune.data.partition.lognormal_sizes`.
    """

    base_scale: float
    mu: float
    sigma: float
    add: int
    clip: int | None


FORMS = {
    "fedprox": Form(base_scale=0.0, mu=4.0, sigma=2.0, add=50, clip=None),
    "fedcdr": Form(base_scale=1.0, mu=2.0, sigma=2.0, add=10, clip=50),
}


@dataclass(frozen=True)
class Synthetic(Dataset):
    """Synthetic(alpha, beta): 60 features, 10 classes; every client has its own model and inputs.

    Li et al., "Federated Optimization in Heterogeneous Networks" (2020, FedProx, section 5.1), as
    in the authors' program, where alpha and beta are standard deviations (the paper writes them as
    variances). For client k::

        y = argmax(W_k x + b_k),   W_k = W + Normal(u_k, 1),   b_k = b + Normal(u_k, 1)
        x ~ Normal(v_k, diag(j^-1.2)),   v_k ~ Normal(B_k, 1),   j = 1..60
        u_k ~ Normal(0, alpha),   B_k ~ Normal(0, beta),   W, b ~ Normal(0, base_scale)

    ``fedprox`` has no shared W, b and floor(LogNormal(4, 2)) + 50 samples per client. ``fedcdr``
    (anonymous submission, appendix G.1.1) shares them; their scale is a choice, as the paper gives
    none. A client has min(floor(LogNormal(2, 2)) + 10, 50) samples, 24.4 on average. The last tenth
    of every client's samples, rounded up, is the pooled test set.

    Synthetic(0, 0) is not homogeneous: W_k and v_k still differ by client. ``iid`` is: all clients
    have one W_k, b_k (with u = 0) and v = 0, whatever alpha and beta. Nor does alpha matter
    otherwise: u_k adds u_k (1 + sum_j x_j) to every class alike, and the argmax stays. What grows
    from (0, 0) to (5, 5) is the spread of the inputs, beta. It is kept as the papers have it.

    ``x`` is float32 ``[n, 60]``. Client k is the same however many clients there are. Partition
    ``natural``, the default, gives each client its own samples.
    """

    default_partition: ClassVar[str] = "natural"

    form: str = parameter("fedcdr", "whose generator", choices=tuple(FORMS))
    alpha: float = parameter(
        1.0, "spread of the clients' models (standard deviation)", symbol="alpha", ge=0, lt=math.inf
    )
    beta: float = parameter(
        1.0, "spread of the clients' inputs (standard deviation)", symbol="beta", ge=0, lt=math.inf
    )
    base_scale: float | None = parameter(
        None, "spread of the shared W, b; null: 0 for fedprox, 1 for fedcdr", ge=0, lt=math.inf
    )
    iid: bool = parameter(False, "all clients have one model and the same distribution of inputs")
    seed: int = parameter(0, "of the samples; the same for all runs of a comparison", ge=0)
    num_clients: int = 30  # given: data.clients

    def load(self) -> RawData:
        """Generate the samples of all clients."""
        scale = FORMS[self.form].base_scale if self.base_scale is None else self.base_scale
        rng = np.random.default_rng(derive_seed(self.seed, "synthetic", "base"))
        base = scale * rng.standard_normal((CLASSES, FEATURES + 1))
        common = base + rng.standard_normal(base.shape) if self.iid else None
        held = [self._client(k, base, common) for k in range(self.num_clients)]
        sizes = np.array([len(y) for _, y in held])
        x = torch.from_numpy(np.concatenate([x for x, _ in held]))
        y = torch.from_numpy(np.concatenate([y for _, y in held]))
        client = torch.arange(self.num_clients).repeat_interleave(torch.from_numpy(sizes))
        rank = np.concatenate([np.arange(size) for size in sizes])
        train = torch.from_numpy(rank < (9 * sizes // 10).repeat(sizes))  # integers: no rounding
        return RawData(
            Split(x[train], y[train]), Split(x[~train], y[~train]), CLASSES, client[train]
        )

    def _client(
        self, k: int, base: Floats, common: Floats | None
    ) -> tuple[NDArray[np.float32], Ints]:
        """Return inputs ``[n_k, 60]`` and class ids ``[n_k]`` of one client."""
        rng = np.random.default_rng(derive_seed(self.seed, "synthetic", k))
        form = FORMS[self.form]
        normal = rng.standard_normal(1)
        (size,) = lognormal_sizes(normal, form.mu, form.sigma, form.add, form.clip)
        u, centre = rng.normal(0, self.alpha), rng.normal(0, self.beta)
        model = base + rng.normal(u, 1, base.shape)
        v: NDArray[np.float64] = rng.normal(centre, 1, FEATURES)
        if common is not None:
            model, v = common, np.zeros(FEATURES)
        spread = np.arange(1, FEATURES + 1) ** -0.6  # the square root of a variance j^-1.2
        x = v + spread * rng.standard_normal((size, FEATURES))
        return x.astype(np.float32), (x @ model[:, :-1].T + model[:, -1]).argmax(1)
