"""All fetchers of a broker: which one replicates which partition, from which leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import trio

from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.broker_stub.replica.replication_quota import ReplicationQuota
from triokafka.errors import KafkaError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import Node, TopicPartition
from triokafka.world import World

if TYPE_CHECKING:  # imported with the first partition that is followed: a single node needs none of it
    from triokafka.broker_stub.replica.fetcher.fetcher_task import FetcherTask, LeaderChannel
    from triokafka.security.client_security import ClientSecurity

logger = logging.getLogger(__name__)


class _FetcherKey(NamedTuple):
    leader_id: int
    fetcher_id: int


class FetcherManager:
    """The fetchers of one broker, by leader and fetcher id (``num.replica.fetchers``).

    Fetchers start with their first partition and end with their last. Before `run`, and for a leader without a known
    address, partitions wait; a later image starts them.
    """

    def __init__(
        self, node_id: int, world: World, hosted: HostedPartitions, traffic: ReplicaTraffic, quota: ReplicationQuota
    ) -> None:
        self._node_id = node_id
        self._world = world
        self._hosted = hosted
        self._traffic = traffic
        self._quota = quota
        self._fetchers: dict[_FetcherKey, FetcherTask] = {}
        self._nodes: dict[int, Node] = {}
        self._by_partition: dict[TopicPartition, FetcherTask] = {}
        self._waiting: dict[TopicPartition, Partition] = {}  # their leaders have no known address
        self._nursery: trio.Nursery | None = None
        self._settings: _Settings | None = None

    def __len__(self) -> int:
        return len(self._fetchers)

    def lags_by_fetcher(self) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
        """Yield each fetcher with Kafka's name of its thread: how many records its partitions lag, as far as known."""
        for key, fetcher in sorted(self._fetchers.items()):
            yield f"ReplicaFetcherThread-{key.fetcher_id}-{key.leader_id}", fetcher.state.lags()

    def least_requests_per_second(self, now: float) -> float:
        """Return the rate of answered fetches of the slowest fetcher; 0 without fetchers."""
        return min((fetcher.requests_per_second(now) for fetcher in self._fetchers.values()), default=0.0)

    def delayed(self, now: float) -> int:
        """Return the number of followed partitions whose next fetch is delayed after an error."""
        return sum(fetcher.state.delayed(now) for fetcher in self._fetchers.values())

    async def run(
        self,
        config: FetcherConfig,
        *,
        listener: str,
        image: Callable[[], MetadataImage],
        broker_epoch: Callable[[], int],
        connect: Callable[[Node], LeaderChannel] | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        """Run the fetchers until cancelled.

        Args:
            listener: the listener of the leaders to connect to (``inter.broker.listener.name``).
            connect: makes the connection to a leader; a `NodeChannel` when None.
            security: TLS and SASL of that listener; PLAINTEXT when None.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._settings = _Settings(config, listener, broker_epoch, connect or self._node_channel, security)
            try:
                self._start_waiting(image())
                await trio.sleep_forever()
            finally:
                self._nursery = None
                self._fetchers.clear()
                self._by_partition.clear()

    def reconfigure(self, config: FetcherConfig, image: MetadataImage) -> None:
        """Use other options; all fetchers start again when their number changes."""
        settings = self._settings
        if settings is None or settings.config == config:
            return
        self._settings = settings._replace(config=config)
        self._restart(list(self._by_partition), image)

    # -- the replicas' side (`ReplicaFetchers`)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """See `ReplicaFetchers`."""
        for topic_partition in topic_partitions:
            self._waiting.pop(topic_partition, None)
            fetcher = self._by_partition.pop(topic_partition, None)
            if fetcher is not None:
                fetcher.remove(topic_partition)
        self._end_idle()

    def follow(self, partitions: Iterable[Partition], image: MetadataImage) -> None:
        """See `ReplicaFetchers`."""
        partitions = list(partitions)
        if not partitions:
            return
        for partition in partitions:
            fetcher = self._by_partition.pop(partition.topic_partition, None)
            if fetcher is not None:
                fetcher.remove(partition.topic_partition)
            _truncate_without_epochs(partition, self._world.wall_ms())
            self._waiting[partition.topic_partition] = partition
        self._start_waiting(image)
        self._end_idle()

    def brokers_changed(self, image: MetadataImage) -> None:
        """See `ReplicaFetchers`."""
        for leader_id, node in list(self._nodes.items()):
            now = self._address(leader_id, image)
            if now is not None and now != node:
                keys = [key for key in self._fetchers if key.leader_id == leader_id]
                moved = [
                    tp
                    for tp, fetcher in self._by_partition.items()
                    if any(self._fetchers[key] is fetcher for key in keys)
                ]
                self._restart(moved, image)
        if self._waiting:
            self._start_waiting(image)

    # -- starting and ending fetchers

    def _restart(self, topic_partitions: list[TopicPartition], image: MetadataImage) -> None:
        partitions = [self._hosted.online.get(key) for key in topic_partitions]
        self.remove(topic_partitions)
        self.follow([partition for partition in partitions if partition is not None], image)

    def _start_waiting(self, image: MetadataImage) -> None:
        settings = self._settings
        if settings is None:
            return
        starting: dict[_FetcherKey, list[Partition]] = {}
        for topic_partition, partition in list(self._waiting.items()):
            if partition.is_leader or self._address(partition.leader_id, image) is None:
                continue
            del self._waiting[topic_partition]
            number = _fetcher_id(topic_partition, settings.config.num_fetchers)
            starting.setdefault(_FetcherKey(partition.leader_id, number), []).append(partition)
        for key, partitions in starting.items():
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                node = self._address(key.leader_id, image)
                assert node is not None
                fetcher = self._start(key, node, settings)
            for partition in partitions:
                self._by_partition[partition.topic_partition] = fetcher
            fetcher.add(partitions)

    def _start(self, key: _FetcherKey, node: Node, settings: _Settings) -> FetcherTask:
        from triokafka.broker_stub.replica.fetcher.fetcher_state import FetcherState
        from triokafka.broker_stub.replica.fetcher.fetcher_task import FetcherTask
        from triokafka.broker_stub.replica.fetcher.follower_log import FollowerLog

        config = settings.config
        quota, now = self._quota, self._world.now
        state = FetcherState(
            max_bytes=config.fetch_max_bytes,
            backoff_seconds=config.fetch_backoff_ms / 1000,
            throttled=lambda topic_partition: quota.holds_back(topic_partition, now()),
        )
        data = FollowerLog(
            state,
            self._hosted,
            self._traffic,
            node_id=self._node_id,
            wall_ms=self._world.wall_ms,
            throttle=lambda topic_partition, size: quota.record(topic_partition, size, now()),
        )
        name = (
            f"replica fetcher {key.fetcher_id} of broker {self._node_id} from {node.address} (broker {key.leader_id})"
        )
        fetcher = FetcherTask(
            name,
            state,
            data,
            settings.connect(node),
            config,
            self._world,
            node_id=self._node_id,
            broker_epoch=settings.broker_epoch,
            until_flushed=self._hosted.until_flushed,
        )
        self._fetchers[key] = fetcher
        self._nodes[key.leader_id] = node
        assert self._nursery is not None
        self._nursery.start_soon(fetcher.run)
        return fetcher

    def _end_idle(self) -> None:
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher.state):
                del self._fetchers[key]
                fetcher.cancel_scope.cancel()
        for leader_id in list(self._nodes):
            if not any(key.leader_id == leader_id for key in self._fetchers):
                del self._nodes[leader_id]

    def _address(self, leader_id: int, image: MetadataImage) -> Node | None:
        """Return the address of a broker that is up, on the listener for connections between brokers."""
        broker = image.brokers.get(leader_id)
        settings = self._settings
        if broker is None or broker.fenced or settings is None:
            return None
        for endpoint in broker.endpoints:
            if endpoint.name == settings.listener:
                return Node(leader_id, endpoint.host, endpoint.port, broker.rack)
        return None

    def _node_channel(self, node: Node) -> LeaderChannel:
        from triokafka.network.node_channel import NodeChannel

        settings = self._settings
        assert settings is not None
        return NodeChannel(
            node,
            world=self._world,
            client_id=f"broker-{self._node_id}-fetcher",
            request_timeout_ms=settings.config.socket_timeout_ms,
            security=settings.security,
        )


class _Settings(NamedTuple):
    config: FetcherConfig
    listener: str
    broker_epoch: Callable[[], int]
    connect: Callable[[Node], LeaderChannel]
    security: ClientSecurity | None = None


def _truncate_without_epochs(partition: Partition, now_ms: int) -> None:
    """Truncate a log without leader epochs to its high watermark: its leader cannot say where the two diverge."""
    log = partition.log
    if log.leader_epochs.latest < 0 and log.log_end_offset > partition.high_watermark:
        try:
            partition.truncate_as_follower(partition.high_watermark, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        except KafkaError as error:
            logger.error("%s: truncating to the high watermark failed: %s", partition.topic_partition, error)


def _fetcher_id(topic_partition: TopicPartition, fetchers: int) -> int:
    """Return the fetcher of a partition: the same after every restart, so not by Python's hash."""
    value = 0
    for byte in topic_partition.topic.encode():
        value = (31 * value + byte) & 0x7FFFFFFF
    return (31 * value + topic_partition.partition) % fetchers
