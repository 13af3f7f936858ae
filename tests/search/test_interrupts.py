"""Ctrl-C and SIGTERM, sent to this process."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest

from fltune.search.interrupts import TerminatedError, kept_on_sigterm, orderly_interrupts
from fltune.search.session import InterruptedSearchError


def handlers():
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


@pytest.fixture
def campaign():
    """A search, and a check that it leaves the process as it was."""
    before = handlers()
    yield SimpleNamespace(stopping=False, terminated=False)
    assert handlers() == before


def send(number):
    os.kill(os.getpid(), number)


def test_the_first_interrupt_stops_the_launching_and_the_second_raises(campaign):
    told = []
    with orderly_interrupts(campaign, lambda: told.append("once")):
        send(signal.SIGINT)
        assert (campaign.stopping, told) == (True, ["once"])
        with pytest.raises(KeyboardInterrupt) as caught:
            send(signal.SIGINT)
    assert not isinstance(caught.value, TerminatedError)
    assert not campaign.terminated
    assert told == ["once"]


def test_sigterm_raises_at_once_and_a_second_one_disturbs_no_end(campaign):
    with orderly_interrupts(campaign, lambda: pytest.fail("nothing is waited for")):
        with pytest.raises(TerminatedError):
            send(signal.SIGTERM)
        assert campaign.stopping
        assert campaign.terminated
        send(signal.SIGTERM)


def test_what_another_sets_on_sigterm_is_set_back(campaign):
    with orderly_interrupts(campaign, lambda: None):
        own = handlers()
        with kept_on_sigterm():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray does
        assert handlers() == own


def test_another_thread_than_the_first_changes_no_signals(campaign):
    before, found = handlers(), []

    def work():
        with orderly_interrupts(campaign, lambda: None), kept_on_sigterm():
            found.append(handlers())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]


@pytest.mark.parametrize(
    ("terminated", "text", "code"),
    [(False, "interrupted; go on", 130), (True, "ended by SIGTERM; go on", 143)],
)
def test_the_exit_code_is_that_of_the_signal(terminated, text, code):
    error = InterruptedSearchError("go on", terminated)
    assert (str(error), error.exit_code) == (text, code)
