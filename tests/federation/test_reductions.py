"""Methods at the limits of their hyperparameters are other methods, most to the last bit."""

import pytest
import torch
from quadratics import A, B, fit, quadratics

from fltune.data.federated import FederatedData, Split
from fltune.federation import LocalSGD
from fltune.server.fedgm import FedAvgM, FedGM, FedNAG, FedSGD
from fltune.server.multistage import MultistageFedGM
from fltune.server.quasi_hyperbolic import NAG, SHB, RobustMomentum, TripleMomentum
from fltune.server.torch_optimizer import TorchServer

COHORTS = [[0, 1, 2], [0, 2], [1], [], [0, 1], [2], [0, 1, 2], [1, 2]]


def run(server, strategy="loop"):
    recorded, _ = fit(quadratics(A, B), server, x0=[1.0, -1.3], cohorts=COHORTS, strategy=strategy)
    return torch.stack(recorded.x)


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
@pytest.mark.parametrize("lr", [1.0, 0.7])
@pytest.mark.parametrize(
    "reduced",
    [
        lambda lr: FedGM(lr, beta=0.9, nu=0.0),
        lambda lr: FedGM(lr, beta=0.0, nu=0.9),
        lambda lr: FedGM(lr, beta=0.0, nu=1.0),
        lambda lr: FedAvgM(lr, beta=0.0),
        lambda lr: FedNAG(lr, beta=0.0),
        lambda lr: MultistageFedGM(lr, drop=1.0, beta=0.0),
        lambda lr: MultistageFedGM(lr, stages=1, nu=0.0),
    ],
    ids=["nu0", "beta0", "beta0_nu1", "fedavgm", "fednag", "one_rate", "one_stage"],
)
def test_reduces_to_fedavg_to_the_last_bit(reduced, lr, strategy):
    assert torch.equal(run(reduced(lr), strategy), run(FedSGD(lr), strategy))


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
def test_torch_sgd_with_rate_one_is_fedavg_to_the_last_bit(strategy):
    assert torch.equal(run(TorchServer(torch.optim.SGD, lr=1.0), strategy), run(FedSGD(), strategy))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FedSGD(0.7), TorchServer(torch.optim.SGD, lr=0.7)),
        (FedAvgM(0.5, 0.9), FedGM(0.5 / (1 - 0.9), 0.9, 1.0)),
        (FedAvgM(0.5, 0.9, dampening=True), FedGM(0.5, 0.9, 1.0)),
        (FedNAG(0.5, 0.9), FedGM(0.5 / (1 - 0.9), 0.9, 0.9)),
        (FedNAG(0.5, 0.9, dampening=True), FedGM(0.5, 0.9, 0.9)),
        (SHB(0.5, 0.9), FedAvgM(0.5, 0.9)),
        (NAG(0.5, 0.9), FedNAG(0.5, 0.9)),
        (FedAvgM(0.5, 0.9), TorchServer(torch.optim.SGD, lr=0.5, momentum=0.9)),
        (FedNAG(0.5, 0.9), TorchServer(torch.optim.SGD, lr=0.5, momentum=0.9, nesterov=True)),
        (TripleMomentum(5.0, 15.0), RobustMomentum(5.0, 15.0, rate=1 - 15**-0.5)),
    ],
    ids=lambda s: type(s).__name__,
)
def test_equal_up_to_rounding(one, other):
    """Their buffers are scaled differently, so rounding differs."""
    torch.testing.assert_close(run(one), run(other), rtol=1e-12, atol=1e-12)


def test_momentum_and_rate_change_the_run():
    """The equalities above hold between runs that do differ from one another."""
    servers = [FedSGD(), FedSGD(0.7), FedGM(), FedAvgM(), FedNAG(), MultistageFedGM()]
    ends = torch.stack([run(s)[-1] for s in servers])
    assert float(torch.pdist(ends).min()) > 1e-3


@pytest.mark.parametrize(
    "server",
    [
        FedGM(1.5, 0.9, 0.7),
        MultistageFedGM(lr=2.0, drop=0.5, stages=3, beta=0.6, nu=0.9),
        MultistageFedGM(lrs=[2.0, 1.5, 0.3], beta=0.8, nus=[0.9, 0.5, 0.95]),
    ],
    ids=["fedgm", "multistage", "own_nus"],
)
def test_z_moves_by_the_rate_times_d(server):
    """z_t = x_t - W1 d_t has z_{t+1} = z_t - eta_s D_t, also over the borders of stages."""
    x0 = torch.tensor([1.0, -1.3], dtype=torch.float64)
    recorded, _ = fit(quadratics(A, B), server, x0=x0.tolist(), cohorts=COHORTS)
    eta, beta, nu = server.coefficients(0)
    w1 = eta * beta * nu / (1 - beta)
    z = x0
    for t, (x, d, state) in enumerate(zip(recorded.x, recorded.d, recorded.state, strict=True)):
        if d is not None:
            z = z - server.learning_rate(t) * d
        torch.testing.assert_close(x - w1 * state["d"], z, rtol=1e-12, atol=1e-12)
    stages = getattr(server, "etas", [1])
    assert len({server.learning_rate(t) for t in range(len(COHORTS))}) == len(stages)


def against_torch_sgd(x, y, sgd, options, rounds, strategy):
    """One client, all rounds: (models of the round loop, models of torch.optim.SGD, last plan)."""
    split = Split(x.unsqueeze(1), y)
    data = FederatedData.from_clients(split, split, split, [torch.arange(len(x))], None)
    recorded, module = fit(data, rounds=rounds, sgd=sgd, strategy=strategy)
    w = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    expected = []
    for t in range(rounds):
        optimizer = torch.optim.SGD([w], lr=sgd.lr, **options)  # local momentum is new every round
        plan = module.trainer.datamodule.cohort(t, [0]).plan
        for index, count in zip(plan.index[:, 0], plan.count[:, 0], strict=True):
            batch = index[:count]
            optimizer.zero_grad()
            (0.5 * (x[batch] @ w - y[batch].squeeze(1)).square()).mean().backward()
            optimizer.step()
        expected.append(w.detach().clone())
    return torch.stack(recorded.x), torch.stack(expected), plan


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5}, {"weight_decay": 0.5}], ids=str)
def test_one_client_is_plain_sgd_to_the_last_bit_where_nothing_rounds(options, strategy):
    """Small whole data and rates that are powers of two: every float64 operation is exact."""
    torch.manual_seed(0)
    x, y = torch.randint(-2, 3, (8, 3)).double(), torch.randint(-2, 3, (8, 1)).double()
    sgd = LocalSGD(lr=0.25, epochs=1, batch_size=4, **options)
    found, expected, _ = against_torch_sgd(x, y, sgd, options, 2, strategy)
    assert torch.equal(found, expected)
    assert len(expected.unique()) > 4  # it moved, to numbers of its own


@pytest.mark.parametrize("strategy", ["loop", "stacked", "dense"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"weight_decay": 0.2}], ids=str)
def test_one_client_is_plain_sgd(options, strategy):
    """With rounding: the server moves x by x - y, and x - (x - y) is y up to the last bit."""
    torch.manual_seed(0)
    x, y = torch.randn(11, 3, dtype=torch.float64), torch.randn(11, 1, dtype=torch.float64)
    sgd = LocalSGD(lr=0.05, epochs=2, batch_size=4, **options)
    found, expected, plan = against_torch_sgd(x, y, sgd, options, 3, strategy)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert plan.count[:, 0].tolist() == [4, 4, 3] * 2
