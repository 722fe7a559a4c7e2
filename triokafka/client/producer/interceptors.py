"""Interceptors: the user's code at both ends of a record's way through the producer (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triokafka.structs import RecordMetadata

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as it was given to ``send``: key and value are not serialized yet; ``partition`` None is not chosen."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class ProducerInterceptor:
    """Base class; override what you need. What a hook raises is logged, and the record goes on as it was before."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Called first of all, in the sender's caller. Return the record, another one, or None to drop it.

        A dropped record is not sent; its delivery resolves to metadata with partition and offset -1.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called when a record is acknowledged or has failed, before the user's callback. It must not block."""

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Called when ``send`` raises, before the record was buffered."""

    def close(self) -> None:
        """Called when the producer's block is left."""


class InterceptorChain:
    """All interceptors of a producer, called in order; none can break a send (`client/INT-1` to `client/INT-6`)."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """The record after all interceptors, or None when one dropped it."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
            except Exception:
                logger.exception("%r failed in on_send; the record goes on unchanged", interceptor)
                continue
            if changed is None:
                return None
            record = changed
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Tell all."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                logger.exception("%r failed in on_acknowledgement", interceptor)

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Tell all."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_send_error(record, error)
            except Exception:
                logger.exception("%r failed in on_send_error", interceptor)

    def close(self) -> None:
        """Close all."""
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception:
                logger.exception("%r failed in close", interceptor)
