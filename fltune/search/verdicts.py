"""Which members of a pack are to stop: the driver says so here, and workers ask here.

Ray can stop a trial, not a member of one. So a search that stops members starts one actor that uses
no core and holds their numbers; it is there for every machine of a cluster. The driver waits until
it has heard, before the trial goes on, so that a worker that asks after its report knows all that
was decided on it. An actor that is lost with its machine costs time only: a member that goes on
though it was stopped is not listened to any more.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import defaultdict
from typing import Any

PATIENCE_SECONDS = 10.0
"""What an answer may take; it takes a millisecond once the actor is there."""


class Verdicts:
    """The stopped members of every trial; the body of the actor."""

    def __init__(self) -> None:
        self._stopped: dict[str, list[int]] = defaultdict(list)

    def stop(self, trial_id: str, members: list[int]) -> None:
        """Note members that are to stop."""
        self._stopped[trial_id] += members

    def stopped(self, trial_id: str) -> list[int]:
        """Return all members of a trial that are to stop."""
        return list(self._stopped.get(trial_id, []))


class Bench:
    """The driver's end of the line: it starts the actor when it is first needed."""

    def __init__(self) -> None:
        self._name = f"fltune-verdicts-{secrets.token_hex(8)}"
        self._actor: Any = None

    @property
    def name(self) -> str:
        """What workers find the actor by."""
        if self._actor is None:
            import ray

            actor = ray.remote(num_cpus=0)(Verdicts)
            self._actor = actor.options(name=self._name).remote()
        return self._name

    def stop(self, trial_id: str, members: list[int]) -> None:
        """Tell of members that are to stop; return when it is known there."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._actor.stop.remote(trial_id, members), timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        """End the actor."""
        if self._actor is not None:
            import ray

            ray.kill(self._actor)


def stopped_members(name: str, trial_id: str) -> list[int]:
    """Return, in a worker, the members of its trial that are to stop; none if nobody answers."""
    import ray

    try:
        actor = ray.get_actor(name)
        return ray.get(actor.stopped.remote(trial_id), timeout=PATIENCE_SECONDS)
    except (ray.exceptions.RayError, ValueError):
        return []
