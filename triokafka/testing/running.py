"""A broker that runs for a test, and what the test can do to it.

`RunningBroker` outlives the `Broker` inside it, so that a test can stop, kill and start it again: it keeps its port,
its disk, its clock and its faults. All of it belongs to the Trio run that it was started in;
`triokafka.testing.blocking` has the same for everybody else.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from triokafka.broker_stub.faults.faults import Faults
from triokafka.delegation import delegated
from triokafka.errors import IllegalStateError, KafkaError, for_code
from triokafka.structs import address_text
from triokafka.testing.fault_calls import FaultCalls
from triokafka.testing.faulty_world import FaultyWorld

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.controller import Controller
    from triokafka.broker_stub.local_cluster import LocalCluster, LocalClusterNode
    from triokafka.broker_stub.metadata import MetadataImage
    from triokafka.broker_stub.network.socket_server import SocketServer
    from triokafka.broker_stub.node import Node
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator
    from triokafka.coordinator.group.members import KnownMember

logger = logging.getLogger(__name__)

_TIMEOUT_MS = 30_000


class RunningBroker:
    """One broker of a test; made by `running_broker` and `running_cluster`.

    Faults of requests are `fail_next` and its like (see `FaultCalls`), and ``faults`` is where they are armed. Those of
    the broker as a whole are here. All are off at first, and `reset` switches all off again.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: FaultyWorld,
        nursery: trio.Nursery,
        cluster: LocalCluster | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.faults = Faults(world.random.random, beside=faults)
        self._fault_calls = FaultCalls(self.faults)
        self.config = config
        self.world = world
        self._nursery = nursery
        self._cluster = cluster
        self._node: Node | LocalClusterNode | None = None
        self._leave = trio.Event()
        self._gone = trio.Event()
        self._gone.set()
        self._kill = False
        self._changing = trio.Lock()
        self._held_ports: list[socket.socket] = []
        self._bootstrap_servers = ""
        self._failure: Exception | None = None
        self._failed = trio.Event()

    # What it is

    @property
    def node_id(self) -> int:
        """Its id in the cluster."""
        return self.config.node_id

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect, HOST:PORT; the same before and after a restart."""
        return self._bootstrap_servers

    @property
    def is_running(self) -> bool:
        """Whether it is up; one that has stopped serving by itself is not (``failure`` says why)."""
        return self._node is not None and self._node.failure is None

    @property
    def broker(self) -> Broker:
        """The broker that runs now, with all that it consists of; another one after each restart.

        Raises:
            IllegalStateError: it is stopped.
        """
        return self._running_node().broker

    def _running_node(self) -> Node | LocalClusterNode:
        if self._node is None:
            raise IllegalStateError(f"broker {self.node_id} is stopped; start() it first")
        return self._node

    @property
    def failure(self) -> Exception | None:
        """Why the broker stopped serving by itself; None while it has not."""
        return self._failure if self._node is None else self._node.failure

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata."""
        return self.broker.image

    @property
    def controller(self) -> Controller:
        """The cluster's controller."""
        return self._running_node().controller

    @property
    def sockets(self) -> SocketServer:
        """The broker's listeners and connections."""
        return self.broker.sockets

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """The groups that this broker coordinates."""
        return self.broker.group_coordinator

    # Its life

    async def start(self) -> None:
        """Start it, when it is stopped or has failed: on the port and the disk that it had. Returns once clients can
        connect.

        Raises:
            ConfigurationError: its address or its data directory cannot be used.
        """
        async with self._changing:
            if self._node is not None and self._node.failure is not None:
                self._kill = True  # what is left of it
                self._leave.set()
                await self._gone.wait()
            if self._node is None:
                await self._gone.wait()  # whoever stopped it may have been cancelled
                if self._cluster is not None:
                    # It may have gone without a word, when the disk was full: it need not wait for its own session.
                    await self._cluster.controller.fence_broker(self.node_id)
                self._failure = None
                await self._nursery.start(self._run)

    async def stop(self, *, clean: bool = True) -> None:
        """Stop it, and return when it is gone; its port stays taken, so that connecting is refused.

        Clean, requests in progress get a moment to finish and leaderships move to brokers that have replicas. Not
        clean, it ends as if it had been killed: connections break, nothing is flushed or signed off, and the next start
        recovers what was written. A stopped broker is fine.
        """
        async with self._changing:
            if self._node is not None:
                self._kill = not clean
                self._leave.set()
            await self._gone.wait()  # also when it is ending already, being cancelled

    async def restart(self, *, clean: bool = True) -> None:
        """`stop` and `start`."""
        await self.stop(clean=clean)
        await self.start()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        from triokafka.broker_stub.deferred_imports import import_everything

        import_everything()
        self._leave, self._gone = trio.Event(), trio.Event()
        try:
            node: Node | LocalClusterNode
            if self._cluster is None:
                from triokafka.broker_stub.node import Node

                node = Node(self.config, world=self.world, faults=self.faults)
            else:
                node = self._cluster.node(self.config, self.world, self.faults)
            self._release_ports()
            with trio.CancelScope() as scope:
                async with node:
                    self._keep_ports(node.broker)
                    self._node = node
                    self._nursery.start_soon(self._watch, node)
                    task_status.started()
                    try:
                        await trio.lowlevel.checkpoint_if_cancelled()  # whoever starts it may have given up
                        # From now on it lives until `end`: clients that end with a cancelled body end with a broker.
                        scope.shield = True
                        await self._leave.wait()
                    finally:
                        self._node = None
                        self.world.thaw()
                    if self._kill:
                        await node.kill()
                        if self._cluster is not None:
                            await self._be_missed(self._cluster)
            if self._leave.is_set():
                self._hold_ports()
        except Exception:
            if self._bootstrap_servers:
                self._hold_ports()  # it could not start again, and is stopped still
            raise
        finally:
            self._gone.set()

    async def _be_missed(self, cluster: LocalCluster) -> None:
        """Have others lead what it led, without their waiting until its session is over."""
        try:
            await cluster.controller.fence_broker(self.node_id)
        except KafkaError as error:
            logger.warning("broker %d is not fenced before its session is over: %s", self.node_id, error)

    def _keep_ports(self, broker: Broker) -> None:
        """Take the ports that it got for its own from now on."""
        self._bootstrap_servers = broker.bootstrap_servers
        listeners = []
        for listener in self.config.broker_listeners:
            _, port = broker.sockets.address(listener.name)
            listeners.append(f"{listener.name}://{address_text(listener.host, port)}")
        others = [spec for spec in self.config.listeners if spec.partition("://")[0] not in broker.sockets.listeners]
        self.config = replace(self.config, listeners=(*listeners, *others))

    def _hold_ports(self) -> None:
        """Nobody else is to get the ports meanwhile: also not a client that tries to connect, for its own end."""
        if not self.world.is_real:
            return
        for listener in self.config.broker_listeners:
            placeholder = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET)
            placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                placeholder.bind((listener.host, listener.port))
            except OSError:
                placeholder.close()  # it is somebody's already: starting again will say so
            else:
                self._held_ports.append(placeholder)

    def _release_ports(self) -> None:
        for placeholder in self._held_ports:
            placeholder.close()
        self._held_ports.clear()

    async def end(self) -> None:
        """Stop it for good, and let its ports go; called by `running_broker`."""
        await self.stop()
        self._release_ports()

    async def wait_failed(self) -> Exception:
        """Wait until a part of the broker fails, so that it stops serving; returns why."""
        while self._failure is None:
            await self._failed.wait()
        return self._failure

    async def _watch(self, node: Node | LocalClusterNode) -> None:
        await node.wait_stopped()
        self._failure = node.failure
        self._failed.set()
        self._failed = trio.Event()

    # Faults of requests

    fail_next = delegated("_fault_calls", FaultCalls.fail_next)
    drop_replies = delegated("_fault_calls", FaultCalls.drop_replies)
    delay_replies = delegated("_fault_calls", FaultCalls.delay_replies)
    delay_requests = delegated("_fault_calls", FaultCalls.delay_requests)
    throttle = delegated("_fault_calls", FaultCalls.throttle)
    close_on = delegated("_fault_calls", FaultCalls.close_on)

    # Faults of the broker as a whole

    def cut_connections(self) -> int:
        """Close every connection at once; new ones are welcome. Returns how many there were."""
        return self.sockets.cut()

    def freeze(self) -> None:
        """Stand still as a process that was sent SIGSTOP: connections stay open, new ones wait, nothing is answered.

        The clocks go on, so that sessions that end meanwhile have ended. `thaw` ends it, and so does `stop`.
        """
        self.world.freeze()

    def thaw(self) -> None:
        """End `freeze`."""
        self.world.thaw()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """`freeze` for the length of a block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def half_open(self) -> None:
        """Have the present connections lose everything, in both directions and for good.

        Neither end notices, as when a machine loses power or a NAT forgets a connection. New connections work.
        """
        self.world.half_open()

    def black_hole(self) -> None:
        """Take the present connections as `half_open` does, and leave new ones without an answer until `heal`."""
        self.world.black_hole()

    def heal(self) -> None:
        """End `black_hole`: connections that were made meanwhile work. Connections that were lost stay lost."""
        self.world.heal()

    def drip(self, bytes_per_second: float) -> None:
        """Slow the present connections down for good, in both directions. New connections have full speed.

        Raises:
            ValueError: the rate is not above 0.
        """
        self.world.drip(bytes_per_second)

    def fill_disk(self, *, free_bytes: int = 0) -> None:
        """Let the data directories take only ``free_bytes`` more: appends then fail with KAFKA_STORAGE_ERROR."""
        if free_bytes < 0:
            raise ValueError(f"a disk has 0 free bytes or more, not {free_bytes}")
        self.world.disk_room = free_bytes

    def free_disk(self) -> None:
        """End `fill_disk`: there is room again, and appends work as before."""
        self.world.disk_room = None

    def advance_clock(self, ms: int) -> None:
        """Put the broker's clocks forward by ``ms`` milliseconds, and do what has become due.

        Sessions of group members end, requests that wait for records or replicas are answered, idle connections are
        closed, records and positions are retained for as long as configured. Only the broker's clocks move: waits that
        a fault causes, and everything in clients, take their time. In a cluster all brokers have the same clocks.
        """
        self.world.put_clock_forward(ms)
        if self._cluster is not None:
            self._cluster.clock_jumped()
        elif self._node is not None:
            self._node.clock_jumped()

    def members(self, group: str) -> list[KnownMember]:
        """Who is in a group: member id, client id and instance id, in the order of member ids.

        Raises:
            NotCoordinatorError: this broker does not coordinate the group.
        """
        from triokafka.topic_names import GROUP_METADATA_TOPIC

        if GROUP_METADATA_TOPIC not in self.image.topics:
            return []  # the first that asks for a coordinator has it made
        return self.group_coordinator.members(group)

    def expire_member(self, group: str, member: str | None = None) -> str:
        """End the session of a group's member now, as if it had been silent for too long; returns its member id.

        Args:
            member: its member id, client id or instance id; None when the group has only one.

        Raises:
            UnknownMemberIdError: the group has no such member, or several; names those that it has.
            NotCoordinatorError: this broker does not coordinate the group.
        """
        from triokafka.errors import UnknownMemberIdError

        known = self.members(group)
        found = [
            one.member_id
            for one in known
            if member is None or member in (one.member_id, one.client_id, one.instance_id)
        ]
        if len(found) != 1:
            who = "one member" if member is None else f"one member {member!r}"
            raise UnknownMemberIdError(f"group {group!r} has not {who}, but {[one.member_id for one in known]}")
        self.group_coordinator.expire_member(group, found[0])
        return found[0]

    async def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Have broker ``to`` lead a partition, in a new leader epoch; returns its id. The log goes with it.

        None is the next broker by id. A single broker leads on itself, in a new epoch: clients have to notice that.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            BrokerNotAvailableError: there is no such broker, or it is down.
        """
        return await self.controller.hand_over(topic, partition, to)

    async def move_coordinator(self, group: str, *, to: int | None = None) -> int:
        """Have broker ``to`` coordinate a group (and those that share its partition of ``__consumer_offsets``).

        The group's members and positions go with it. Arguments, result and errors are those of `move_leader`.
        """
        from triokafka.topic_names import GROUP_METADATA_TOPIC

        broker = self.broker
        await broker.topic_creation.ensure(GROUP_METADATA_TOPIC)
        return await self.move_leader(
            GROUP_METADATA_TOPIC, broker.group_coordinator.runtime.partition_for(group), to=to
        )

    def reset(self) -> None:
        """Switch off all faults: those of requests, the freeze, the black hole, the full disk. The clock stays."""
        self.faults.disarm_all()
        self.thaw()
        self.heal()
        self.free_disk()

    # Topics, without a client

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; -1 stands for what the broker is configured for.

        Raises:
            BrokerResponseError: the error that CreateTopics would answer.
        """
        from triokafka.protocol.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        response = await self.broker.gateway.create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS))
        _raise_for(response.topics[0].error_code, response.topics[0].error_message)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises the error that DeleteTopics would answer."""
        from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState

        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        response = await self.broker.gateway.delete_topics(request)
        _raise_for(response.responses[0].error_code, response.responses[0].error_message)


def _raise_for(code: int, message: str | None) -> None:
    if code:
        raise for_code(code)(message or "")
