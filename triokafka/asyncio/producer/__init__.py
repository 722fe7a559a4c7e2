"""The names of ``aiokafka.producer``."""

from __future__ import annotations

from triokafka.asyncio.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
