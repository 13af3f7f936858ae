"""The caps of a search: what all its trials may take together, and what they have taken."""

from __future__ import annotations

from fltune.search.record import TRIAL, TrialRecord
from fltune.search.settings import SearchSettings


class Caps:
    """Adds up what trials take; confirmations are no search, and are never held back.

    Args:
        search: says the caps.
    """

    def __init__(self, search: SearchSettings) -> None:
        self.search = search
        self._client_samples = self._bits = 0.0

    def count(self, record: TrialRecord) -> None:
        """Add an ended run to what is spent."""
        if record.kind == TRIAL:
            self._client_samples += record.client_samples
            self._bits += sum(record.comm.values())

    def spent(self, seconds: float) -> list[str]:
        """Return the caps that are spent, as ``search.max_seconds (60)``.

        Args:
            seconds: that the search has taken so far.
        """
        search = self.search
        caps = (
            ("max_seconds", search.max_seconds, seconds),
            ("max_client_samples", search.max_client_samples, self._client_samples),
            ("max_bytes", search.max_bytes, self._bits / 8),
        )
        return [
            f"search.{key} ({cap:.15g})"
            for key, cap, amount in caps
            if cap is not None and amount >= cap
        ]
