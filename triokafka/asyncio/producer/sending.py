"""The kernel of `send` in use: the compiled one, or its plain twin, which has the types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka import kernels

if TYPE_CHECKING:
    from triokafka.asyncio.producer.plain_sending import (
        CHEAP_TO_AWAIT,
        Acknowledged,
        Chunk,
        SendFuture,
        SendPath,
        Topic,
    )
else:
    _sending = kernels.load("triokafka.asyncio.producer._sending")
    CHEAP_TO_AWAIT = _sending.CHEAP_TO_AWAIT
    Acknowledged = _sending.Acknowledged
    Chunk = _sending.Chunk
    SendFuture = _sending.SendFuture
    SendPath = _sending.SendPath
    Topic = _sending.Topic

__all__ = ["CHEAP_TO_AWAIT", "Acknowledged", "Chunk", "SendFuture", "SendPath", "Topic"]
