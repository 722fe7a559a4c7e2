"""Interceptors: the user's code at both ends of a record's way through the producer (KIP-42)."""

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
    """A record as it was given to ``send``: key and value are not serialized yet; ``partition`` None is not chosen."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class ProducerInterceptor:
    """Base class; override what you need. What a method raises is logged, and the record goes on as it was before.

    That holds for every `Exception`. Others (``KeyboardInterrupt``, ``SystemExit``, a test's own outcome) leave
    ``send`` as they are, and nothing was accepted; out of `on_acknowledgement` they end the producer's block, after
    everybody else was told.
    """

    def configure(self, config: Mapping[str, Any]) -> None:
        """Told once, when the producer is made, what it was told; ``client_id`` and ``plugin_options`` included."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """Called first of all, in the sender's caller. Return the record, another one, or None to drop it.

        A dropped record is not sent, the interceptors behind do not see it, and no callback is called; its delivery
        resolves at once to metadata with partition and offset -1. What is no record is logged and passed over.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called when a record is acknowledged or has failed, before the user's callback and in the same task.

        It must not block. A record that failed has placeholder metadata: topic and partition, the rest -1.
        """

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Called when ``send`` raises, before the record was buffered; it raises ``error`` afterwards.

        ``record`` is as the interceptors left it, with the partition if one was chosen already. Not called when the
        send is cancelled.
        """

    def close(self) -> None:
        """Called when the producer's block is left."""


class InterceptorChain:
    """All interceptors of a producer, called in order; none can break a send."""

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = tuple(interceptors)
        # Who does not listen must not count as told of a failure, or nobody would be.
        self._listeners = tuple(one for one in self._interceptors if _listens(one))

    @property
    def listens(self) -> bool:
        """Whether anybody wants to hear of acknowledgements."""
        return bool(self._listeners)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord | None:
        """The record after all interceptors, or None when one dropped it."""
        if self._interceptors and type(record.headers) is list:
            record = replace(record, headers=tuple(record.headers))  # the caller's own list is not to be added to
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
            except Exception:
                logger.exception("%r failed in on_send; the record goes on unchanged", interceptor)
                continue
            if changed is None:
                return None
            if not isinstance(changed, ProducerRecord):
                logger.error(
                    "%r returned a %s from on_send, not a ProducerRecord; the record goes on unchanged",
                    interceptor,
                    type(changed).__name__,
                )
                continue
            record = changed
        return record

    def acknowledgement_for(self, topic_partition: TopicPartition) -> DeliveryCallback:
        """The callback that tells all of a record for this partition."""
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
        """Tell all, with the partition that had been chosen."""
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
