"""Encoded answers that clients have yet to read, bounded by ``queued.max.response.bytes``.

Records in files are sent from the page cache and take no memory; what counts is answers that are bytes, such as the
metadata of very many topics. When there are too many, the connection whose answer has waited longest is closed: a
client that reads its answers is never the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

LARGE_BYTES: Final = 65_536
"""Smaller answers are not counted: the socket's own buffer takes most of them."""


def bytes_in_memory(parts: Sequence[Any]) -> int:
    """Return the size of an answer's parts that are bytes of their own."""
    return sum(len(part) for part in parts if isinstance(part, (bytes, bytearray)))


class PendingResponses:
    """The large answers that are being sent.

    Args:
        limit: their bytes in all; 0 or less for any number. One answer alone may be larger.
    """

    def __init__(self, limit: int = -1) -> None:
        self._limit = limit
        self._sending: dict[object, tuple[int, Callable[[str], None]]] = {}  # oldest first
        self.used = 0

    def begin(self, key: object, size: int, close: Callable[[str], None]) -> None:
        """Count an answer; ``close`` closes its connection for a reason, and `end` is called then."""
        self._sending[key] = size, close
        self.used += size
        while 0 < self._limit < self.used and len(self._sending) > 1:
            oldest = next(iter(self._sending))
            oldest_size, close_oldest = self._sending[oldest]
            self.end(oldest)
            close_oldest(
                f"its answer of {oldest_size} bytes was not read, and there are more than {self._limit} bytes of unread"
                f" answers (queued.max.response.bytes); read faster, or raise it"
            )

    def end(self, key: object) -> None:
        """Forget an answer: it was sent, or its connection has ended. A second call does nothing."""
        found = self._sending.pop(key, None)
        if found is not None:
            self.used -= found[0]
