"""The kernel of the producer that runs: compiled, or its plain twin. Types are the twin's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka import kernels

if TYPE_CHECKING:
    from triokafka.client.producer.plain_append import (
        CHEAP_TO_AWAIT,
        BoundWay,
        Delivery,
        QueueEnd,
        QueueEnds,
        ShortWay,
    )
    from triokafka.client.producer.plain_lz4_worker import Lz4Worker
else:
    _append = kernels.load("triokafka.client.producer._append")
    CHEAP_TO_AWAIT = _append.CHEAP_TO_AWAIT
    BoundWay = _append.BoundWay
    Delivery = _append.Delivery
    QueueEnd = _append.QueueEnd
    QueueEnds = _append.QueueEnds
    ShortWay = _append.ShortWay
    Lz4Worker = kernels.load("triokafka.client.producer._lz4_worker").Lz4Worker

__all__ = ["CHEAP_TO_AWAIT", "BoundWay", "Delivery", "Lz4Worker", "QueueEnd", "QueueEnds", "ShortWay"]
