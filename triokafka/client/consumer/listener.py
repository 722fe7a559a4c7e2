"""Plug-ins of a consumer: a rebalance listener, and interceptors. Their exceptions are logged and do not stop it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from triokafka.records import ConsumerRecord
from triokafka.structs import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Records = dict[TopicPartition, list[ConsumerRecord]]


class ConsumerRebalanceListener:
    """Called when partitions are assigned, revoked or lost. Subclass it, or give any object with some of these methods.

    Methods may be plain or async; they run in the task that asked for records, inside that call, and may use the
    consumer. Their exceptions are logged. A method that was cancelled is called again by the next call for
    records. Keep them short: the whole group may be waiting, and a member whose listener takes longer than
    ``max_poll_interval_ms`` leaves, so that the others can go on.
    """

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> Any:
        """The consumer is about to give these partitions up: the last moment to commit. Also called with none."""

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> Any:
        """The consumer has these partitions, and has fetched nothing of them yet: the moment to seek."""

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> Any:
        """These partitions may have other owners already; committing them will fail. Calls `on_partitions_revoked`."""
        return self.on_partitions_revoked(lost)


class ConsumerInterceptor:
    """Sees records just before they are handed out, and offsets after they were committed (KIP-42)."""

    def on_consume(self, records: Records) -> Records:
        """Return the records to hand out, the same or others."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called after a commit succeeded."""


def intercept_records(interceptors: Sequence[Any], records: Records) -> Records:
    """Pass records through every interceptor; one that raises is skipped."""
    for interceptor in interceptors:
        try:
            records = interceptor.on_consume(records)
        except Exception:
            logger.exception("on_consume of %r failed", interceptor)
    return records


def intercept_commit(interceptors: Sequence[Any], offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Call every interceptor after a commit."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:
            logger.exception("on_commit of %r failed", interceptor)
