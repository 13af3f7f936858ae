"""FedJAX: its federated averaging with the ``jit`` backend; XLA uses all cores.

The library fills the last batch of a client with samples of a next epoch. Here it gets partial
batches, so that it makes the steps, and sees the samples, that all others do: a step is compiled
once for each size of batch, mostly in rounds that are not timed. The library's federated averaging
weighs clients by their samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

from peers.task import Session, Task

Parameters = Sequence[jax.Array]


class Counted(fedjax.ClientDataset):
    """A client's samples, epoch by epoch; counts the batches that it hands out."""

    steps: ClassVar[int] = 0
    samples: ClassVar[int] = 0

    def shuffle_repeat_batch(
        self, hparams: fedjax.ShuffleRepeatBatchHParams
    ) -> Iterator[Mapping[str, np.ndarray]]:
        """Yield shuffled batches; the last one of an epoch may be partial."""
        for _ in range(hparams.num_epochs):
            order = np.random.permutation(len(self))
            for start in range(0, len(order), hparams.batch_size):
                rows = order[start : start + hparams.batch_size]
                Counted.steps += 1
                Counted.samples += len(rows)
                yield {name: values[rows] for name, values in self.raw_examples.items()}


def to_jax(parameters: Sequence[np.ndarray], shape: Sequence[int]) -> list[np.ndarray]:
    """Return parameters for samples whose channels are last, as XLA convolves fastest on a CPU.

    Args:
        parameters: as :class:`Task` has them.
        shape: of one sample, with channels first.
    """
    converted = [p.transpose(2, 3, 1, 0) if p.ndim == 4 else p.T for p in parameters]
    if len(shape) == 3:
        first = next(i for i, p in enumerate(parameters) if p.ndim == 2)
        converted[first] = parameters[first].T[_last(parameters[first], parameters[first - 2])]
    return converted


def from_jax(
    parameters: Parameters, template: Sequence[np.ndarray], shape: Sequence[int]
) -> list[np.ndarray]:
    """Return what :func:`to_jax` would make these parameters of."""
    arrays = [np.asarray(p) for p in parameters]
    converted = [p.transpose(3, 2, 0, 1) if p.ndim == 4 else p.T for p in arrays]
    if len(shape) == 3:
        first = next(i for i, p in enumerate(template) if p.ndim == 2)
        order = np.argsort(_last(template[first], template[first - 2]))
        converted[first] = arrays[first][order].T
    return converted


def _last(linear: np.ndarray, convolution: np.ndarray) -> np.ndarray:
    """Return the channels-last order of the inputs of a linear map that follows a convolution."""
    channels = convolution.shape[0]
    return np.arange(linear.shape[1]).reshape(channels, -1).T.ravel()


def logits(parameters: Parameters, x: jax.Array) -> jax.Array:
    """Return [B, classes] for samples [B, features] or [B, H, W, C]."""
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    for weight, bias in layers:
        if weight.ndim == 4:
            x = jax.lax.conv_general_dilated(
                x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + bias)
            # a maximum over axes: the gradient of reduce_window takes three times as long on a CPU
            count, height, width, channels = x.shape
            x = x.reshape(count, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))
        else:
            x = x.reshape(len(x), -1) @ weight + bias
            x = x if weight is layers[-1][0] else jax.nn.relu(x)
    return x


def loss(parameters: Parameters, batch: Mapping[str, jax.Array], key: jax.Array) -> jax.Array:
    """Return the cross-entropy of each sample of a batch [B]."""
    scores = jax.nn.log_softmax(logits(parameters, batch["x"]))
    return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1)[:, 0]


def datasets(task: Task) -> list[Counted]:
    """Return the clients' data."""
    x = task.x.transpose(0, 2, 3, 1).copy() if task.x.ndim == 4 else task.x
    y = task.y.astype(np.int32)
    slices = map(task.rows, range(task.clients))
    return [Counted({"x": x[rows], "y": y[rows]}) for rows in slices]


def main() -> None:
    """Serve the parent's requests."""
    session = Session()
    task, shape = session.task, session.task.x.shape[1:]
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.grad(loss),
        fedjax.optimizers.sgd(task.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch_size, num_epochs=task.epochs),
    )
    state = algorithm.init([jnp.asarray(p) for p in to_jax(task.parameters, shape)])
    clients, key = datasets(task), jax.random.PRNGKey(0)
    session.start(
        lambda: from_jax(state.params, task.parameters, shape),
        lambda: (Counted.steps, Counted.samples),
        lambda: "jit, all cores",
    )
    for cohort in task.deal():
        key, *keys = jax.random.split(key, 1 + len(cohort))
        sampled = [(i, clients[i], k) for i, k in zip(cohort, keys, strict=True)]
        state, _ = algorithm.apply(state, sampled)
        jax.block_until_ready(state.params)
        session.round_ended()


if __name__ == "__main__":
    main()
