"""The programs of benchmarks/: as modules to look into, and run as a user runs them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def benchmarks():
    """The folder of the programs."""
    return FOLDER


@pytest.fixture(scope="module")
def load_program():
    """Loads a program by its name; what lies beside it can be imported, as when it is run."""
    sys.path.insert(0, str(FOLDER))
    yield _load
    sys.path.remove(str(FOLDER))
    for name, module in list(sys.modules.items()):
        if FOLDER in Path(getattr(module, "__file__", None) or "/").parents:
            del sys.modules[name]


def _load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_program():
    """Runs a program in a process of its own, and returns the lines that it printed."""

    def run(name, *options):
        command = [sys.executable, str(FOLDER / f"{name}.py"), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        return done.stdout.splitlines()

    return run
