"""A pretended accelerator: builds and registers ``pretended.cpp``, and watches what crosses over.

For a process of its own: what torch has once been told of a device stays.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import traceback
import types
from collections import Counter
from pathlib import Path

import lightning as L
import torch
from filelock import FileLock
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.cpp_extension import include_paths, library_paths

SOURCE = Path(__file__).with_name("pretended.cpp")
COMPILER = shutil.which("c++")


def library() -> Path:
    """Compile the device, unless it is there for this torch; return the library."""
    known = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"fltune-pretended-{known}.so"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            half = made.with_suffix(".half")
            paths = [f"-I{p}" for p in include_paths()] + [f"-L{p}" for p in library_paths()]
            options = ["-O0", "-shared", "-fPIC", "-std=c++20", *paths]
            command = [COMPILER, *options, SOURCE, "-o", half, "-ltorch_cpu", "-lc10"]
            subprocess.run(command, check=True)
            half.rename(made)
    return made


def register() -> torch.device:
    """Tell torch of the device; return it."""
    torch.utils.rename_privateuse1_backend("pretended")
    torch.ops.load_library(library())
    module = types.ModuleType("pretended")
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    torch._register_device_module("pretended", module)
    return torch.device("pretended:0")


class Pretended(CPUAccelerator):
    """What Lightning sees of it."""

    def setup_device(self, device):
        """Accept it: Lightning's own check wants a CPU."""


def trains_there(monkeypatch, device):
    """Let Lightning's trainers train on a device, whatever they are told."""
    own = L.Trainer.__init__

    def init(self, *args, **options):
        there = SingleDeviceStrategy(device=device, accelerator=Pretended())
        own(self, *args, **{**options, "accelerator": "auto", "strategy": there})

    monkeypatch.setattr(L.Trainer, "__init__", init)


class Crossings(TorchDispatchMode):
    """Counts what the host reads from an accelerator, by the line that asks.

    Each reading waits until all that the accelerator was told to do is done.
    """

    def __init__(self):
        super().__init__()
        self.read = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._reads(op._schema.name, args, kwargs):
            lines = [f for f in traceback.extract_stack() if "/fltune/" in f.filename]
            where = lines[-1] if lines else None
            self.read[f"{Path(where.filename).name}: {where.line}" if where else "?"] += 1
        return op(*args, **kwargs)

    @staticmethod
    def _reads(name, args, kwargs):
        def away(tensor):
            return tensor.device.type != "cpu"

        match name:
            case "aten::_to_copy":
                to = kwargs.get("device")
                return away(args[0]) and to is not None and torch.device(to).type == "cpu"
            case "aten::copy_":
                return away(args[1]) and not away(args[0])
            case "aten::_local_scalar_dense" | "aten::nonzero" | "aten::equal" | "aten::_unique2":
                return away(args[0])
        return False
