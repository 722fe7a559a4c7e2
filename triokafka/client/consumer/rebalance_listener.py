"""The rebalance listener, a plug-in of the consumer. Its exceptions are logged and do not stop the consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triokafka.structs import TopicPartition


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
