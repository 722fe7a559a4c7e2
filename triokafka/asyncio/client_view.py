"""What programs use of aiokafka's `AIOKafkaClient`: checks of a broker's health, and the cluster's metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from triokafka.asyncio.bridge import Bridge
from triokafka.asyncio.structs import BrokerMetadata
from triokafka.errors import KafkaError
from triokafka.network.cluster import Cluster
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.structs import TopicPartition


class ClusterMetadata:
    """Brokers, topics and partitions at one time."""

    def __init__(
        self,
        brokers: Iterable[BrokerMetadata],
        leaders: dict[str, dict[int, int]],
        internal: frozenset[str] = frozenset(),
    ) -> None:
        self._brokers = {broker.nodeId: broker for broker in brokers}
        self._leaders = leaders
        self._internal = internal

    def brokers(self) -> set[BrokerMetadata]:
        """Return all brokers."""
        return set(self._brokers.values())

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return a broker; None if it is unknown."""
        return self._brokers.get(broker_id)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the names of the known topics."""
        return set(self._leaders) - (self._internal if exclude_internal_topics else frozenset())

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions; None if it is unknown."""
        found = self._leaders.get(topic)
        return None if found is None else set(found)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions that have a leader; None if the topic is unknown."""
        found = self._leaders.get(topic)
        return None if found is None else {number for number, leader in found.items() if leader >= 0}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the leader's node id: -1 without a leader, None if the partition is unknown."""
        return self._leaders.get(partition.topic, {}).get(partition.partition)

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """Return the partitions that a broker leads; None if there are none."""
        return {
            TopicPartition(topic, number)
            for topic, leaders in self._leaders.items()
            for number, leader in leaders.items()
            if leader == broker_id
        } or None


class _Session(Protocol):
    """The session of a producer or consumer."""

    @property
    def network(self) -> NetworkClient:
        """The connections of the SDK's client. Raises when there is none."""
        ...


class ClientView:
    """The connections of a producer or consumer, in place of aiokafka's client.

    Methods raise as other calls do if the producer or consumer is not started, or was stopped.
    """

    def __init__(self, bridge: Bridge, session: _Session) -> None:
        self._bridge = bridge
        self._session = session

    @property
    def cluster(self) -> ClusterMetadata:
        """The metadata of the topics that the client uses."""
        return _of_snapshot(self._session.network.cluster)

    def get_random_node(self) -> int | None:
        """Return the node id of a broker, for `ready`; None if none is known."""
        nodes = list(self._session.network.cluster.nodes)
        return random.choice(nodes) if nodes else None

    async def ready(self, node_id: int, *, group: Any = None) -> bool:
        """Return whether the broker answers a request. Waits at most ``request_timeout_ms``."""
        try:
            await self._call(lambda network: network.send(node_id, ApiVersionsRequest()))
        except KafkaError:
            return False
        return True

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Ask a broker for the metadata of all topics. Raises `KafkaError` if none answers."""
        return _of_response(await self._call(_ask_for_all))

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Ask for the metadata now; the future has True, or False if no broker answered."""
        return self._in_background(lambda network: network.refresh_metadata())

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Learn a topic's metadata; the future as of `force_metadata_update`."""
        return self._in_background(lambda network: network.metadata_for([topic]))

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        cluster = await self._call(lambda network: network.metadata_for([topic]))
        return set(cluster.topics[topic].partitions)

    async def _call(self, work: Callable[[NetworkClient], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work(self._session.network)

        return await self._bridge.call(run)

    def _in_background(self, work: Callable[[NetworkClient], Awaitable[Any]]) -> asyncio.Future[bool]:
        async def run() -> bool:
            try:
                await self._call(work)
            except KafkaError:
                return False
            return True

        return self._bridge.loop.create_task(run())


def _of_snapshot(cluster: Cluster) -> ClusterMetadata:
    return ClusterMetadata(
        (BrokerMetadata(node.node_id, node.host, node.port, node.rack) for node in cluster.nodes.values()),
        {
            name: {number: partition.leader for number, partition in topic.partitions.items()}
            for name, topic in cluster.topics.items()
        },
        frozenset(name for name, topic in cluster.topics.items() if topic.is_internal),
    )


async def _ask_for_all(network: NetworkClient) -> MetadataResponse:
    def build(version: int) -> MetadataRequest:
        return MetadataRequest(topics=None if version else [], allow_auto_topic_creation=True)

    return await network.send_to_least_loaded(build, api=MetadataRequest)


def _of_response(response: MetadataResponse) -> ClusterMetadata:
    topics = [topic for topic in response.topics if topic.name is not None and not topic.error_code]
    return ClusterMetadata(
        (BrokerMetadata(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers),
        {
            str(topic.name): {partition.partition_index: partition.leader_id for partition in topic.partitions}
            for topic in topics
        },
        frozenset(str(topic.name) for topic in topics if topic.is_internal),
    )
