"""The tasks of a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

PATIENCE: Final = 15
"""Time limit in seconds for the acknowledgement of a record, or for reading it."""
REQUEST_MS: Final = 1_000
SESSION_MS: Final = 45_000
BACKOFF_MS: Final = 20


class FaultClient(Protocol):
    """A client with blocking calls, whatever its own interface is."""

    def produce(self, servers: str, topic: str, happens: Callable[[], None]) -> str | None:
        """Send ``before`` to partition 0, call ``happens``, and send ``after``; return the second one's error."""

    def consume(
        self, servers: str, topic: str, group: str, heartbeat_ms: int, happens: Callable[[], None]
    ) -> tuple[list[bytes], str | None]:
        """Read two records in a group and commit, call ``happens``, read until ``last`` comes, and commit.

        Returns the records read after ``happens``, and the error of reading or of the second commit.
        """
