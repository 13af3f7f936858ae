"""A process that times configs, as a worker of a search would run them.

    python -m fltune.search.timing_worker CONNECTION CPUS

The first argument is the descriptor of an open file that :mod:`fltune.search.timing` passes on.
"""

from __future__ import annotations

import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fltune.errors import FltuneError, RunFailedError
from fltune.experiment import Experiment
from fltune.runner import use_threads
from fltune.search.probe import Probe
from fltune.search.timing import Answer, Memory, Question


def main(connection: Connection) -> None:
    """Answer questions until the parent closes the connection, or is gone."""
    imports = time.process_time()
    try:
        while True:
            raw, pack, long = pickle.loads(connection.recv_bytes())
            answer = answer_one(raw, pack, long, imports)
            connection.send_bytes(pickle.dumps(answer))
    except (EOFError, ConnectionError):
        return


def answer_one(raw: Mapping[str, Any], pack: int, long: float, imports: float) -> Answer:
    """Time a config; what it raises is an answer too."""
    found: Probe | Exception
    try:
        found = Question(Experiment.parse(raw), pack).answer(long)
    except FltuneError as error:
        found = error
    except Exception:
        text = traceback.format_exc()
        found = RunFailedError(f"timing a config of the plan failed:\n{text}")
    return Answer(found, memory(), imports)


def memory() -> Memory:
    """Return the most memory that this process has needed so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    shared = sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssFile"))
    return Memory(peak - shared, shared)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then hangs up
    use_threads(float(sys.argv[2]))
    main(Connection(int(sys.argv[1])))
