"""A whole search in this process, one run after the other: all of it but Ray, in a few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fltune.search.campaign import Campaign
from fltune.search.config import SearchConfig
from fltune.search.search import sync
from fltune.search.state import SearchState
from fltune.search.trainable import run_alone


def search_here(raw: Mapping[str, Any], root: Path, name: str) -> list[str]:
    """Run a search below a folder, send it to the store there; return the settings that find it.

    Args:
        raw: the search file.
        root: what ``tracking.root`` is to be.
        name: of the search, and of the experiment in the store.
    """
    config = SearchConfig.parse({**raw, "tracking": {"root": str(root), "experiment": name}})
    state = SearchState(root / "searches" / name)
    state.lock()
    state.freeze(config.as_yaml(experiment=name))
    campaign = Campaign(config, state, lambda event, record: None)
    number = 0
    while isinstance(job := campaign.next(str(number)), dict):
        _run({**job, "member": 0}, campaign, str(number), config)
        number += 1
    state.finish(campaign.seconds)
    state.release()
    settings = [f"tracking.root={root}"]
    sync(name, settings)
    return settings


def _run(job: dict[str, Any], campaign: Campaign, key: str, config: SearchConfig) -> None:
    def send(entries):
        for entry in entries:
            campaign.reported(key, entry)

    campaign.started(key)
    send([run_alone(job, config.settings.search, send)])
    campaign.ended(key)
