"""The producer's kernel in use: the compiled one, or its plain twin, which has the types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka import kernels

if TYPE_CHECKING:
    from triokafka.client.producer.plain_fast_path import (
        CHEAP_TO_AWAIT,
        BoundFastPath,
        Delivery,
        FastPath,
        QueueTail,
        TopicQueues,
    )
    from triokafka.client.producer.plain_lz4_worker import Lz4Worker
else:
    _fast_path = kernels.load("triokafka.client.producer._fast_path")
    CHEAP_TO_AWAIT = _fast_path.CHEAP_TO_AWAIT
    BoundFastPath = _fast_path.BoundFastPath
    Delivery = _fast_path.Delivery
    QueueTail = _fast_path.QueueTail
    TopicQueues = _fast_path.TopicQueues
    FastPath = _fast_path.FastPath
    Lz4Worker = kernels.load("triokafka.client.producer._lz4_worker").Lz4Worker

__all__ = ["CHEAP_TO_AWAIT", "BoundFastPath", "Delivery", "FastPath", "Lz4Worker", "QueueTail", "TopicQueues"]
