"""The names of ``aiokafka.consumer``."""

from __future__ import annotations

from triokafka.asyncio.consumer.consumer import AIOKafkaConsumer

__all__ = ["AIOKafkaConsumer"]
