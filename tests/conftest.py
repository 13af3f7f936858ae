"""Makes the helper modules of this folder importable, and tests light and quiet."""

import logging

import hypothesis
import lightning  # noqa: F401 - first: it sets the level of its own logger
import torch

# a busy machine is no failure: nothing is asserted by the clock
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")
torch.set_num_threads(1)  # the models are tiny: a second thread only costs
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::UserWarning:lightning")
