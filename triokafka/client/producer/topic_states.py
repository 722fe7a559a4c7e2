"""The topics that a producer sends to, learned from metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.partitioner import RecordPartitioner
from triokafka.client.producer.topic_state import TopicState
from triokafka.errors import KafkaError, MetadataNotReadyError, UnknownTopicOrPartitionError
from triokafka.network.cluster import Cluster, TopicMetadata
from triokafka.network.network_client import NetworkClient
from triokafka.topic_names import check_topic_name
from triokafka.world import World


class TopicStates:
    """The state of each topic, ``by_name``. ``check_usable`` raises when the producer is closed or has failed."""

    def __init__(
        self,
        accumulator: Accumulator,
        client: NetworkClient,
        partitioner: RecordPartitioner,
        *,
        world: World,
        check_usable: Callable[[], None],
    ) -> None:
        self.by_name: dict[str, TopicState] = {}
        self._accumulator = accumulator
        self._client = client
        self._partitioner = partitioner
        self._world = world
        self._check_usable = check_usable
        client.metadata.add_listener(self._metadata_changed)

    def find(self, topic: str, partition: int | None) -> TopicState | None:
        """Return the topic's state, or None if the topic or the partition is unknown and the caller must `learn` it.

        Raises:
            TypeError, ValueError: the topic or the partition is invalid.
        """
        known = self._checked(topic, partition)
        if known is not None and partition is not None and partition not in known.partitions:
            return None
        return known

    async def learn(self, topic: str, partition: int | None, give_up_at: float) -> TopicState:
        """Return the topic's state; wait until ``give_up_at`` for its metadata if it is unknown.

        An unknown partition may be new, so the metadata is refreshed before the call raises.
        """
        known = self._checked(topic, partition)
        if known is None:
            left = max(0.0, give_up_at - self._world.now())
            try:
                cluster = await self._client.metadata_for([topic], timeout_ms=left * 1000)
            except KafkaError:
                self._check_usable()  # the producer's own failure says more than the network client's
                raise
            self._check_usable()
            known = self._state_of(cluster.topics[topic])
        if partition is not None and partition not in known.partitions:
            left = max(0.0, give_up_at - self._world.now())
            cluster = await self._client.refresh_metadata(timeout_ms=left * 1000)
            self._check_usable()
            if topic not in cluster.topics:
                return await self.learn(topic, partition, give_up_at)  # deleted; it may be created again
            known = self.known_now(topic, partition)
        return known

    def known_now(self, topic: str, partition: int | None = None) -> TopicState:
        """Return the topic's state without waiting. Raises `MetadataNotReadyError`, `UnknownTopicOrPartitionError`."""
        known = self._checked(topic, partition)
        if known is None:
            found = self._client.cluster.topics.get(topic)
            if found is None:
                self._client.metadata.use_topic(topic, self._world.now())
                self._client.metadata.request_topics([topic])
                raise MetadataNotReadyError(
                    f"the partitions of {topic!r} are not known yet; wait for the metadata, or await send instead"
                )
            known = self._state_of(found)
        if partition is not None and partition not in known.partitions:
            count = len(known.partitions)
            raise UnknownTopicOrPartitionError.of_partition(
                f"topic {topic!r} has no partition {partition}: it has {count}, numbered from 0"
            )
        return known

    def _checked(self, topic: Any, partition: Any) -> TopicState | None:
        """Return the topic's state if it is known; raise for an invalid topic or partition."""
        known = self.by_name.get(topic) if isinstance(topic, str) else None
        if known is None:
            _check_topic(topic)
        if partition is not None and (type(partition) is not int or partition < 0):
            _check_partition(partition)
        return known

    def _state_of(self, topic: TopicMetadata) -> TopicState:
        known = self.by_name.get(topic.name)
        if known is None:
            known = self.by_name[topic.name] = TopicState(
                topic, self._accumulator, self._partitioner, self._world.random.random
            )
        return known

    def _metadata_changed(self, cluster: Cluster) -> None:
        for name in list(self.by_name) if cluster.changed is None else cluster.changed:
            known = self.by_name.get(name)
            topic = cluster.topics.get(name)
            if known is None or topic is known.described:
                continue
            if topic is None or len(topic.partitions) < len(known.partitions):
                del self.by_name[name]  # deleted, created again, or expired: the next send asks again
            else:
                known.update(topic)


def _check_topic(topic: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic={topic!r} is not the name of a topic")
    if not topic:
        raise ValueError("topic='' is not the name of a topic")
    check_topic_name(topic)


def _check_partition(partition: Any) -> None:
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise TypeError(f"partition={partition!r} is not the number of a partition")
    if partition < 0:
        raise ValueError(f"partition={partition!r} is not the number of a partition: numbers start at 0")
