"""How long it takes to see the first round of ``fltune run``, and how much of that is imports.

    python benchmarks/first_round.py
    python benchmarks/first_round.py --repeats 5 --json

``fltune run`` on the digits with one round, from the start of the process to its end, beside a
process that imports torch and lightning and does nothing. Both take turns, and the least of each
counts: whatever else the machine does only adds to it, and less to the processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rounds import machine

SPACE = Path(__file__).parents[1] / "search_spaces" / "digits_fedgm.yaml"
IMPORTS = [sys.executable, "-c", "import torch, lightning"]
RUN = [sys.executable, "-m", "fltune", "run", str(SPACE), "--method", "FedGM"]
RUN += ["--set", "rounds=1"]
CHILDREN = ("children_user", "children_system")


def seconds(command: list[str]) -> tuple[float, float]:
    """Run a command; return how long it took, and its processor time."""
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    after, taken = os.times(), time.perf_counter() - started
    user, system = (getattr(after, k) - getattr(before, k) for k in CHILDREN)
    return taken, user + system


def main() -> None:
    """Measure, print a line, and on demand one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    args = parser.parse_args()
    turns = [(*seconds(IMPORTS), *seconds(RUN)) for _ in range(args.repeats + 1)][1:]
    least = [min(column) for column in zip(*turns, strict=True)]
    found = {}
    for name, imports, run in (("wall", *least[::2]), ("processor", *least[1::2])):
        found[name] = {"imports": imports, "run": run}
        print(
            f"{name} time: {run:.1f} s with the first round, {run - imports:.1f} s beyond the "
            f"imports of torch and lightning ({imports:.1f} s)"
        )
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}")
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
