"""What a thread does beside the search: in order, and no fault of it is lost."""

import threading

import pytest

from fltune.search.courier import Courier


@pytest.fixture
def courier():
    made = Courier("test")
    yield made
    made.close()


def fail(text):
    raise LookupError(text)


def test_things_are_done_in_order_by_one_other_thread(courier):
    done, threads = [], set()

    def note(value):
        done.append(value)
        threads.add(threading.get_ident())
        return value

    for value in range(50):
        courier.later(note, value)
    assert courier.now(note, 50) == 50
    assert done == list(range(51))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_who_asks_for_later_does_not_wait(courier):
    gate, done = threading.Event(), []
    courier.later(gate.wait)
    courier.later(done.append, 1)
    assert done == []
    gate.set()
    courier.now(list)
    assert done == [1]


def test_what_went_wrong_is_raised_by_the_next_call_and_once(courier):
    courier.later(fail, "first")
    with pytest.raises(LookupError, match="first"):
        courier.now(list)
    assert courier.now(lambda: 7) == 7
    with pytest.raises(LookupError, match="own"):
        courier.now(fail, "own")
    raised = threading.Event()
    courier.later(fail, "later")
    courier._thread.submit(raised.set).result()
    with pytest.raises(LookupError, match="later"):
        courier.later(list)


def test_closing_waits_for_what_was_asked():
    courier, done = Courier("test"), []
    for value in range(20):
        courier.later(done.append, value)
    courier.close()
    assert done == list(range(20))
    with pytest.raises(RuntimeError):
        courier.later(list)
