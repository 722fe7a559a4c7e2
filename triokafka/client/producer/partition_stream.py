"""A partition resolved once, for the least work per record."""

from __future__ import annotations

from typing import Any

from triokafka.client.deliveries import Delivery
from triokafka.client.producer.batch import DeliveryCallback
from triokafka.client.producer.fast_path_method import fast_path_method
from triokafka.client.producer.interceptors import Headers
from triokafka.client.producer.kernel import BoundFastPath


class PartitionStream:
    """Sends to one partition that was resolved beforehand (`Producer.bind`)."""

    def __init__(self, fast_path: BoundFastPath) -> None:
        self._fast_path = fast_path

    @fast_path_method
    async def send(
        self,
        value: Any = None,
        *,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Send to the bound partition, as `Producer.send`."""
        delivery = self._fast_path.append(value, key, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        return await self._fast_path.send(
            value, key=key, timestamp_ms=timestamp_ms, headers=headers, on_delivery=on_delivery
        )

    @fast_path_method
    def send_nowait(
        self,
        value: Any = None,
        *,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Send to the bound partition, as `Producer.send_nowait`."""
        return self._fast_path.send_nowait(
            value, key=key, timestamp_ms=timestamp_ms, headers=headers, on_delivery=on_delivery
        )
