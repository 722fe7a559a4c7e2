"""A chunk: records of one topic that cross to the loop thread together, and their futures."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from triokafka.asyncio.structs import RecordMetadata
from triokafka.errors import InvalidProducerEpochError, ProducerFencedError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Deliveries
    from triokafka.client.deliveries import DeliveredPart

E = TypeVar("E")

# RecordMetadata's own constructor is a Python function, which is slower.
_metadata: Final = partial(tuple.__new__, RecordMetadata)


class Chunk:
    """Records of one topic in columns, each with the future that its sender got.

    Every column except ``values`` may be missing or shorter than ``values``; missing elements count as None. Used by
    one thread at a time: the asyncio loop fills it and, after the hand-over, settles its futures.
    """

    __slots__ = ("acked", "futures", "headers", "keys", "partitions", "size", "timestamps", "topic", "values")

    def __init__(self, topic: str, *, acked: bool) -> None:
        self.topic = topic
        self.acked = acked
        self.values: list[Any] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.keys: list[Any] | None = None
        self.partitions: list[int | None] | None = None
        self.timestamps: list[int | None] | None = None
        self.headers: list[Any] | None = None
        self.size = 0

    def put_extras(
        self, index: int, key: Any, partition: int | None, timestamp_ms: int | None, headers: Sequence[Any] | None
    ) -> None:
        """Set the optional fields of the record at ``index``, which is the last one."""
        if key is not None:
            self.keys = _put(self.keys, index, key, None)
        if partition is not None:
            self.partitions = _put(self.partitions, index, partition, None)
        if timestamp_ms is not None:
            self.timestamps = _put(self.timestamps, index, timestamp_ms, None)
        if headers:
            self.headers = _put(self.headers, index, headers, [])

    def columns(self) -> dict[str, Any]:
        """Return the arguments of `Producer.send_many`."""
        count = len(self.values)
        columns: dict[str, Any] = {"values": self.values}
        if self.keys is not None:
            columns["keys"] = _padded(self.keys, count, None)
        if self.partitions is not None:
            columns["partition"] = _padded(self.partitions, count, None)
        if self.timestamps is not None:
            columns["timestamp_ms"] = _padded(self.timestamps, count, None)
        if self.headers is not None:
            columns["headers"] = _padded(self.headers, count, [])
        return columns

    # ---------------------------------------------------------------- outcomes, in the asyncio loop

    def settle_part(self, first: int, part: DeliveredPart, deliveries: Deliveries) -> None:
        """Settle the futures of a part of ``deliveries``, whose first record is number ``first`` of the chunk."""
        positions = part.positions
        futures = self.futures
        if isinstance(positions, range):
            waiting = futures[first + positions.start : first + positions.stop]
        else:
            waiting = [futures[first + position] for position in positions]
        acknowledged = part.acknowledged(0, len(positions))
        if acknowledged is None:
            each = list(deliveries)
            for position, future in zip(positions, waiting, strict=True):
                self._settle_one(future, each[position])
        elif not self.acked:
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        else:
            topic, number = place = part.topic_partition
            stamped = int(part.stamped_by_broker)
            for future, offset, timestamp in zip(waiting, acknowledged.offsets, acknowledged.timestamps, strict=False):
                if not future.done():
                    future.set_result(_metadata((topic, number, place, offset, timestamp, stamped, None)))

    def _settle_one(self, future: asyncio.Future[Any], delivery: Any) -> None:
        if future.done():
            return
        try:
            found = delivery.result()
        except InvalidProducerEpochError as error:
            future.set_exception(ProducerFencedError(*error.args))  # as aiokafka names it
            return
        except Exception as error:
            future.set_exception(error)
            return
        place = TopicPartition(found.topic, found.partition)
        future.set_result(RecordMetadata(*place, place, found.offset, found.timestamp, 0, None) if self.acked else None)

    def fail(self, first: int, end: int, error: Exception) -> None:
        """Settle the futures from ``first`` to before ``end`` with an error."""
        for future in self.futures[first:end]:
            if not future.done():
                future.set_exception(copy.copy(error))


def _put(column: list[E] | None, index: int, value: E, missing: E) -> list[E]:
    column = _padded([] if column is None else column, index, missing)
    column.append(value)
    return column


def _padded(column: list[E], count: int, missing: E) -> list[E]:
    if len(column) < count:
        column.extend([missing] * (count - len(column)))
    return column
