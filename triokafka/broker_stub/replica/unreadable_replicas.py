"""Partitions of coordinators that this broker leads and cannot read: another in-sync replica coordinates."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.replica.active_peers import has_active_peer
from triokafka.errors import CorruptRecordError
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 60.0
"""How long this broker leads such a partition before it gives it up again: it may be elected again and again."""


class UnreadableReplicas:
    """Gives up the leaderships of this broker when the coordinator of one cannot load, because its records are damaged.

    Otherwise its groups or transactions would wait for a repair, although other replicas have the records.

    Args:
        image: returns the metadata that this broker has applied.
        resign: see `BrokerLifecycle.resign`.
        now: returns the seconds on the world's clock.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        resign: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._resign = resign
        self._now = now
        self._resigned_at: dict[TopicPartition, float] = {}

    def reading_failed(self, topic_partition: TopicPartition, error: CorruptRecordError) -> None:
        """Move the leadership to another in-sync replica, if there is one, and unless this broker has just done so."""
        image = self._image()
        state = image.partition(*topic_partition)
        if state is None or state.leader != self._node_id:
            return
        now = self._now()
        if now < self._resigned_at.get(topic_partition, -_PAUSE_SECONDS) + _PAUSE_SECONDS:
            return
        if has_active_peer(image, topic_partition, self._node_id) and self._resign():
            self._resigned_at[topic_partition] = now
            logger.warning(
                "%s: this replica cannot be read: %s. Broker %d leaves the in-sync sets, and other replicas lead. Stop "
                "it and remove the folder of the partition; it then gets the records from the other replicas.",
                topic_partition,
                error,
                self._node_id,
            )
