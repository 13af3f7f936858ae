"""A worker of a team: does its shares of cohorts until its parent is gone.

    python -m fltune.federation.parallel_worker CONNECTION SETTING SAMPLES ROUND

The arguments are descriptors of open files that :mod:`fltune.federation.parallel` passes on.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection

import torch

from fltune.data.federated import Split
from fltune.federation.batches import BatchPlan
from fltune.federation.bundles import ROWS, Work, put
from fltune.federation.flat import FlatNetwork
from fltune.federation.local import LocalProblem, LocalResult, LocalSGD, Losses
from fltune.federation.parallel import OUT, PROBLEM, Answer, Errand, Samples
from fltune.federation.shared import SharedMemory
from fltune.federation.strategies import STRATEGIES


class Helper:
    """What a worker knows: the setting of the run, and where tensors lie."""

    def __init__(
        self,
        setting: tuple[FlatNetwork, Losses, LocalSGD, int],
        samples: SharedMemory,
        round: SharedMemory,
    ) -> None:
        self.network, self.losses, self.sgd, threads = setting
        torch.set_num_threads(threads)  # as in the parent: digits may depend on it
        self.network.network.train()
        self.samples, self.round = samples, round
        self.data: Split | None = None

    @torch.no_grad()
    def do(self, message: Samples | Errand) -> bool:
        """Do what a message says; return whether an answer is waited for."""
        if isinstance(message, Samples):
            found = self.samples.tensors(message.layout)
            self.data = Split(found["x"], found["y"], message.augmentation)
            return False
        found = self.round.tensors(message.layout)
        problem = dict(message.problem)
        problem |= {k.removeprefix(PROBLEM): v for k, v in found.items() if k.startswith(PROBLEM)}
        assert self.data is not None
        work = Work(
            self.network,
            self.losses,
            self.data,
            LocalProblem(**problem),
            BatchPlan(found["index"], found["count"], found["steps"]),
            self.sgd,
            message.lr,
            found["keys"],
        )
        self.network.write_statistics(found["statistics"])
        rows = {name: found.get(OUT + name) for name in ROWS}
        whole = LocalResult(steps=found["steps"], **rows)  # type: ignore[arg-type]
        for places in message.share:
            clients = torch.tensor(places)
            put(whole, clients, STRATEGIES[message.strategy](*work.part(clients)))
        return True


def main(
    connection: Connection, setting: SharedMemory, samples: SharedMemory, round: SharedMemory
) -> None:
    """Do shares until the parent closes the connection, or is gone."""
    try:
        helper = Helper(pickle.loads(setting.stored()), samples, round)
        connection.send_bytes(pickle.dumps(Answer()))
        while True:
            if helper.do(pickle.loads(connection.recv_bytes())):
                connection.send_bytes(pickle.dumps(Answer()))
    except (EOFError, ConnectionError):
        return
    except Exception:
        connection.send_bytes(pickle.dumps(Answer(traceback.format_exc())))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then hangs up
    first, *files = map(int, sys.argv[1:])
    main(Connection(first), *map(SharedMemory, files))
