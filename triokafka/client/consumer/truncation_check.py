"""Whether the log that a consumer reads was truncated below its position (KIP-320).

A new leader may not have the last records of the former one. Before a consumer reads on from a new leader, it asks for
the end of the epoch of the last record that it read; a position behind that end is not in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from triokafka.client.consumer.log_offsets import LogEpochEnd, LogOffsets
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.errors import KafkaError, LogTruncationError, UnsupportedVersionError
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

#: A partition, the version of its position, and the epoch of the last record before it.
Suspect = tuple[TopicPartition, int, int]


class TruncationCheck:
    """Validates positions. ``on_progress`` is called whenever a broker has answered."""

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

    async def validate(self, suspects: Sequence[Suspect], deadline: float) -> KafkaError | None:
        """Ask the new leaders whether their logs contain the records read from the old leaders; return an error.

        A position that is not in the log moves to where the logs differ, or is reset. Without ``auto_offset_reset`` it
        stays, and the error is a `LogTruncationError` that names its partition.
        """
        cluster = self._network.cluster
        current = {partition: cluster.leader_epoch_for(partition) for partition, _, _ in suspects}
        versions = {partition: version for partition, version, _ in suspects}
        truncated: dict[tuple[str, int], int | None] = {}
        places: list[str] = []

        def take(ends: Mapping[TopicPartition, LogEpochEnd]) -> None:
            for partition, end in ends.items():
                state = self._subscription.get(partition)
                if state is None or state.version != versions[partition] or state.position is None:
                    continue
                same = self._subscription.same_until(partition, *end)
                if same is not None and same.offset >= state.position:
                    self._subscription.validated(partition, versions[partition], current[partition])
                    continue
                reset = self._subscription.default_reset
                if reset is None:
                    # It stays unvalidated and is not read: its position may have other records now.
                    truncated[partition] = same.offset if same is not None else None
                    known = "an unknown offset" if same is None else f"offset {same.offset}"
                    places.append(
                        f"{partition} at position {state.position}, and the log equals the records read up to {known}"
                    )
                elif same is not None:
                    logger.warning(
                        "%s: the log was truncated below the position %d; reading continues where it differs",
                        partition,
                        state.position,
                    )
                    self._subscription.seek(partition, same.offset, same.leader_epoch)
                else:
                    self._subscription.request_reset(partition, reset)
            self._on_progress()

        error = await self._log_offsets.epoch_ends_as_they_come(
            {partition: epoch for partition, _, epoch in suspects}, take, deadline=deadline
        )
        if isinstance(error, UnsupportedVersionError):
            for partition, version, _ in suspects:
                self._subscription.validated(partition, version, current[partition])
            return None
        if truncated:
            cut = LogTruncationError(
                f"the log was truncated below the position: {'; '.join(places)}; seek, or set auto_offset_reset"
            )
            cut.divergent_offsets = truncated
            return cut
        return error
