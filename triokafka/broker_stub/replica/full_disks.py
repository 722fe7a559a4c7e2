"""Partitions that this broker cannot write because a disk is full: their other replicas continue without it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from triokafka.broker_stub.log.log_disk_errors import is_full
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.replica.active_peers import has_active_peer
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class FullDisks:
    """Takes this broker out of in-sync sets when an append fails for lack of space.

    Otherwise producers with acks=all would get no acknowledgements: from a leader until there is space again, and
    because of an in-sync follower for ``replica.lag.time.max.ms``. A replica that cannot write the newest records does
    not come back into the in-sync set, so it does not lead again either. Once there is space, it catches up.

    Args:
        image: returns the metadata that this broker has applied.
        resign: see `BrokerLifecycle.resign`.
    """

    def __init__(self, node_id: int, image: Callable[[], MetadataImage], resign: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._image = image
        self._resign = resign

    def append_failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Handle a failed append of a leader or a follower; anything but a full disk is ignored."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or not is_full(cause):
            return
        image = self._image()
        state = image.partition(*topic_partition)
        if state is None or self._node_id not in state.isr:
            return
        if has_active_peer(image, topic_partition, self._node_id) and self._resign():
            logger.warning(
                "%s: the disk is full. Broker %d leaves the in-sync sets, and other replicas lead. Free space.",
                topic_partition,
                self._node_id,
            )
