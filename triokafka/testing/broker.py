"""A broker that runs for a test, and the calls that control it and inject faults.

`RunningBroker` outlives the `Node` inside it, so that a test can stop, kill and start it again: it keeps its ports,
its disk, its clock and its faults. All of it belongs to the Trio run that it was started in;
`triokafka.testing.blocking` has the same for other programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from triokafka.component_methods import delegated
from triokafka.errors import IllegalStateError, for_code
from triokafka.testing.fault_calls import FaultCalls

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker
    from triokafka.broker_stub.config import BrokerConfig
    from triokafka.broker_stub.controller import Controller
    from triokafka.broker_stub.faults.faults import Faults
    from triokafka.broker_stub.metadata import MetadataImage
    from triokafka.broker_stub.network.socket_server import SocketServer
    from triokafka.broker_stub.node import Node
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator
    from triokafka.coordinator.group.members import KnownMember
    from triokafka.testing.faulty_world import FaultyWorld
    from triokafka.testing.members import Members
    from triokafka.testing.node_process import NodeProcess
    from triokafka.testing.security import BrokerSecurity

_TIMEOUT_MS: Final = 30_000


class RunningBroker:
    """One broker of a test; made by `running_broker` and `running_cluster`.

    Faults of requests are `fail_next` and its like (see `FaultCalls`), and ``faults`` is where they are armed. Those of
    the broker as a whole are here. All are off at first, and `reset` switches all off again.
    """

    def __init__(
        self, process: NodeProcess, faults: Faults, members: Members, security: BrokerSecurity | None = None
    ) -> None:
        self.faults = faults
        self._fault_calls = FaultCalls(faults)
        self._process = process
        self._security = security
        self._members = members
        members.brokers.append(self)

    # What it is

    @property
    def process(self) -> NodeProcess:
        """The process of the node."""
        return self._process

    @property
    def config(self) -> BrokerConfig:
        """The options of the node; another value is for the next start."""
        return self.process.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self.process.config = config

    @property
    def world(self) -> FaultyWorld:
        """The world of the node's process."""
        return self.process.machine.world

    @property
    def node_id(self) -> int:
        """The broker's id in the cluster."""
        return self.config.node_id

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, HOST:PORT; the same before and after a restart."""
        return self.process.addresses

    def client_options(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        """Return the options with which a client connects to this broker: its address, TLS, and a user's login.

        ``user`` is one of the broker's users, the first when None.
        """
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        return options if self._security is None else {**options, **self._security.client_options(user, mechanism)}

    @property
    def is_running(self) -> bool:
        """Whether the broker runs; false after a failure (see ``failure``)."""
        return self.process.is_running

    @property
    def node(self) -> Node:
        """The running `Node`; a different one after each restart.

        Raises:
            IllegalStateError: the broker is stopped.
        """
        node = self.process.node
        if node is None:
            raise IllegalStateError(f"broker {self.node_id} is stopped; start() it first")
        return node

    @property
    def broker(self) -> Broker:
        """The broker role of the node. Raises as ``node``."""
        return self.node.broker

    @property
    def failure(self) -> Exception | None:
        """The failure that stopped the broker; None without one."""
        return self.process.failure

    @property
    def image(self) -> MetadataImage:
        """The cluster's metadata, as far as this broker has applied it."""
        return self.broker.image

    @property
    def controller(self) -> Controller:
        """The controller role of the node; raises `IllegalStateError` if it has none, or is stopped."""
        return self.node.controller

    @property
    def is_active_controller(self) -> bool:
        """Whether this node is the active controller of its cluster."""
        return self.is_running and self.node.is_active_controller

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
        connect; in a cluster without a majority of the controllers, at once.

        If cancelled, the start is given up.

        Raises:
            ConfigurationError: its address or its data directory cannot be used.
        """
        await self._members.start([self])

    async def stop(self, *, clean: bool = True) -> None:
        """Stop it, and return when it is gone; its port stays taken, so that connecting is refused.

        Clean, requests in progress get a moment to finish and leaderships move to brokers that have replicas. Not
        clean, it ends as if it had been killed: connections break, nothing is flushed or signed off, and the next start
        recovers what was written. The other nodes of a cluster notice at once, and have other leaders when this
        returns. A stopped broker is fine.
        """
        offset, was_running = self._offset, self.is_running
        await self.process.stop(clean=clean)
        if was_running:
            if clean:
                await self._members.left(offset)
            else:
                await self._members.missed(self.node_id, offset)

    async def kill(self, *, power_cut: bool = False) -> None:
        """End it as SIGKILL does, and return when it is gone.

        Connections break, nothing is flushed, and no other node is notified. The other nodes of a cluster notice it by
        themselves: the controllers after ``controller.quorum.fetch.timeout.ms`` if the active one has gone, and the
        active controller after ``broker.session.timeout.ms``; `stop` with ``clean=False`` does not wait for these.

        Args:
            power_cut: the disk also loses unsynced data; only on a simulated host of its own.

        Raises:
            IllegalStateError: the broker does not run; or ``power_cut`` without a simulated host of its own.
        """
        self._check_running("kill")
        await self.process.kill(power_cut=power_cut)

    def _check_running(self, call: str) -> None:
        if not self.is_running and not self.process.is_starting:
            raise IllegalStateError(f"{call}: broker {self.node_id} is not running; start() it first")

    @property
    def _offset(self) -> int:
        """The offset of the metadata that the node has; -1 if it does not run."""
        return self.node.metadata.image.offset if self.is_running else -1

    async def restart(self, *, clean: bool = True) -> None:
        """Stop and start the broker: `stop`, then `start`."""
        await self.stop(clean=clean)
        await self.start()

    async def end(self) -> None:
        """Stop it permanently, and release its ports; called by `running_broker`."""
        await self.process.end()

    def place(self) -> None:
        """Note the ports of the started node for partitions of the network."""
        for listener in (*self.config.broker_listeners, *self.config.controller_listeners):
            self._members.links.place(self.node_id, listener.port)

    async def wait_failed(self) -> Exception:
        """Wait until a part of the broker fails and stops it; return the reason."""
        return await self.process.wait_failed()

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

        The clocks keep running, so sessions may expire meanwhile: the other nodes of a cluster then have other leaders.
        `thaw` and `stop` end the freeze.
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
        """Make current connections lose all data in both directions permanently, those between nodes too.

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
        a fault causes, and everything in clients, take their time. In a cluster all brokers have the same clocks, and
        keep their sessions with the controller.
        """
        self.world.put_clock_forward(ms)
        for broker in self._members.brokers:
            node = broker.process.node or broker.process.starting
            if node is not None:
                node.clock_jumped(ms / 1000)

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
            raise UnknownMemberIdError(f"group {group!r} does not have {who}, but {[one.member_id for one in known]}")
        self.group_coordinator.expire_member(group, found[0])
        return found[0]

    async def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Make broker ``to`` the leader of a partition, in a new leader epoch; return its id.

        None is the next broker by id. A single broker leads on itself, in a new epoch: clients have to notice that. A
        broker without a replica takes the place of the leader, and the call waits until it has the records; so it does
        for a replica that is not in sync. When it returns, all brokers know the new leader.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            BrokerNotAvailableError: the broker does not exist or is down.
            KafkaTimeoutError: the broker has not replicated the records in time.
        """
        from triokafka.testing.leader_moves import move_leader

        leader = await self._members.with_controller(
            lambda active: move_leader(active.node.controller, active.node.broker.gateway, topic, partition, to=to)
        )
        await self._members.settle()
        return leader

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
        await self._members.settle()

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises the error of DeleteTopics."""
        from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState

        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
        response = await self.broker.gateway.delete_topics(request)
        _raise_for(response.responses[0].error_code, response.responses[0].error_message)
        await self._members.settle()


def _raise_for(code: int, message: str | None) -> None:
    if code:
        raise for_code(code)(message or "")
