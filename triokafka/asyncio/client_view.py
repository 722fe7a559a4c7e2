"""The part of aiokafka's `AIOKafkaClient` that programs use: checks of brokers' health, and the cluster's metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from triokafka.asyncio.bridge import Bridge
from triokafka.asyncio.structs import BrokerMetadata
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition


class ClusterMetadata:
    """Brokers, topics and partitions at one time; ``snapshot`` is the SDK's."""

    def __init__(self, snapshot: Any) -> None:
        self._topics = snapshot.topics
        self._brokers = {
            node.node_id: BrokerMetadata(node.node_id, node.host, node.port, node.rack)
            for node in snapshot.nodes.values()
        }

    def brokers(self) -> set[BrokerMetadata]:
        """Return all brokers."""
        return set(self._brokers.values())

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return a broker; None if it is unknown."""
        return self._brokers.get(broker_id)

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the names of the known topics."""
        return {name for name, topic in self._topics.items() if not (exclude_internal_topics and topic.is_internal)}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions; None if it is unknown."""
        found = self._topics.get(topic)
        return None if found is None else set(found.partitions)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions that have a leader; None if the topic is unknown."""
        found = self._topics.get(topic)
        return None if found is None else set(found.available)

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the leader's node id: -1 without a leader, None if the partition is unknown."""
        topic = self._topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return None if found is None else int(found.leader)

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition] | None:
        """Return the partitions that a broker leads; None if there are none."""
        return {
            TopicPartition(name, number)
            for name, topic in self._topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader == broker_id
        } or None


class _Session(Protocol):
    """The session of a producer or consumer."""

    options: dict[str, Any]

    @property
    def network(self) -> Any:
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
    def _bootstrap_servers(self) -> list[str]:
        found: list[str] = self._session.options["bootstrap_servers"]  # for the instrumentation of OpenTelemetry
        return found

    @property
    def _client_id(self) -> str:
        return str(self._session.options["client_id"])

    @property
    def cluster(self) -> ClusterMetadata:
        """The metadata of the topics that the client uses."""
        return ClusterMetadata(self._session.network.cluster)

    def get_random_node(self) -> int | None:
        """Return the node id of a broker, for `ready`; None if none is known."""
        nodes = list(self._session.network.cluster.nodes)
        return random.choice(nodes) if nodes else None

    async def ready(self, node_id: int, *, group: Any = None) -> bool:
        """Return whether the broker answers a request. Waits at most ``request_timeout_ms``."""
        return bool(await self._call(lambda network: network.answers(node_id)))

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Ask a broker for the metadata of all topics. Raises `KafkaError` if none answers."""
        return ClusterMetadata(await self._call(lambda network: network.fetch_cluster()))

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Ask for the metadata now; the future has True, or False if no broker answered."""
        return self._in_background(lambda network: network.refresh_metadata())

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Learn a topic's metadata; the future as of `force_metadata_update`."""
        return self._in_background(lambda network: network.metadata_for([topic]))

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        cluster = await self._call(lambda network: network.metadata_for([topic]))
        return set(cluster.topics[topic].partitions)

    async def _call(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work(self._session.network)

        return await self._bridge.call(run)

    def _in_background(self, work: Callable[[Any], Awaitable[Any]]) -> asyncio.Future[bool]:
        async def run() -> bool:
            try:
                await self._call(work)
            except KafkaError:
                return False
            return True

        return self._bridge.loop.create_task(run())
