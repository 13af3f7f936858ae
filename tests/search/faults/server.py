"""An MLflow server on this machine, that can be killed and started again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from night import PATIENCE, descendants, kill

from fltune.tracking import UI_ENVIRONMENT


class Server:
    """``mlflow server`` over a sqlite file; it listens after :meth:`start`.

    Args:
        folder: where its database and artifacts are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        argv = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
        argv += ["--port", str(self.port)]
        argv += ["--backend-store-uri", f"sqlite:///{self.folder / 'server.db'}"]
        argv += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                cwd=self.folder,
                env={**os.environ, **UI_ENVIRONMENT},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        late = time.monotonic() + PATIENCE
        while not self._answers():
            assert time.monotonic() < late, (self.folder / "server.log").read_text()
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.uri}/health", timeout=2) as answer:
                return answer.status == 200
        except (URLError, OSError):
            return False

    def kill(self) -> None:
        """Kill it and its worker."""
        if self._process is not None:
            for pid in [*descendants(self._process.pid), self._process.pid]:
                kill(pid)
            self._process.wait()
            self._process = None
