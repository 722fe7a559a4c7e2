"""A partition resolved once: the shortest way for one record after the other."""

from __future__ import annotations

from typing import Any, Final

from triokafka.client.deliveries import Delivery, DeliveryCallback
from triokafka.client.producer.intake import Headers
from triokafka.client.producer.kernel import CHEAP_TO_AWAIT, BoundFastPath


class PartitionStream:
    """Sends to one partition that was resolved beforehand (`Producer.bind`)."""

    def __init__(self, way: BoundFastPath) -> None:
        self._way = way
        self._append = way.append
        # As in `Producer`: the same, found sooner.
        if CHEAP_TO_AWAIT and type(self).send is _SEND:
            self.send = way.send  # type: ignore[method-assign]
        if type(self).send_nowait is _SEND_NOWAIT:
            self.send_nowait = way.send_nowait  # type: ignore[method-assign]

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
        delivery = self._append(value, key, timestamp_ms, headers, on_delivery)
        if delivery is not None:
            return delivery
        return await self._way.send(value, key=key, timestamp_ms=timestamp_ms, headers=headers, on_delivery=on_delivery)

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
        return self._way.send_nowait(
            value, key=key, timestamp_ms=timestamp_ms, headers=headers, on_delivery=on_delivery
        )


_SEND: Final = PartitionStream.send
_SEND_NOWAIT: Final = PartitionStream.send_nowait
