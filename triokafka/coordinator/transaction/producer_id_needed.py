"""The signal that an operation needs an unused producer id, which only the broker can get, and may have to wait for."""

from __future__ import annotations

from triokafka.errors import KafkaError


class ProducerIdNeeded(KafkaError):
    """Repeat the operation with a new producer id; nothing has changed."""
