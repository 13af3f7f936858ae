"""Where the libraries live: an environment for each, made when it is first asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path


class NotInstalledError(Exception):
    """A library cannot be had here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """A library to compare with.

    Attributes:
        name: as its authors write it.
        module: of ``benchmarks/peers`` that drives it.
        requires: what to install, with versions.
        threads: torch threads to try, the fastest counts; None where the library sees to it.
        borrows: it runs on fltune's own PyTorch, which its environment sees behind its own
            packages: one build for all, and no second copy of it.
    """

    name: str
    module: str
    requires: tuple[str, ...]
    threads: tuple[int | None, ...] = (1, 2)
    borrows: bool = True

    @property
    def version(self) -> str:
        """The library's version."""
        return self.requires[0].split("==")[1]


PEERS = (
    Peer("Flower", "flower", ("flwr[simulation]==1.42.0",), threads=(1,)),
    Peer("pfl-research", "pfl", ("pfl[pytorch]==0.6.0",)),
    Peer("fluke", "fluke", ("fluke-fl==0.8.1",)),
    Peer("FedLab", "fedlab", ("fedlab==1.3.0",)),
    Peer(
        *("FedJAX", "fedjax"),
        ("fedjax==0.0.17", "jax==0.4.38", "jaxlib==0.4.38"),
        threads=(None,),
        borrows=False,
    ),
)


def default_folder() -> Path:
    """Return the user's cache folder for the environments."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fltune-peers"


def python_of(folder: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install(peer: Peer, folder: Path) -> Path:
    """Make a library's environment, unless it is there; return its Python.

    Args:
        peer: the library.
        folder: of all environments.

    Raises:
        NotInstalledError: with the reason that pip gives.
    """
    home = folder / peer.module
    stamp = home / "installed.json"
    wanted = json.dumps([sys.version, peer.borrows, *peer.requires])
    if stamp.exists() and stamp.read_text() == wanted:
        return python_of(home)
    venv.EnvBuilder(clear=True, with_pip=True).create(home)
    if peer.borrows:
        lend(home)
    command = [python_of(home), "-m", "pip", "install", "--quiet", "--no-input", *peer.requires]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotInstalledError(reason(done.stderr))
    stamp.write_text(wanted)
    return python_of(home)


def lend(home: Path) -> None:
    """Let an environment see the packages of this interpreter, behind its own."""
    base = {"base": str(home), "platbase": str(home)}
    site = Path(sysconfig.get_path("purelib", scheme="venv", vars=base))
    own = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site / "borrowed.pth").write_text("\n".join(own) + "\n")


def reason(errors: str) -> str:
    """Return the line of pip's errors that says most, cut to a sentence's length."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("ERROR:")] or lines or ["pip said nothing"]
    return said[-1].removeprefix("ERROR:").strip()[:200]
