"""A partition resolved once: the shortest way for one record after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triokafka.client.deliveries import Delivery, DeliveryCallback
from triokafka.client.producer.intake import Headers
from triokafka.client.producer.partition_queue import PartitionQueue

if TYPE_CHECKING:
    from triokafka.client.producer.producer import Producer


class PartitionStream:
    """Sends to one partition that was resolved beforehand (`Producer.bind`)."""

    __slots__ = ("_append", "_producer", "_queue")

    def __init__(self, producer: Producer, queue: PartitionQueue) -> None:
        self._producer = producer
        self._queue = queue
        self._append = producer._short_way.append_to

    async def send(
        self,
        value: Any = None,
        *,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """As `Producer.send` to the bound partition."""
        if on_delivery is None:
            delivery = self._append(self._queue, value, key, timestamp_ms, headers)
            if delivery is not None:
                return delivery
        topic, partition = self._queue.topic_partition
        return await self._producer.send(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )

    def send_nowait(
        self,
        value: Any = None,
        *,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """As `Producer.send_nowait` to the bound partition."""
        if on_delivery is None:
            delivery = self._append(self._queue, value, key, timestamp_ms, headers)
            if delivery is not None:
                return delivery
        topic, partition = self._queue.topic_partition
        return self._producer.send_nowait(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )
