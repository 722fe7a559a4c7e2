"""Interceptors: user code before a record is sent and after it is acknowledged (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from triokafka.client.producer.batch import DeliveryCallback
from triokafka.structs import RecordMetadata, TopicPartition

logger = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """The arguments of ``send``: key and value are not serialized; ``partition`` may be None."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class ProducerInterceptor:
    """Base class; override the methods you need. The producer logs an `Exception` of a method and keeps the record.

    Other errors (``KeyboardInterrupt``, ``SystemExit``) propagate from ``send``, which then accepts no record. In
    `on_acknowledgement` they end the producer's block, after all other callbacks.
    """

    def configure(self, config: Mapping[str, Any]) -> None:
        """Receive the producer's options, ``client_id`` and ``plugin_options`` once, at construction."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record, another one, or None to drop it. Called before serialization, in the sending task.

        A dropped record is not sent; later interceptors and callbacks are not called. Its delivery is settled at
        once, with partition and offset -1. The producer logs and ignores a result of another type.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Observe a record that is acknowledged or has failed. Called before the user's callback, in the same task.

        It must not block. The metadata of a failed record has only topic and partition; the rest is -1.
        """

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Observe a failed ``send`` whose record was not buffered; ``send`` raises ``error`` afterwards.

        ``record`` is the result of the interceptors, with the partition if one was chosen. Not called when the send is
        cancelled.
        """

    def close(self) -> None:
        """Called when the producer's block is left."""


class InterceptorChain:
    """All interceptors of a producer, called in order; their exceptions never fail a send."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = tuple(interceptors)
        # An interceptor without on_acknowledgement must not mark failures as observed.
        self._listeners = tuple(one for one in self._interceptors if _listens(one))

    @property
    def listens(self) -> bool:
        """Whether any interceptor implements `on_acknowledgement`."""
        return bool(self._listeners)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Return the record after all interceptors, or None when one dropped it."""
        if self._interceptors and type(record.headers) is list:
            record = replace(
                record, headers=tuple(record.headers)
            )  # interceptors must not extend the caller's own list
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
            except Exception:
                logger.exception("%r failed in on_send; the record is sent unchanged", interceptor)
                continue
            if changed is None:
                return None
            if not isinstance(changed, ProducerRecord):
                logger.error(
                    "%r returned a %s from on_send, not a ProducerRecord; the record is sent unchanged",
                    interceptor,
                    type(changed).__name__,
                )
                continue
            record = changed
        return record

    def acknowledgement_for(self, topic_partition: TopicPartition) -> DeliveryCallback:
        """Return the callback that calls all interceptors for a record of this partition."""
        return partial(self._on_acknowledgement, topic_partition)

    def _on_acknowledgement(
        self, topic_partition: TopicPartition, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        if metadata is None:
            metadata = RecordMetadata(topic_partition.topic, topic_partition.partition, -1, -1)
        for interceptor in self._listeners:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                logger.exception("%r failed in on_acknowledgement", interceptor)

    def on_send_error(self, record: ProducerRecord, error: Exception, chosen: TopicPartition | None) -> None:
        """Call all interceptors, with the partition that had been chosen."""
        if chosen is not None and self._interceptors:
            record = replace(record, partition=chosen.partition)
        for interceptor in self._interceptors:
            try:
                interceptor.on_send_error(record, error)
            except Exception:
                logger.exception("%r failed in on_send_error", interceptor)


def _listens(interceptor: ProducerInterceptor) -> bool:
    return type(
        interceptor
    ).on_acknowledgement is not ProducerInterceptor.on_acknowledgement or "on_acknowledgement" in vars(interceptor)
