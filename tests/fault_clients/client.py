"""What a client is made to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

PATIENCE: Final = 15
"""Seconds for a record to be acknowledged, or to be read."""
REQUEST_MS: Final = 1_000
BACKOFF_MS: Final = 20


class FaultClient(Protocol):
    """Blocking, whatever the client is like."""

    def produce(self, servers: str, topic: str, happens: Callable[[], None]) -> str | None:
        """Send ``before`` to partition 0, and ``after`` once ``happens`` was called; returns the second's error."""

    def consume(
        self, servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
    ) -> tuple[list[bytes], str | None]:
        """Read two records in a group and commit, call ``happens``, read until ``last`` comes, and commit.

        Returns what was read after ``happens``, and the error of reading or of the second commit.
        """
