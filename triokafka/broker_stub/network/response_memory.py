"""Encoded responses that clients have not read, limited by ``queued.max.response.bytes``.

The broker sends records of files from the page cache, so they take no memory. Encoded responses count, such as the
metadata of very many topics. Above the limit, the broker closes the connection with the oldest unread response; a
client that reads its responses is never the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

LARGE_BYTES: Final = 65_536
"""Smaller responses do not count: the socket's buffer holds most of them."""
_IN_MEMORY: Final = (bytes, bytearray)  # views are of records, which others hold


def bytes_in_memory(parts: Sequence[Any]) -> int:
    """Return the total size of a response's parts that are in memory."""
    size = 0
    for part in parts:
        if isinstance(part, _IN_MEMORY):
            size += len(part)
    return size


class ResponseMemory:
    """The large responses that are being sent.

    Args:
        limit: their total bytes; 0 or less for no limit. A single response may be larger.
    """

    def __init__(self, limit: int = -1) -> None:
        self._limit = limit
        self._sending: dict[object, tuple[int, Callable[[str], None]]] = {}  # oldest first
        self.used = 0

    def begin(self, key: object, size: int, close: Callable[[str], None]) -> None:
        """Count a response. ``close`` closes its connection with a reason."""
        self._sending[key] = size, close
        self.used += size
        while 0 < self._limit < self.used and len(self._sending) > 1:
            oldest = next(iter(self._sending))
            oldest_size, close_oldest = self._sending[oldest]
            self.end(oldest)
            close_oldest(
                f"its response of {oldest_size} bytes is the oldest of more than {self._limit} bytes of unread"
                f" responses (queued.max.response.bytes); read responses faster, or raise the limit"
            )

    def end(self, key: object) -> None:
        """Stop counting a response that was sent or whose connection has ended. A second call has no effect."""
        found = self._sending.pop(key, None)
        if found is not None:
            self.used -= found[0]
