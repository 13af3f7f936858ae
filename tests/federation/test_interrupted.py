"""Ctrl-C in a run, for who called it."""

import signal

import pytest

import fltune
from fltune.experiment import Experiment
from fltune.federation.interrupted import interruptible

SMALL = {
    "data": {"name": "digits", "clients": 10},
    "model": {"name": "mlp", "hidden": [8]},
    "rounds": 2,
}


def test_ctrl_c_is_an_exception_that_a_script_can_catch():
    handler = signal.getsignal(signal.SIGINT)

    def interrupted(*args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fltune.run(Experiment.parse(SMALL), on_row=interrupted)
    assert signal.getsignal(signal.SIGINT) is handler


def test_another_exit_is_left_alone():
    with pytest.raises(SystemExit), interruptible():
        raise SystemExit(3)
