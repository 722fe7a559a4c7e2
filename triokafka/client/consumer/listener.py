"""What users can hang into a consumer: a rebalance listener, and interceptors. What fails in them is logged, and does
not stop the consumer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from triokafka.records import ConsumerRecord
from triokafka.structs import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Records = dict[TopicPartition, list[ConsumerRecord]]


class ConsumerRebalanceListener:
    """Told when partitions come and go. Subclass it, or give any object that has some of these methods.

    Methods may be plain or async; they run in the task that asked for records, inside that call, and may use the
    consumer. What they raise is logged. When such a method is cancelled it is called again by the next call for
    records. Keep them short: the whole group may be waiting, and a member whose listener takes longer than
    ``max_poll_interval_ms`` leaves, so that the others can go on.
    """

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> Any:
        """These partitions are about to go: the last moment to commit them. Also called with nothing to revoke."""

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> Any:
        """These partitions have come, nothing of them was fetched yet: the moment to seek."""

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> Any:
        """These partitions may have other owners already; committing them will fail. Calls `on_partitions_revoked`."""
        return self.on_partitions_revoked(lost)


class ConsumerInterceptor:
    """Sees records just before they are handed out, and offsets after they were committed (KIP-42)."""

    def on_consume(self, records: Records) -> Records:
        """May return other records than it was given."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Told after a commit succeeded."""


def intercept_records(interceptors: Sequence[Any], records: Records) -> Records:
    """Pass records through every interceptor; one that raises is passed over."""
    for interceptor in interceptors:
        try:
            records = interceptor.on_consume(records)
        except Exception:
            logger.exception("on_consume of %r failed", interceptor)
    return records


def intercept_commit(interceptors: Sequence[Any], offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """Tell every interceptor about a commit."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception:
            logger.exception("on_commit of %r failed", interceptor)
