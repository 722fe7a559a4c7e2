"""The names of ``kafka.consumer``."""

from __future__ import annotations

from triokafka.blocking.consumer.group import KafkaConsumer

__all__ = ["KafkaConsumer"]
