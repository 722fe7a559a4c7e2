"""`BatchBuilder`: records that a program gathers itself and sends to one partition together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from triokafka.asyncio.producer.serialization import serialized
from triokafka.records import BatchBuilder as RecordBatchBuilder


class AppendedRecord(NamedTuple):
    """A record in the batch: its number, encoded size in bytes and timestamp in milliseconds. ``crc`` is None."""

    offset: int
    size: int
    timestamp: int
    crc: None = None


class BatchBuilder:
    """Gathers records up to ``max_batch_size`` bytes. Make one with `AIOKafkaProducer.create_batch`."""

    def __init__(
        self,
        batch_size: int,
        *,
        key_serializer: Callable[[Any], Any] | None,
        value_serializer: Callable[[Any], Any] | None,
        now_ms: Callable[[], int],
    ) -> None:
        # It decides when the batch is full; the sender encodes the columns again, with its own compression.
        self._builder = RecordBatchBuilder(batch_size)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._now_ms = now_ms
        self._closed = False
        self.values: list[Any] = []
        self.keys: list[Any] = []
        self.timestamps: list[int] = []
        self.headers: list[Sequence[Any]] = []

    def append(self, *, timestamp: int | None, key: Any, value: Any, headers: Any = ()) -> AppendedRecord | None:
        """Add a record; ``timestamp`` is milliseconds since the epoch, None for now.

        Returns None, and closes the batch, if the record does not fit; the first record always does.
        """
        if self._closed:
            return None
        key, value = serialized(self._key_serializer, key, "key"), serialized(self._value_serializer, value, "value")
        at = self._now_ms() if timestamp is None else int(timestamp)
        given = list(headers or ())
        before = self._builder.size
        if self._builder.append(at, key, value, given) < 0:
            if self.values:
                self.close()
                return None
            size = len(key or b"") + len(value or b"")  # larger than a batch: the record gets a batch of its own
        else:
            size = self._builder.size - before
        self.values.append(value)
        self.keys.append(key)
        self.timestamps.append(at)
        self.headers.append(given)
        return AppendedRecord(len(self.values) - 1, size, at)

    def close(self) -> None:
        """Accept no more records."""
        self._closed = True

    def closed(self) -> bool:
        """Whether it accepts no more records."""
        return self._closed

    def size(self) -> int:
        """Return the size in bytes, before compression."""
        return self._builder.size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.values)
