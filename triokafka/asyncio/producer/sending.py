"""The kernel of `send` in use: the compiled one, or its plain twin, which has the types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka import kernels

if TYPE_CHECKING:
    from triokafka.asyncio.producer.plain_sending import (
        Acknowledged,
        Chunk,
        SendFuture,
        SendMethod,
        SendPath,
        Topic,
    )
else:
    _sending = kernels.load("triokafka.asyncio.producer._sending")
    Acknowledged = _sending.Acknowledged
    Chunk = _sending.Chunk
    SendFuture = _sending.SendFuture
    SendMethod = _sending.SendMethod
    SendPath = _sending.SendPath
    Topic = _sending.Topic

__all__ = ["Acknowledged", "Chunk", "SendFuture", "SendMethod", "SendPath", "Topic"]
