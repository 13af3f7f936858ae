"""Chromium without a window, driven over a pipe: what a page shows, asks for and complains of.

It speaks the DevTools protocol on file descriptors 3 and 4 (``--remote-debugging-pipe``), so that a
test needs the browser of its machine and nothing from a package index.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
FLAGS += ("--no-first-run", "--disable-background-networking", "--disable-component-update")
FLAGS += ("--remote-debugging-pipe", "--hide-scrollbars", "--mute-audio")
LAUNCH = """import os, sys
commands, answers = map(int, sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])"""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


class Browser:
    """One browser; as a context manager it is gone at the end."""

    def __init__(self, profile: Path) -> None:
        self._in, commands = os.pipe()
        answers, self._out = os.pipe()
        argv = [sys.executable, "-c", LAUNCH, str(self._in), str(self._out), str(CHROMIUM), *FLAGS]
        argv += [f"--user-data-dir={profile}", "about:blank"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(
            argv, pass_fds=(self._in, self._out), start_new_session=True, **silent
        )
        os.close(self._in)
        os.close(self._out)
        self._commands, self._answers, self._rest, self._number = commands, answers, b"", 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def send(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        own = self._number
        message = {"id": own, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for answer in self.read(1.0):
                if answer.get("id") == own:
                    assert "error" not in answer, (method, answer["error"])
                    return answer["result"]
        raise AssertionError(f"chromium has not answered {method}")

    def read(self, seconds: float) -> list[dict[str, Any]]:
        """Return the answers that come within some time; keep the events among them."""
        if not select.select([self._answers], [], [], seconds)[0]:
            return []
        *whole, self._rest = (self._rest + os.read(self._answers, 1 << 20)).split(b"\0")
        found = [json.loads(text) for text in whole]
        self.events += [message for message in found if "method" in message]
        return [message for message in found if "id" in message]

    def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> Tab:
        """Open a page in a window of some size, on light or dark paper."""
        tab = self._attach(self.send("Target.createTarget", url="about:blank")["targetId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.send(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.send("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        tab.send("Emulation.setDeviceMetricsOverride", mobile=width < 500, **size)
        tab.send("Page.navigate", url=url)
        tab.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return tab

    def _attach(self, target: str) -> Tab:
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        return Tab(self, attached["sessionId"])

    def frame(self, start: str, seconds: float = 60) -> Tab:
        """Return the frame whose address starts so; a sandboxed one is a target of its own."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for target in self.send("Target.getTargets")["targetInfos"]:
                if target["type"] == "iframe" and target["url"].startswith(start):
                    return self._attach(target["targetId"])
            self.read(0.2)
        raise AssertionError(f"no frame at {start}")


class Tab:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **params)

    def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self.js(f"!!({condition})"):
            assert time.monotonic() < deadline, f"not so after {seconds:g} s: {condition}"
            self.browser.read(0.2)

    def _events(self, method: str) -> list[dict[str, Any]]:
        mine = [e for e in self.browser.events if e.get("sessionId") == self.session]
        return [event["params"] for event in mine if event["method"] == method]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page has asked for; what stands in the page itself is none."""
        asked = [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith(("data:", "blob:", "about:"))]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of its console, and exceptions."""
        logged = [event["entry"] for event in self._events("Log.entryAdded")]
        said = self._events("Runtime.consoleAPICalled")
        thrown = self._events("Runtime.exceptionThrown")
        found = [entry["text"] for entry in logged if entry["level"] in ("error", "warning")]
        found += [str(event["args"]) for event in said if event["type"] in ("error", "warning")]
        return found + [str(event["exceptionDetails"]) for event in thrown]

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what the page looks like as .png, from its top or all of it."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
