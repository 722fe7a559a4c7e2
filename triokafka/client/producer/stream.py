"""A partition resolved once: the shortest way for one record after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triokafka.client.deliveries import Delivery
from triokafka.client.producer.intake import Headers
from triokafka.client.producer.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from triokafka.client.producer.producer import Producer


class PartitionStream:
    """Sends to one partition that was resolved beforehand (`Producer.bind`)."""

    __slots__ = ("_plain", "_producer", "_queue", "_wall_ms")

    def __init__(self, producer: Producer, queue: PartitionQueue) -> None:
        self._producer = producer
        self._queue = queue
        self._plain = producer._plain
        self._wall_ms = producer._wall_ms

    async def send(
        self, value: Any = None, *, key: Any = None, timestamp_ms: int | None = None, headers: Headers = ()
    ) -> Delivery:
        """As `Producer.send` to the bound partition."""
        batch = self._queue.open
        if batch is not None and self._plain and timestamp_ms is None and not headers:
            timestamp = self._wall_ms()
            try:
                index = batch.append(timestamp, key, value)
            except TypeError:
                index = -1
            if index >= 0:
                return Delivery(
                    batch, index, timestamp, -1 if key is None else len(key), -1 if value is None else len(value)
                )
        topic, partition = self._queue.topic_partition
        return await self._producer.send(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    def send_nowait(
        self, value: Any = None, *, key: Any = None, timestamp_ms: int | None = None, headers: Headers = ()
    ) -> Delivery:
        """As `Producer.send_nowait` to the bound partition."""
        batch = self._queue.open
        if batch is not None and self._plain and timestamp_ms is None and not headers:
            timestamp = self._wall_ms()
            try:
                index = batch.append(timestamp, key, value)
            except TypeError:
                index = -1
            if index >= 0:
                return Delivery(
                    batch, index, timestamp, -1 if key is None else len(key), -1 if value is None else len(value)
                )
        topic, partition = self._queue.topic_partition
        return self._producer.send_nowait(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
