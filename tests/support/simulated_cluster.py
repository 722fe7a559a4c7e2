"""Whole nodes in the simulated world: each on a host of its own, with its disk, its clock and its network.

Every node has the same configuration as in production, with short time limits. By default all are broker and
controller.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

import triokafka
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.meta_properties import open_directories
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.node import Node
from triokafka.errors import InvalidReplicationFactorError, KafkaError, TopicAlreadyExistsError
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition
from triokafka.testing import SimulatedWorld, Simulation

CLUSTER_ID = "simulated-cluster-0000"
BOTH = ("broker", "controller")
DATA = "/data"
SESSION_SECONDS = 3.0
_SETTINGS: Mapping[str, Any] = {
    "default_replication_factor": 3,
    "min_insync_replicas": 2,
    "offsets_topic_replication_factor": 3,
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "transaction_state_log_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
    "broker_session_timeout_ms": int(SESSION_SECONDS * 1000),
    "broker_heartbeat_interval_ms": 500,
    "replica_lag_time_max_ms": 4_000,
    "auto_leader_rebalance_enable": False,
    "unclean_leader_election_enable": False,
}


class SimulatedNode:
    """One host and the node that runs on it; ``node`` is None while none runs."""

    def __init__(
        self,
        simulation: Simulation,
        number: int,
        roles: Sequence[str],
        voters: Sequence[str],
        settings: Mapping[str, Any],
    ) -> None:
        self.number = number
        self.name = f"node-{number}"
        self.host = simulation.host(self.name)
        self.is_broker = "broker" in roles
        self.node: Node | None = None
        self._stop = trio.Event()
        self._stopped = trio.Event()
        listeners = {"broker": f"PLAINTEXT://{self.name}:9092", "controller": f"CONTROLLER://{self.name}:9093"}
        self._settings = {
            **_SETTINGS,
            "node_id": number,
            "process_roles": tuple(roles),
            "listeners": tuple(listeners[role] for role in roles),
            "listener_security_protocol_map": ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
            "controller_listener_names": ("CONTROLLER",),
            "controller_quorum_voters": tuple(voters),
            "log_dirs": (DATA,),
            **settings,
        }

    @property
    def address(self) -> str:
        """The address of its broker."""
        return f"{self.name}:9092"

    @property
    def running(self) -> bool:
        """Whether a node runs on the host, also one that is starting."""
        return not self._stopped.is_set() and not self.host.world.is_halted

    @property
    def running_node(self) -> Node:
        """The node; it must have started."""
        assert self.node is not None, f"{self.name} is stopped"
        return self.node

    @property
    def image(self) -> MetadataImage:
        """The node's own metadata."""
        return self.running_node.metadata.image

    def configure(self, **settings: Any) -> None:
        """Change settings; the next start uses them."""
        self._settings |= settings

    def start(self) -> None:
        """Start the node's process."""
        self._stop, self._stopped = trio.Event(), trio.Event()
        self.host.start(self._serve)

    async def wait_started(self) -> None:
        """Wait until the node serves, for at most a simulated minute."""
        with trio.fail_after(60):
            while self.node is None:
                await trio.sleep(0.05)

    async def wait_for(self, condition: Callable[[MetadataImage], bool]) -> MetadataImage:
        """Wait until the node has applied metadata for which ``condition`` holds."""
        found = trio.Event()

        def published(delta: MetadataDelta, image: MetadataImage) -> None:
            if condition(image):
                found.set()

        publisher = self.running_node.metadata.publisher
        publisher.subscribe(published)
        try:
            await found.wait()
        finally:
            publisher.unsubscribe(published)
        return self.image

    async def _serve(self, world: SimulatedWorld) -> None:
        open_directories(world.storage, [DATA], self.number, new_id=world.uuid, cluster_id=CLUSTER_ID)
        async with Node(BrokerConfig(**self._settings), world=world) as node:
            self.node = node
            await self._stop.wait()
            self.node = None
        self._stopped.set()

    async def kill(self, *, power_cut: bool = False) -> None:
        """End the process as SIGKILL does; with ``power_cut`` the disk loses what was not synced."""
        self.node = None
        self._stopped.set()
        await self.host.kill(power_cut=power_cut)

    async def stop(self) -> None:
        """Stop the node as SIGTERM does, and wait until its process has ended."""
        self._stop.set()
        await self._stopped.wait()
        await self.host.kill()

    def log_bytes(self, topic_partition: TopicPartition) -> bytes:
        """The batches of a partition on the host's disk, up to the last complete one."""
        folder = f"{DATA}/{topic_partition.topic}-{topic_partition.partition}"
        storage = self.host.disk
        if not storage.is_dir(folder):
            return b""
        names = sorted(name for name in storage.list_dir(folder) if name.endswith(".log"))
        data = b"".join(bytes(storage.read_file(f"{folder}/{name}")) for name in names)
        end = 0
        for batch in iter_batches(data, check_crc=True):
            end = batch.position + batch.size
        return data[:end]


class SimulatedCluster:
    """The nodes 1 to ``count``. Create it, `start` it, and `stop` it at the end of the test.

    Args:
        roles: the roles of each node; by default all nodes have both.
        settings: further settings of every node.
    """

    def __init__(
        self, simulation: Simulation, count: int = 3, *, roles: Sequence[Sequence[str]] = (), **settings: Any
    ) -> None:
        self.simulation = simulation
        numbered = list(enumerate(roles or (BOTH,) * count, start=1))
        voters = [f"{number}@node-{number}:9093" for number, own in numbered if "controller" in own]
        self.nodes = [SimulatedNode(simulation, number, own, voters, settings) for number, own in numbered]
        self.bootstrap = ",".join(node.address for node in self.nodes if node.is_broker)
        self.client_hosts: list[str] = []

    def client_world(self, name: str = "") -> SimulatedWorld:
        """The world of a client on a host of its own."""
        self.client_hosts.append(name or f"client-{len(self.client_hosts) + 1}")
        return self.simulation.host(self.client_hosts[-1]).world

    def start(self) -> None:
        """Start all nodes."""
        for node in self.nodes:
            node.start()

    async def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            await node.kill()

    async def wait_started(self) -> None:
        """Wait until all nodes serve."""
        for node in self.nodes:
            await node.wait_started()

    async def wait_active(self) -> SimulatedNode:
        """Wait until one controller is active, for at most a simulated minute."""
        with trio.fail_after(60):
            while True:
                active = [one for one in self.nodes if one.node is not None and one.node.is_active_controller]
                if len(active) == 1:  # a former active controller may not know of the new one yet
                    return active[0]
                await trio.sleep(0.05)

    def admin(self) -> triokafka.AdminClient:
        """An admin client on a host of its own."""
        return triokafka.AdminClient(world=self.client_world(), bootstrap_servers=self.bootstrap)

    async def create_topics(self, topics: Mapping[str, int], **configs: str) -> None:
        """Create topics with three replicas, and wait until these are in sync."""
        async with self.admin() as admin:
            await self.retry(
                lambda: admin.create_topics(
                    [triokafka.NewTopic(name, count, 3, configs) for name, count in topics.items()]
                )
            )
        await self.wait_in_sync(topics)

    async def wait_unfenced(self) -> None:
        """Wait until every broker may lead partitions, so that new topics have leaders on all nodes."""
        with trio.fail_after(60):
            while not any(
                len(node.node.metadata.image.brokers) == len(self.nodes)
                and all(broker.active for broker in node.node.metadata.image.brokers.values())
                for node in self.nodes
                if node.node is not None
            ):
                await trio.sleep(0.1)

    async def wait_in_sync(self, topics: Mapping[str, int], *, within: float = 60.0) -> None:
        """Wait until every replica of the topics is in sync. Raises AssertionError after ``within`` seconds.

        All nodes with replicas must serve, and know it: until a process that died is fenced, its replicas count as in
        sync although they fetch nothing.
        """
        state: object = None
        with trio.move_on_after(within):
            while True:
                state = self._out_of_sync(topics)
                if not state:
                    return
                await trio.sleep(0.2)
        raise AssertionError(f"not in sync within {within:.0f} s: {state}")

    def _out_of_sync(self, topics: Mapping[str, int]) -> list[str]:
        """Return what keeps replicas of the topics from being in sync."""
        found: list[str] = []
        for node in self.nodes:
            if node.node is None:
                found += [f"{node.name} does not serve"] if node.is_broker else []
                continue
            for name, count in topics.items():
                for number in range(count):
                    one = node.image.partition(name, number)
                    if one is None or one.leader < 0 or set(one.isr) != set(one.replicas):
                        found.append(f"{node.name}: {name}-{number} {one}")
        return found

    async def retry(self, call: Callable[[], Awaitable[object]], *, within: float = 60.0) -> None:
        with trio.fail_after(within):
            while True:
                try:
                    await call()
                    return
                except (KafkaError, ExceptionGroup) as error:  # of one topic, or of several
                    group = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
                    failures = [one for one in group if not isinstance(one, TopicAlreadyExistsError)]
                    if not failures:
                        return
                    if not all(map(_passes, failures)):
                        raise
                    await trio.sleep(0.2)

    def heal(self) -> None:
        """End all network faults and start the nodes that do not run."""
        self.simulation.network.heal()
        conditions = self.simulation.network.conditions
        conditions.cut = conditions.loss = 0
        conditions.max_delay = 0.002
        for node in self.nodes:
            if not node.running:
                node.start()

    def isolate(self, node: SimulatedNode, chance: random.Random, *, clients: bool = False) -> None:
        """Cut a node off from the other nodes, in both directions or in one; with ``clients`` also from all clients."""
        network = self.simulation.network
        one_way = chance.random() < 0.3
        others = [other.name for other in self.nodes if other is not node]
        for name in (*others, *self.client_hosts) if clients else others:
            network.partition(node.name, name, one_way=one_way)

    async def wait_replicas_equal(self, topics: Mapping[str, int], *, within: float = 60.0) -> None:
        """Wait until all disks have the same bytes of every partition.

        A connection that a fault left half-open holds a follower up until its request times out.
        """
        with trio.move_on_after(within):
            while True:
                try:
                    return self.assert_replicas_equal(topics)
                except AssertionError:
                    await trio.sleep(0.5)
        self.assert_replicas_equal(topics)

    def assert_replicas_equal(self, topics: Mapping[str, int]) -> None:
        """Check that all disks have the same bytes of every partition."""
        for name, count in topics.items():
            for number in range(count):
                logs = {node.name: node.log_bytes(TopicPartition(name, number)) for node in self.nodes}
                sizes = {node: len(log) for node, log in logs.items()}
                assert len(set(logs.values())) == 1, f"the replicas of {name}-{number} differ: {sizes}"


@asynccontextmanager
async def running_nodes(
    simulation: Simulation, roles: Sequence[Sequence[str]] = (BOTH, BOTH, BOTH), **settings: Any
) -> AsyncIterator[SimulatedCluster]:
    """Run nodes with these roles for the length of the block."""
    cluster = SimulatedCluster(simulation, roles=roles, **settings)
    cluster.start()
    await cluster.wait_started()
    yield cluster
    await cluster.stop()


def _passes(error: Exception) -> bool:
    """Whether an error passes with time, such as a missing broker that has not registered yet."""
    return isinstance(error, KafkaError) and (error.retriable or isinstance(error, InvalidReplicationFactorError))
