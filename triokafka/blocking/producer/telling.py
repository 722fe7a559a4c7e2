"""The outcome of a record, and the marker for listeners that were called."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from triokafka.structs import TopicPartition


class RecordMetadata(NamedTuple):
    """Where a record was written. ``offset`` is -1 with ``acks=0``; sizes are bytes, -1 for null; ``checksum`` is
    None."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class Telling:
    """Replaces the listeners of settled records: they are being called now, or, when ``over``, were called."""

    __slots__ = ("_ended", "over")

    def __init__(self, *, over: bool = False) -> None:
        self.over = over
        self._ended: threading.Event | None = None

    def wait(self, lock: threading.Lock, timeout: float | None) -> None:
        """Wait until the listeners were called, at most ``timeout`` seconds."""
        with lock:
            if self.over:
                return
            ended = self._ended = self._ended or threading.Event()
        ended.wait(timeout)

    def end(self, lock: threading.Lock) -> None:
        """They were."""
        with lock:
            self.over = True
            ended = self._ended
        if ended is not None:
            ended.set()


TOLD: Final = Telling(over=True)
