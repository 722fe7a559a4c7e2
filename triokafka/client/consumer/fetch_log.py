"""Counts of fetched and returned records of a consumer since its metrics last read them."""

from __future__ import annotations


class FetchLog:
    """``sizes``: bytes of each fetch. ``topic_sizes``: bytes by topic of each fetch. ``records``: returned records."""

    __slots__ = ("records", "sizes", "topic_sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.topic_sizes: list[tuple[str, int]] = []
        self.records: list[tuple[str, int]] = []

    def clear(self) -> None:
        """Forget everything."""
        self.sizes.clear()
        self.topic_sizes.clear()
        self.records.clear()
