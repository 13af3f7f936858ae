"""A folder in which the commands of the docs run to the letter, and the search they tell of."""

import pytest
import written
import yaml
from searched_here import search_here

SMALL = {"rounds": 4, "eval_every": 2}
"""Rounds of every file in the folder: a stage each for three stages, and one more."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Small copies of the search files, and the files that the docs show whole."""
    place = tmp_path_factory.mktemp("docs")
    (place / "search_spaces").mkdir()
    for path in (written.ROOT / "search_spaces").glob("*.yaml"):
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        raw["experiment"] |= SMALL
        raw["search"] |= {"trials": 4, "confirm_seeds": 2, "average_last": 1}
        (place / "search_spaces" / path.name).write_text(yaml.safe_dump(raw, sort_keys=False))
    for language in ("yaml", "python"):
        for block in written.blocks(language):
            if block.title:
                (place / block.title).write_text(block.text, encoding="utf-8")
    return place


@pytest.fixture(scope="session")
def search(folder):
    """The search that the docs tell of, named ``first``, really run, but for Ray."""
    path = folder / "search_spaces" / "digits_fedgm.yaml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    search_here({**raw, "name": "first"}, folder / "mlruns", "first")
    return "first"
