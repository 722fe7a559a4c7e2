"""Counts of completed fetches, for health and metrics."""

from __future__ import annotations


class FetchCounters:
    """Counts of completed fetches."""

    def __init__(self) -> None:
        self.fetches = 0
        self.bytes = 0
        self.last_fetch_at: float | None = None
