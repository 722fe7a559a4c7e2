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
    """Called when partitions are assigned, revoked or lost. Subclass it, or pass any object with some of these methods.

    Methods may be plain or async. They run in the task that asked for records, inside that call, and may use the
    consumer. Their exceptions are logged. A cancelled method is called again by the next call for records. Keep them
    short: the whole group may be waiting, and a member whose listener takes longer than ``max_poll_interval_ms``
    leaves, so that the others can continue.
    """

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> Any:
        """Called before these partitions are revoked: the last moment to commit. Also called without partitions."""

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> Any:
        """Called after these partitions were assigned and before they are fetched: the moment to seek."""

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> Any:
        """Called when other members may own these partitions already; a commit would fail. Calls
        `on_partitions_revoked`."""
        return self.on_partitions_revoked(lost)


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
            logger.exception("on_consume of %r failed", interceptor)
    return records


def intercept_commit(interceptors: Sequence[Any], offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Call every interceptor after a commit."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:
            logger.exception("on_commit of %r failed", interceptor)
