"""The names of ``kafka.producer``."""

from __future__ import annotations

from triokafka.blocking.producer.kafka import KafkaProducer

__all__ = ["KafkaProducer"]
