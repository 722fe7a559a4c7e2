"""``auto_offset_reset``: new positions for partitions whose position is not in the log, or that have none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from triokafka.client.consumer.log_offsets import LogOffsets
from triokafka.client.consumer.subscription_state import EARLIEST, LATEST, SubscriptionState
from triokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from triokafka.network.network_client import NetworkClient
from triokafka.structs import OffsetAndTimestamp, TopicPartition

logger = logging.getLogger(__name__)

RESET_POLICIES: Final[dict[str, int | None]] = {"earliest": EARLIEST, "latest": LATEST, "none": None}


def reset_out_of_range(
    subscription: SubscriptionState, partition: TopicPartition, error: OffsetOutOfRangeError
) -> None:
    """Request the reset of a position that the log does not have; raise ``error`` if the policy is ``none``."""
    reset = subscription.default_reset
    if reset is None:
        raise error
    logger.info("%s; resetting the position", error)
    subscription.request_reset(partition, reset)


class OffsetReset:
    """Looks up the offsets of requested resets. ``on_progress`` is called whenever a broker has answered."""

    def __init__(
        self,
        network: NetworkClient,
        subscription: SubscriptionState,
        log_offsets: LogOffsets,
        on_progress: Callable[[], None],
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._log_offsets = log_offsets
        self._on_progress = on_progress

    async def look_up(self, resets: list[tuple[TopicPartition, int, int]], deadline: float) -> list[KafkaError]:
        """Look up the offsets to reset to, and return the errors. Each position is used as soon as it is found."""
        wanted = {partition: (version, to) for partition, version, to in resets}
        late: dict[TopicPartition, int] = {}
        errors: list[KafkaError | None] = []

        def take(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> None:
            for partition, offset in found.items():
                version, to = wanted[partition]
                if offset is not None:
                    self._subscription.resolve(partition, version, offset.offset, offset.leader_epoch)
                    logger.info("position of %s reset to %d", partition, offset.offset)
                elif to >= 0:
                    late[partition] = version  # no record has such a late timestamp: start behind the last one
                else:
                    missing = NoOffsetForPartitionError(f"the leader of {partition} knows no such offset")
                    missing.partitions = frozenset([partition])
                    errors.append(missing)
            self._on_progress()

        def take_ends(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> None:
            for partition, end in found.items():
                if end is not None:
                    self._subscription.resolve(partition, late[partition], end.offset, end.leader_epoch)

        asked = {partition: to for partition, _, to in resets}
        errors.append(await self._log_offsets.offsets_as_they_come(asked, take, deadline=deadline))
        self._begin_missing_topics_at_the_start()
        if late:
            ends = dict.fromkeys(late, LATEST)
            errors.append(await self._log_offsets.offsets_as_they_come(ends, take_ends, deadline=deadline))
        return [error for error in errors if error is not None]

    def _begin_missing_topics_at_the_start(self) -> None:
        """Begin at the first record of a topic that does not exist yet, instead of at its end.

        All its records will have been sent after the program asked for the end.
        """
        metadata = self._network.metadata
        for partition, _, to in self._subscription.awaiting_reset():
            if (
                to == LATEST
                and partition.topic not in metadata.cluster.topics
                and isinstance(metadata.error_for(partition.topic), UnknownTopicOrPartitionError)
            ):
                self._subscription.request_reset(partition, EARLIEST)
