"""The state of a search on disk: what resumes it after a kill, extends it, and fills a store again.

A folder per search, beside the tracking store, holds

    search.yaml      the frozen config
    journal.jsonl    what was decided: every proposal before its trial starts, every rejection, and
                     at the end that it is the end
    trials.jsonl     every ended run, whole

Both logs only grow, a JSON object a line, each on the disk before the search goes on. That is all:
a run is a function of its config and seed, so what had not ended when the power went is run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fltune.errors import ConfigError, FltuneError, nearest
from fltune.plain import finite
from fltune.search.names import is_plain
from fltune.search.record import TrialRecord

FINISHED = "finished"
"""The last event in the journal of a search that has come to its end."""
EXTENDED = "extended"
"""The event after it when a changed config asks for more."""
ELAPSED = "elapsed"
"""The search's own seconds in the log of runs, where ``seconds`` are a run's."""


class DiskFullError(FltuneError):
    """The disk takes no more; what was written before is whole."""


class Log:
    """An append-only file of JSON objects, one a line.

    A last line that a kill cut short is no line. Reading passes it over and changes nothing, for
    whoever reads may not be the one who writes; the next line that is written takes its place.

    Args:
        path: the file; made when the first line is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write one object and force it to the disk.

        NaN and infinities, which JSON does not know, become null.

        Raises:
            DiskFullError: the disk does not take it; the file is left as it was.
        """
        line = json.dumps(finite(entry), allow_nan=False) + "\n"
        size = self._mend()
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if self.path.exists():
                os.truncate(self.path, size)
            raise DiskFullError(f"{self.path} cannot be written: {error.strerror}") from error

    def _mend(self) -> int:
        """Drop a last line that was cut short; return the size of the file."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            return 0
        with self.path.open("rb") as file:
            size = file.seek(-1, os.SEEK_END) + 1
            if file.read() == b"\n":
                return size
        whole = self.path.read_bytes().rfind(b"\n") + 1
        os.truncate(self.path, whole)
        return whole

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield all objects.

        Raises:
            FltuneError: a line is no JSON object: the file was changed by hand.
        """
        for number, line in enumerate(self._lines(), start=1):
            yield self._object(number, line)

    def last(self) -> dict[str, Any]:
        """Return the last object without looking at the others; empty if there is none.

        Raises:
            FltuneError: as :meth:`read`.
        """
        lines = self._lines()
        return self._object(len(lines), lines[-1]) if lines else {}

    def _lines(self) -> list[bytes]:
        raw = self.path.read_bytes() if self.path.exists() else b""
        return raw[: raw.rfind(b"\n") + 1].splitlines()

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise FltuneError(f"{self.path}, line {number}: not JSON ({error})") from error
        if not isinstance(entry, dict):
            raise FltuneError(f"{self.path}, line {number}: found {entry!r}; a JSON object")
        return entry


class SearchState:
    """The folder of one search.

    Attributes:
        folder: where it is.
        journal: proposals and rejections.
        trials: ended runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Log(folder / "journal.jsonl")
        self.trials = Log(folder / "trials.jsonl")
        self._lock = FileLock(folder / "lock", timeout=0)

    @classmethod
    def find(cls, home: Path, name: str) -> SearchState:
        """Return the state of an earlier search.

        Args:
            home: the folder of the tracking store.
            name: of the search.

        Raises:
            ConfigError: there is none; names those there are.
        """
        state = cls(home / "searches" / name)
        if not is_plain(name) or not state.frozen.is_file():
            known = sorted(p.parent.name for p in (home / "searches").glob("*/search.yaml"))
            there = f"there are: {', '.join(known)}" if known else f"there is none in {home}"
            raise ConfigError(f"no search named {name!r}{nearest(name, known)}; {there}")
        return state

    @property
    def frozen(self) -> Path:
        """The frozen config."""
        return self.folder / "search.yaml"

    @property
    def begun(self) -> bool:
        """Whether a search of this name was started before."""
        return self.frozen.is_file()

    @property
    def finished(self) -> bool:
        """Whether its last word is that all had been done; an extension goes on after it."""
        return self.journal.last().get("event") == FINISHED

    @property
    def seconds(self) -> float:
        """Time spent by all processes so far, up to the last thing that each of them noted."""
        decided = self.journal.last().get("seconds", 0.0)
        ended = self.trials.last().get(ELAPSED, 0.0)
        return float(max(decided, ended))

    def keep(self, record: TrialRecord, seconds: float) -> None:
        """Keep an ended run, and the seconds that the search had taken by then."""
        self.trials.append({**record.as_json(), ELAPSED: round(seconds, 3)})

    def finish(self, seconds: float) -> None:
        """Note that all has been done, and the seconds that it took: no decision tells the end."""
        if not self.finished:
            self.journal.append({"event": FINISHED, "seconds": round(seconds, 3)})

    def freeze(self, config_yaml: str) -> None:
        """Write the config, whole or not at all; only who has the lock may.

        Under another config all is not done any more, whatever was the last word before.

        Raises:
            ConfigError: the folder cannot be written.
        """
        try:
            if self.finished and self.frozen.read_text(encoding="utf-8") != config_yaml:
                self.journal.append({"event": EXTENDED, "seconds": self.seconds})
            fresh = self.frozen.with_suffix(".new")
            fresh.write_text(config_yaml, encoding="utf-8")
            fresh.replace(self.frozen)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot write to {self.folder}: {error.strerror}")

    def lock(self) -> None:
        """Keep other processes from going on with the same search; ends with this process.

        Raises:
            ConfigError: the folder cannot be written.
            FltuneError: another process is at it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            name = self.folder.name
            raise FltuneError(f"another process is running the search {name!r}") from None
        except OSError as error:
            raise self._unwritable(error) from error

    def release(self) -> None:
        """Let others go on with the search."""
        self._lock.release()

    def records(self) -> list[TrialRecord]:
        """Return every ended run, once, in the order they ended."""
        found = [TrialRecord.of_json(raw) for raw in self.trials.read()]
        return list({(r.method, r.kind, r.number, r.seed): r for r in found}.values())
