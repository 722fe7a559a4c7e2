"""A broker that runs for a test, and the calls that control it and inject faults.

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
from typing import TYPE_CHECKING, Any

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
    from triokafka.testing.security import BrokerSecurity

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
        security: BrokerSecurity | None = None,
    ) -> None:
        self.faults = Faults(world.random.random, beside=faults)
        self._fault_calls = FaultCalls(self.faults)
        self.config = config
        self.world = world
        self._security = security
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
        """The broker's address, HOST:PORT; the same before and after a restart."""
        return self._bootstrap_servers

    def client_options(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """Return the options with which a client connects to this broker: its address, TLS, and a user's login.

        ``user`` is one of the broker's users, the first when None.
        """
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        return options if self._security is None else {**options, **self._security.client_options(user, mechanism)}

    @property
    def is_running(self) -> bool:
        """Whether the broker runs; false after a failure (see ``failure``)."""
        return self._node is not None and self._node.failure is None

    @property
    def broker(self) -> Broker:
        """The running `Broker` object; a different one after each restart.

        Raises:
            IllegalStateError: the broker is stopped.
        """
        return self._running_node().broker

    def _running_node(self) -> Node | LocalClusterNode:
        if self._node is None:
            raise IllegalStateError(f"broker {self.node_id} is stopped; start() it first")
        return self._node

    @property
    def failure(self) -> Exception | None:
        """The failure that stopped the broker; None without one."""
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
        """Stop and start the broker: `stop`, then `start`."""
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

                scram = None if self._security is None else self._security.scram_credentials
                node = Node(self.config, world=self.world, faults=self.faults, scram_credentials=scram)
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
        """Move leadership to other brokers without waiting for the end of this broker's session."""
        try:
            await cluster.controller.fence_broker(self.node_id)
        except KafkaError as error:
            logger.warning("Broker %d: fencing before the end of its session failed: %s", self.node_id, error)

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
        """Wait until a part of the broker fails and stops it; return the reason."""
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
        """Close every connection immediately; accept new ones. Return the number of closed connections."""
        return self.sockets.cut()

    def freeze(self) -> None:
        """Freeze as a process does after SIGSTOP: connections stay open, new ones wait, requests get no response.

        The clocks keep running, so sessions may expire meanwhile. `thaw` and `stop` end the freeze.
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
        """Make current connections lose all data in both directions permanently.

        Neither end notices, as when a machine loses power or a NAT forgets a connection. New connections work.
        """
        self.world.half_open()

    def black_hole(self) -> None:
        """Break current connections as `half_open` does, and leave new ones without a response until `heal`."""
        self.world.black_hole()

    def heal(self) -> None:
        """End `black_hole`: connections that were made meanwhile work. Connections that were lost stay lost."""
        self.world.heal()

    def drip(self, bytes_per_second: float) -> None:
        """Slow current connections down permanently, in both directions. New connections have full speed.

        Raises:
            ValueError: the rate is not above 0.
        """
        self.world.drip(bytes_per_second)

    def fill_disk(self, *, free_bytes: int = 0) -> None:
        """Limit the data directories to ``free_bytes`` more; later appends fail with KAFKA_STORAGE_ERROR."""
        if free_bytes < 0:
            raise ValueError(f"a disk has 0 free bytes or more, not {free_bytes}")
        self.world.disk_room = free_bytes

    def free_disk(self) -> None:
        """End `fill_disk`; appends work again."""
        self.world.disk_room = None

    def advance_clock(self, ms: int) -> None:
        """Advance the broker's clocks by ``ms`` milliseconds, and run all due work.

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
        """Return the members of a group: member id, client id and instance id, ordered by member id.

        Raises:
            NotCoordinatorError: this broker does not coordinate the group.
        """
        from triokafka.topic_names import GROUP_METADATA_TOPIC

        if GROUP_METADATA_TOPIC not in self.image.topics:
            return []  # the first coordinator lookup creates the topic
        return self.group_coordinator.members(group)

    def expire_member(self, group: str, member: str | None = None) -> str:
        """Expire the session of a group's member now; return its member id.

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
        """Make broker ``to`` the leader of a partition, in a new leader epoch; return its id.

        None is the next broker by id. A single broker leads on itself, in a new epoch: clients have to notice that. A
        broker without a replica takes the place of the leader, and the call waits until it has the records; so it does
        for a replica that is not in sync.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            BrokerNotAvailableError: the broker does not exist or is down.
            KafkaTimeoutError: the broker has not replicated the records in time.
        """
        from triokafka.testing.leader_moves import move_leader

        return await move_leader(self.controller, self.broker.gateway, topic, partition, to=to)

    async def move_coordinator(self, group: str, *, to: int | None = None) -> int:
        """Make broker ``to`` the coordinator of a group (and of groups in the same ``__consumer_offsets`` partition).

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
        """Create a topic; -1 selects the broker's default.

        Raises:
            BrokerResponseError: the error of CreateTopics.
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
        """Delete a topic. Raises the error of DeleteTopics."""
        from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState

        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        response = await self.broker.gateway.delete_topics(request)
        _raise_for(response.responses[0].error_code, response.responses[0].error_message)


def _raise_for(code: int, message: str | None) -> None:
    if code:
        raise for_code(code)(message or "")
