"""Validates that the log of a range still has the records for which the range was chosen. Pure: it receives metadata,
returns the positions to validate with leaders, and finds partitions that have other records now.

Two events replace the wanted records by others. A topic is deleted and recreated, which its id shows (KIP-516). Or a
replica that was not in sync becomes leader and the log is truncated, which leader epochs show (KIP-320).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from triokafka.client.consumer.fetch_buffer import FetchBuffer
from triokafka.client.consumer.log_offsets import LogEpochEnd
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.network.cluster import Cluster
from triokafka.structs import TopicPartition

_UNKNOWN = -1


class Suspect(NamedTuple):
    """A position to compare with a new leader's log: its state's version, and the epoch of the last record read."""

    version: int
    epoch: int


class _Doubt(NamedTuple):
    """A topic with another id in one answer: the metadata's version then, and the next offset of each partition."""

    version: int
    firsts: dict[TopicPartition, int]


class RangeValidation:
    """Validates the partitions of one reader after the other.

    A partition in doubt is paused: its records are neither fetched nor returned.
    """

    def __init__(self, subscription: SubscriptionState, buffer: FetchBuffer) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._ids: dict[str, UUID] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._doubts: dict[str, _Doubt] = {}
        self.recreated: dict[TopicPartition, int] = {}
        """Partitions of recreated topics, with the first offset that was not fetched before. Records from there on
        belong to the new topic."""
        self.truncated: dict[TopicPartition, int] = {}
        """Partitions whose log was cut below the position, with the offset up to which it equals the records that were
        read; -1 if unknown."""

    def begin(self, ids: Mapping[str, UUID], cluster: Cluster, version: int) -> None:
        """Start a reader with the partitions that are assigned now.

        Args:
            ids: known ids of the topics from the time when the ranges were chosen.
            cluster: the present metadata, which may be old.
            version: the version of that metadata.
        """
        self.end()
        self._ids.update(ids)
        for partition, _ in self._subscription:
            self._epochs[partition] = cluster.leader_epoch_for(partition)
        for topic, known in cluster.ids_of(ids)[0].items():
            if known != ids[topic]:
                # Either this metadata is old, or the topic was recreated: the next answers show which.
                self._hold(topic, version + 1)

    def end(self) -> None:
        """Forget all partitions, at the end of the reader."""
        self._ids.clear()
        self._epochs.clear()
        self._doubts.clear()
        self.recreated.clear()
        self.truncated.clear()

    def knows(self, topic: str) -> bool:
        """Whether the id of a topic is known, so that another id shows that it was recreated."""
        return topic in self._ids

    @property
    def doubts(self) -> bool:
        """Whether another answer is needed to be sure of some topic."""
        return bool(self._doubts)

    def passed_over(self, partition: TopicPartition) -> None:
        """Let the reader continue in the current log."""
        self.recreated.pop(partition, None)
        self.truncated.pop(partition, None)

    # ---------------------------------------------------------------- metadata

    def look_at(self, cluster: Cluster, version: int) -> bool:
        """Take new metadata. Returns whether another answer is needed to be sure."""
        for topic in {partition.topic: None for partition in self._subscription.assignment}:
            self._look_at_id(topic, cluster, version)
        for partition, state in self._subscription:
            epoch = cluster.leader_epoch_for(partition)
            before = self._epochs.get(partition, _UNKNOWN)
            if epoch <= before or partition.topic in self._doubts or partition in self.recreated:
                continue
            self._epochs[partition] = epoch
            if before < 0 or state.position is None or partition in self.truncated:
                continue
            # Buffered data of the former leader may have been cut off: it is fetched again.
            read_in = state.position_epoch
            self._subscription.seek(partition, state.position, read_in)
            state.validating = read_in >= 0
        return bool(self._doubts)

    def _look_at_id(self, topic: str, cluster: Cluster, version: int) -> None:
        now = cluster.ids_of((topic,))[0].get(topic)
        if now is None:
            return
        doubt = self._doubts.get(topic)
        if now == self._ids.setdefault(topic, now):
            if doubt is not None:  # the broker with the other id had old metadata
                self._release(topic)
        elif doubt is None:
            self._hold(topic, version)
        elif version > doubt.version:
            # Two answers agree. A single one may come from a broker with old metadata, which names the former topic.
            self._ids[topic] = now
            self._release(topic)
            for partition, first in doubt.firsts.items():
                if partition in self._subscription:
                    self._epochs[partition] = cluster.leader_epoch_for(partition)
                    self.truncated.pop(partition, None)
                    self.recreated[partition] = min(first, self._fetched(partition))

    def _hold(self, topic: str, version: int) -> None:
        theirs = [partition for partition in self._subscription.assignment if partition.topic == topic]
        self._doubts[topic] = _Doubt(version, {partition: self._fetched(partition) for partition in theirs})
        self._subscription.pause(theirs)

    def _release(self, topic: str) -> None:
        del self._doubts[topic]
        self._subscription.resume(
            [partition for partition in self._subscription.assignment if partition.topic == topic]
        )

    def _fetched(self, partition: TopicPartition) -> int:
        state = self._subscription.state(partition)
        fetched = self._buffer.fetch_offset(partition, state)
        return fetched if fetched is not None else state.position or 0

    # ---------------------------------------------------------------- leader epochs

    def suspects(self) -> dict[TopicPartition, Suspect]:
        """Return positions to compare with the logs of new leaders."""
        return {
            partition: Suspect(version, epoch)
            for partition, version, epoch in self._subscription.awaiting_validation()
            if partition not in self.truncated
        }

    def compared(
        self, suspects: Mapping[TopicPartition, Suspect], ends: Mapping[TopicPartition, LogEpochEnd] | None
    ) -> None:
        """Take the ends of those positions' epochs in the leaders' logs; None if the leaders cannot say."""
        for partition, (version, epoch) in suspects.items():
            state = self._subscription.get(partition)
            if state is None or state.version != version or state.position is None:
                continue
            end = ends[partition] if ends is not None else None
            # The leader lacks an epoch that was cut off as a whole; it then answers with the one before.
            if end is not None and (end.end_offset < state.position or end.epoch < epoch):
                self.truncated[partition] = end.end_offset
            else:
                self._subscription.validated(partition, version, self._epochs.get(partition, _UNKNOWN))
