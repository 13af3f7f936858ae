"""Makes the helper modules of this folder importable, tests light and quiet; lays out real data."""

import importlib.util
import logging
import os
from pathlib import Path

import hypothesis
import lightning  # noqa: F401 - first: it sets the level of its own logger
import pytest
import torch

# A busy machine is no failure: nothing is asserted by the clock. Examples are the same in every
# run, so that what fails was changed; those who want new ones take the other profile.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
hypothesis.settings.register_profile("new", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
torch.set_num_threads(1)  # the models are tiny: a second thread only costs
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::UserWarning:lightning")


@pytest.fixture
def call(capsys):
    """Return exit code, standard output and standard error of a command."""
    from fltune.cli import main

    def run(*argv):
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in argv])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def prepare():
    """The module that lays out real data, which is not part of the project."""
    path = Path(__file__).parents[2] / "shared" / "data" / "prepare.py"
    if not path.is_file():
        pytest.skip("the real data sets are not beside this checkout")
    spec = importlib.util.spec_from_file_location("prepare", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def real_data_root(prepare, tmp_path_factory):
    """A folder with the original MNIST, in torchvision's layout."""
    root = tmp_path_factory.mktemp("data")
    prepare.gunzip_all(prepare.HERE / "MNIST" / "raw", root / "MNIST" / "raw")
    return root


@pytest.fixture(scope="session")
def real_cifar_root(prepare, tmp_path_factory):
    """A folder with CIFAR-10 out of JPEG, in torchvision's layout; takes seconds to decode."""
    root = tmp_path_factory.mktemp("cifar")
    prepare.write_cifar10(root / "cifar-10-batches-py")
    return root
