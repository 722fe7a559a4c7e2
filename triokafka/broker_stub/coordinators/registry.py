"""The coordinators of one broker, by topic and by key type. They follow the metadata image and the replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from triokafka.broker_stub.coordinators.coordinator_entry import CoordinatorEntry
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime

_IMMEDIATE_LOAD_BYTES: Final = 65_536
"""A coordinator loads logs of up to this size in total before the change of leadership is complete."""


class CoordinatorRegistry:
    """The coordinators of one broker.

    Args:
        log_size: returns the size in bytes of the log of a partition that this broker leads.
    """

    def __init__(self, entries: Iterable[CoordinatorEntry[Any]], *, log_size: Callable[[TopicPartition], int]) -> None:
        self._by_topic = {entry.topic.name: entry for entry in entries}
        self._by_key_type: dict[int, CoordinatorEntry[Any]] = {
            entry.key_type: entry for entry in self._by_topic.values()
        }
        self._log_size = log_size

    def __iter__(self) -> Iterator[CoordinatorEntry[Any]]:
        return iter(self._by_topic.values())

    def for_topic(self, topic: str) -> CoordinatorEntry[Any] | None:
        """Return the coordinator whose state the topic stores; None for any other topic."""
        return self._by_topic.get(topic)

    def for_key_type(self, key_type: int) -> CoordinatorEntry[Any] | None:
        """Return the coordinator of a key type of FindCoordinator; None when this broker has none."""
        return self._by_key_type.get(key_type)

    def runtimes(self) -> list[CoordinatorRuntime[Any, Any]]:
        """Return the runtimes of the coordinators that exist."""
        return [entry.existing.runtime for entry in self if entry.existing is not None]

    # --- the broker's side ---

    def topics_created(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note the number of partitions of internal topics that are new in ``image``.

        The topic's number of partitions takes precedence over the configuration: a later change of the option must not
        move keys.
        """
        for name, entry in self._by_topic.items():
            topic = image.topics.get(name)
            if topic is not None and name not in delta.base.topics:
                entry.coordinator.runtime.partitions = len(topic.partitions)

    def replicas_changed(self, changes: Iterable[LeadershipChange], delta: MetadataDelta) -> None:
        """Load and unload shards after the replicas followed ``delta``, and forget the topics that it deleted."""
        for entry in self:
            if entry.existing is None:
                continue
            self._lead(entry, [change for change in changes if change.topic_partition.topic == entry.topic.name])
            if delta.deleted_topics:
                entry.existing.runtime.topics_deleted(
                    {topic_id: topic.name for topic_id, topic in delta.deleted_topics.items()}
                )

    def replica_reopened(self, change: LeadershipChange) -> None:
        """Give a partition that is online again the role that the image gave it meanwhile."""
        entry = self._by_topic.get(change.topic_partition.topic)
        if entry is not None:
            self._lead(entry, [change])

    def _lead(self, entry: CoordinatorEntry[Any], changes: Iterable[LeadershipChange]) -> None:
        runtime = entry.coordinator.runtime
        unread_bytes, was_loading = 0, runtime.is_loading
        for change in changes:
            if change.leads:
                runtime.load(change.topic_partition.partition, change.leader_epoch)
                unread_bytes += self._log_size(change.topic_partition)
            else:
                runtime.unload(change.topic_partition.partition)
        if unread_bytes <= _IMMEDIATE_LOAD_BYTES and not was_loading:
            # Loaded before the first request, clients need not retry.
            runtime.load_all()

    def high_watermark_changed(self, topic_partition: TopicPartition, offset: int) -> None:
        """Release the answers that waited for records below ``offset``."""
        entry = self._by_topic.get(topic_partition.topic)
        if entry is not None:
            entry.coordinator.runtime.high_watermark_changed(topic_partition.partition, offset)

    def logs_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Unload the shards whose logs are offline."""
        for topic, number in topic_partitions:
            entry = self._by_topic.get(topic)
            if entry is not None:
                entry.coordinator.runtime.unload(number)
