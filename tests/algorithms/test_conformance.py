"""What every registered algorithm must do, whatever it is: one that is added joins by itself."""

import gc

import lightning as L
import pytest
import torch
from any_method import (
    CASES,
    CLIENTS,
    COHORTS,
    DIMENSION,
    SIZES,
    STEPS,
    Run,
    Shuffled,
    case,
    every,
    rows,
    same,
)

from fltune.algorithms import ALGORITHMS
from fltune.data.federated import FederatedData
from fltune.federation import FederatedDataModule, LocalSGD
from fltune.federation.compression import TopK
from fltune.federation.datamodule import TOGETHER
from fltune.participation.full import Full
from fltune.participation.uniform import Uniform

FIRST_EMPTY = COHORTS.index([])


def test_the_table_names_methods_that_there_are():
    assert set(CASES) <= set(ALGORITHMS)


# rounds of every shape


@every
def test_an_empty_round(name):
    """Nobody pays, no client's state moves; neither does the server, unless the method says so."""
    run = Run(name).fit()
    kept, t = run.recorded, FIRST_EMPTY
    assert kept.bits[t] == kept.bits[t - 1]
    same(kept.clients[t], kept.clients[t - 1])
    if not run.algorithm.acts_on_empty_rounds:
        same(kept.server[t], kept.server[t - 1])
        assert kept.d[t] is None
    if kept.d[t] is None:
        same(kept.x[t], kept.x[t - 1])
        same(kept.state[t], kept.state[t - 1])
    assert run.x.isfinite().all()


@every
def test_the_first_round_may_be_empty(name):
    run = Run(name, [[], [1, 3], [0, 1]]).fit()
    assert not run.recorded.x[0].any()
    assert run.recorded.bits[0] == (0, 0)
    assert run.x.isfinite().all()
    assert run.improves()


@every
def test_one_client_in_a_round_or_at_all(name):
    alone = Run(name, [[3], [1], [3], [5]]).fit()
    assert alone.improves()
    only = Run(name, [[0]] * 8, data=rows([4]), steps=[2]).fit()
    assert only.improves()
    assert only.module.client_state.seen == (1 if only.module.client_state.template else 0)


@every
def test_all_clients(name):
    everyone = list(range(CLIENTS))
    full = Run(name, Full(), rounds=12).fit()
    assert full.improves()
    same(full.end, Run(name, [everyone] * 12).fit().end)
    same(full.end, Run(name, Uniform(CLIENTS), rounds=12).fit().end)


@every
@pytest.mark.parametrize("unit", ["steps", "epochs"])
def test_uneven_clients(name, unit):
    """Both strategies agree where clients have uneven sizes and make uneven numbers of steps."""
    sgd = LocalSGD(lr=0.02, batch_size=2, momentum=0.3, weight_decay=0.01, **{unit: 2})
    loop, stacked = (Run(name, sgd=sgd, strategy=s).fit() for s in ("loop", "stacked"))
    plan = loop.source.cohort(0, list(range(CLIENTS))).plan
    passes = [2 * -(n // -2) for n in SIZES]
    assert plan.steps.tolist() == (STEPS if unit == "steps" else passes)
    same(stacked.x, loop.x, 1e-12)
    same(stacked.recorded.clients, loop.recorded.clients, 1e-12)
    assert loop.improves()


# numbers depend on the seed alone


@every
@pytest.mark.parametrize("strategy", ["stacked", "dense"])
def test_every_strategy_is_the_loop(name, strategy):
    loop, other = (Run(name, strategy=s).fit() for s in ("loop", strategy))
    same(other.x, loop.x, 1e-12)
    same(other.recorded.server, loop.recorded.server, 1e-12)
    same(other.recorded.clients, loop.recorded.clients, 1e-12)
    assert other.recorded.bits == loop.recorded.bits


@every
def test_the_same_seed_gives_the_same_numbers(name):
    one, two = (Run(name, Uniform(3), rounds=5).fit() for _ in range(2))
    same(one.end, two.end)
    same(one.x, two.x)
    other = Run(name, Uniform(3), rounds=5, seed=4).fit()
    assert not torch.equal(one.x, other.x)


@every
def test_processing_order_does_not_matter(name):
    ordered, reversed_ = (Run(name, source=s).fit() for s in (FederatedDataModule, Shuffled))
    same(ordered.x, reversed_.x, 1e-12)
    same(ordered.recorded.server, reversed_.recorded.server, 1e-12)
    same(ordered.recorded.clients, reversed_.recorded.clients, 1e-12)


@every
def test_client_ids_are_names(name):
    """Clients numbered backwards give the same model where no random number hangs on an id."""
    last, plain = CLIENTS - 1, {"delays": None, "sgd": LocalSGD(lr=0.03, steps=2, batch_size=None)}
    if case(name).random:
        plain["compressor"] = TopK(k=3)
    data = rows()
    held = [data.client(last - i) for i in range(CLIENTS)]
    backwards = FederatedData.from_clients(data.train, data.val, data.test, held, None)
    mirrored = [sorted(last - i for i in cohort) for cohort in COHORTS]
    one = Run(name, **plain).fit()
    two = Run(name, mirrored, data=backwards, steps=STEPS[::-1], **plain).fit()
    same(one.x, two.x, 1e-12)
    for here, there in zip(one.recorded.clients, two.recorded.clients, strict=True):
        same(here, {key: value.flip(0) for key, value in there.items()}, 1e-12)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_resumed_run_equals_the_uninterrupted_one(name, dtype, tmp_path):
    path = tmp_path / "run.ckpt"
    whole = Run(name, dtype=dtype).fit()
    Run(name, dtype=dtype, path=path).fit(until=4)
    resumed = Run(name, dtype=dtype, path=path).fit(resume_from=path)
    same(resumed.end, whole.end)
    assert len(resumed.recorded.x) == len(COHORTS) - 4


# who pays, who keeps what


@every
def test_communication_is_what_was_declared(name):
    run = Run(name).fit()
    algorithm, wire = run.algorithm, run.module.compressor
    bits_down = algorithm.bits_down(DIMENSION, wire)
    bits_up = algorithm.bits_up(DIMENSION, wire)
    assert bits_down == 32 * algorithm.down * DIMENSION
    compressed = len(algorithm.compressed)
    vectors = 32 * (algorithm.up - compressed) * DIMENSION + compressed * wire.bits(DIMENSION)
    assert 0 <= bits_up - vectors <= 32 * 3  # a few single numbers besides
    visits = 0
    for cohort, bits in zip(COHORTS, run.recorded.bits, strict=True):
        visits += len(cohort)
        assert bits == pytest.approx((visits * bits_down, visits * bits_up), rel=1e-12)


@every
def test_absent_clients_keep_their_state_bit_for_bit(name):
    run = Run(name).fit()
    before = run.module.client_state.template
    before = {key: value.expand(CLIENTS, *value.shape) for key, value in before.items()}
    for cohort, after in zip(COHORTS, run.recorded.clients, strict=True):
        absent = [i for i in range(CLIENTS) if i not in cohort]
        for key, value in after.items():
            assert torch.equal(value[absent], before[key][absent])
        before = after


class Weigh(L.Callback):
    """Notes after some rounds how many numbers live in tensors that anybody still refers to."""

    def __init__(self, *rounds):
        self.rounds, self.held = rounds, []

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.current_epoch + 1 in self.rounds:
            gc.collect()
            kept = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
            self.held.append(sum(t.numel() for t in kept))


@every
def test_memory_does_not_grow(name):
    """193 rounds hold what 17 do: as many clients have been seen, and none is planned ahead."""
    weigh = Weigh(1 + 2 * TOGETHER, 1 + 24 * TOGETHER)
    sgd = LocalSGD(lr=0.03, steps=1, batch_size=2)
    cohorts, steps = [[1, 4], [2], [], [1]], [1] * CLIENTS
    run = Run(name, cohorts, rounds=200, steps=steps, sgd=sgd, strategy="loop", keep=False)
    run.callbacks.append(weigh)
    run.fit()
    state = run.module.client_state
    assert state.seen == (3 if state.template else 0)
    shapes = {key: value.shape for key, value in run.module.server_state.items()}
    initial = run.algorithm.server_state(run.module.x, CLIENTS)
    assert shapes == {key: value.shape for key, value in initial.items()}
    few, many = weigh.held
    assert few == many
