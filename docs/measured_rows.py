"""Keep what a search measured for the pages of the methods.

    python -m fltune search search_spaces/methods_digits.yaml --name methods
    python docs/measured_rows.py methods

Writes ``docs/measured/methods_digits.json``: for each method its winner, scores, traffic and
trials; nothing of the machine.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import fltune
from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.search import compare, home_of
from fltune.search.state import SearchState

KEPT = ("best", "val", "test", "trials", "diverged", "bits_up", "bits_down", "edges")


def measured(name: str, settings: list[str]) -> dict[str, Any]:
    """Return the rows of a finished search in plain values.

    Raises:
        ConfigError: there is no such search, or it is not finished.
    """
    state = SearchState.find(home_of(settings), name)
    if not state.finished:
        raise ConfigError(f"{name} is not finished; go on with it: python -m fltune resume {name}")
    config = SearchConfig.read(state.frozen)
    found = compare(name, settings).as_json()["methods"]
    experiments = {
        n: method.experiment(method.first_values()) for n, method in config.methods.items()
    }
    search = config.settings.search
    return {
        "search": "search_spaces/methods_digits.yaml",
        "measured": date.today().isoformat(),
        "fltune": fltune.__version__,
        "metric": search.metric,
        "trials": search.trials,
        "seeds": search.confirm_seeds,
        "rounds": next(iter(experiments.values())).rounds,
        "methods": {
            n: {
                "algorithm": experiments[n].algorithm.component_name,
                "server": experiments[n].server.component_name,
                **{key: _short(row[key]) for key in KEPT},
            }
            for n, row in found.items()
            if row["test"] is not None
        },
    }


def _short(value: Any) -> Any:
    """Return plain values with floats of six significant digits."""
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main(arguments: list[str]) -> None:
    """Write the rows of the search that is named; further arguments are KEY=VALUE of tracking."""
    rows = measured(arguments[0], arguments[1:])
    target = Path(__file__).parent / "measured" / "methods_digits.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"written to {target.name}: {len(rows['methods'])} methods")


if __name__ == "__main__":
    main(sys.argv[1:])
