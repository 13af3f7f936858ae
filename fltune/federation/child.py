"""Child processes: programs of ours that answer messages for as long as their parent wants them.

They are programs of their own: not forked, which would break in a process that has threads, and not
started by ``multiprocessing``, which would run a script without a main guard once more.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from fltune.federation.allocation import environment
from fltune.garbage import OURS


class ChildLostError(Exception):
    """A child has ended before it answered; says how: ``with exit code 1``, ``by SIGKILL``."""


class Child:
    """A started program, and the connection to it; killed by :func:`end`, and gone with its parent.

    Starting takes seconds, in the background. The program finds modules where this process does.

    Args:
        module: of the program; its first argument is the descriptor of its end of the connection.
        arguments: the others.
        files: descriptors of open files that it is to have.
        variables: of its environment, besides this process's.
        silent: what it prints is nobody's.

    Attributes:
        process: the program's.
        connection: this end, to wait for.

    Raises:
        OSError: the system starts no more processes.
    """

    def __init__(
        self,
        module: str,
        *arguments: object,
        files: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
        silent: bool = False,
    ) -> None:
        self.connection, theirs = Pipe()
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        own = {"PYTHONPATH": path, OURS: "1"}
        heard = subprocess.DEVNULL if silent else None
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, (theirs.fileno(), *arguments))],
            env={**os.environ, **environment(), **(variables or {}), **own},
            pass_fds=[theirs.fileno(), *files],
            stdin=subprocess.DEVNULL,
            stdout=heard,
            stderr=heard,
        )
        theirs.close()  # else the end of the process would not be seen

    def send(self, message: Any) -> None:
        """Send a message, pickled.

        Raises:
            ChildLostError: the child has ended.
        """
        try:
            self.connection.send_bytes(pickle.dumps(message))
        except OSError:
            raise self._lost() from None

    def receive(self) -> Any:
        """Wait for the next answer.

        Raises:
            ChildLostError: the child has ended.
        """
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise self._lost() from None

    def _lost(self) -> ChildLostError:
        code = self.process.wait()
        return ChildLostError(
            f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        )


def end(children: Sequence[Child]) -> None:
    """Kill children, whatever they are at, and wait until they are gone."""
    for child in children:
        child.connection.close()
        child.process.kill()
    for child in children:
        child.process.wait()
