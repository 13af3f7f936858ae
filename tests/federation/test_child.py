"""A child answers until it is ended, finds our modules, and is missed when it is gone."""

import os
import signal

import pytest

from fltune.federation.child import Child, ChildLostError, end

ECHO = """
import os, pickle, sys
from multiprocessing.connection import Connection

parent = Connection(int(sys.argv[1]))
while True:
    asked = pickle.loads(parent.recv_bytes())
    if asked == "leave":
        sys.exit(3)
    parent.send_bytes(pickle.dumps((asked, sys.argv[2:], os.environ.get("CHILD_SAYS"))))
"""


@pytest.fixture
def echo(tmp_path, monkeypatch):
    (tmp_path / "echo_child.py").write_text(ECHO)
    monkeypatch.syspath_prepend(tmp_path)
    child = Child("echo_child", 7, "x", variables={"CHILD_SAYS": "hello"}, silent=True)
    yield child
    end([child])


def test_it_answers_and_has_what_it_was_given(echo):
    for message in ("first", {"second": 2}):
        echo.send(message)
        assert echo.receive() == (message, ["7", "x"], "hello")


def test_the_end_is_at_once_and_for_all(echo):
    echo.send("never read")
    end([echo])
    assert echo.process.returncode == -signal.SIGKILL


def test_how_it_was_lost(echo):
    echo.send("leave")
    with pytest.raises(ChildLostError, match=r"^with exit code 3$"):
        echo.receive()
    with pytest.raises(ChildLostError, match=r"^with exit code 3$"):
        echo.send("is anybody there")


def test_by_which_signal_it_was_lost(echo):
    os.kill(echo.process.pid, signal.SIGTERM)
    with pytest.raises(ChildLostError, match=r"^by SIGTERM$"):
        echo.receive()
