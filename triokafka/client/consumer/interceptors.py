"""Interceptors of a consumer, before records are returned and after offsets were committed (KIP-42).

Their exceptions are logged and do not stop the consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from triokafka.records import ConsumerRecord
from triokafka.structs import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Records = dict[TopicPartition, list[ConsumerRecord]]
"""Records by partition, as `Consumer.poll` returns them."""


class ConsumerInterceptor:
    """Processes records just before they are returned, and offsets after they were committed (KIP-42)."""

    def on_consume(self, records: Records) -> Records:
        """Return the records for the user, the same or others."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after a commit succeeded."""


def intercept_records(interceptors: Sequence[Any], records: Records) -> Records:
    """Pass records through every interceptor; one that raises is skipped."""
    for interceptor in interceptors:
        try:
            records = interceptor.on_consume(records)
        except Exception:
            logger.exception("%r failed in on_consume; the records are returned as they were", interceptor)
    return records


def intercept_commit(interceptors: Sequence[Any], offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Call every interceptor after a commit."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:
            logger.exception("%r failed in on_commit", interceptor)
