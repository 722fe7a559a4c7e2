"""One process: the roles of ``process.roles`` over one `World`.

Every node has its own metadata log and part in the quorum (`NodeMetadata`), in its own data directories
(`NodeStorage`). A controller votes, decides while it leads the quorum (`Controller`), and serves the controller's
listeners (`ControllerServer`). A broker observes the quorum and hosts partitions (`Broker`). A node with both roles has
all parts, once each.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.configured_authorizer import configured_authorizer
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.network.authentication import Authentication
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.node_storage import NodeStorage
from triokafka.broker_stub.node_tasks import NodeTasks
from triokafka.broker_stub.quorum_connections import quorum_client
from triokafka.broker_stub.raft.voter_set import VoterEndpoint
from triokafka.broker_stub.raft_options import controller_endpoints, has_other_nodes
from triokafka.errors import IllegalStateError, KafkaError
from triokafka.structs import Node as Address
from triokafka.structs import address_text
from triokafka.world import World
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    from triokafka.broker_stub.controller_server import ControllerServer
    from triokafka.broker_stub.gateway.controller_channel import ControllerChannel
    from triokafka.broker_stub.metrics.node_catalogue import NodeMetrics
    from triokafka.broker_stub.metrics.sample import Sample
    from triokafka.network.node_channel import NodeChannel
    from triokafka.network.traffic import ChannelTotals
    from triokafka.security.client_security import ClientSecurity
    from triokafka.security.scram_credentials import ScramCredentials

logger = logging.getLogger(__name__)

_PATIENCE_WITH_QUORUM: Final = 10.0
"""Seconds without the metadata of the cluster after which a node that starts says what it waits for."""
_REMINDER_SECONDS: Final = 60.0

_STOP_TIMEOUT_MS: Final = 2_000
"""The time for requests in progress to finish when the controller stops, and how much time the quorum has to elect
another leader."""


class Node:
    """A broker, a controller, or both, for the length of an ``async with`` block.

    Entering the block starts the node; a node of a larger quorum waits until the quorum has a leader. Leaving it, in
    whatever way, stops it cleanly: requests in progress get a moment to finish, partitions and the quorum get other
    leaders, and logs and checkpoints are written, so that the next start needs no recovery.

    Args:
        config: all options, checked already.
        world: the door to the outside; the operating system when None.
        authorizer: access control; when None, that of ``authorizer.class.name``. Without either, everything is allowed.
        authentication: finds the principal of a connection before its first request; all are anonymous when None.
        faults: the faults that tests arm, for requests to the broker; to the controller of a node that is not a broker.
        scram_credentials: SCRAM credentials of users besides those in the cluster's metadata.
        cluster_id: the cluster that new data directories join. When None, a quorum of one creates a new cluster, and
            any other node needs directories that ``triokafka storage format`` has prepared.
        elects_at_once: see `RaftConfig`.
        log_opened: progress of the start; see `LogManager.load`.

    Raises:
        ConfigurationError: at construction: a listener has a security protocol that is not served, or the authorizer
            cannot be created. On entering: an address cannot be listened on, or a data directory cannot be used, is in
            use by another broker, or belongs to another node or cluster. Says which, and what to do.
        KafkaStorageError: on entering: a log cannot be read or written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        world: World | None = None,
        authorizer: Authorizer | None = None,
        authentication: Authentication | None = None,
        faults: Faults | None = None,
        cluster_id: str | None = None,
        elects_at_once: bool = False,
        scram_credentials: ScramCredentials | None = None,
        log_opened: Callable[[int], None] = lambda count: None,
    ) -> None:
        world = RealWorld() if world is None else world
        authorizer = configured_authorizer(config) if authorizer is None else authorizer
        self.config = config
        self._authorizer = authorizer
        self.world = world
        self._scram_credentials = scram_credentials
        self._controller_security = self._security_of_controllers(config)
        self._raft_traffic = self._new_raft_traffic(config)
        self._metrics: NodeMetrics | None = None
        self.storage = NodeStorage(config, world, log_opened=log_opened)
        follower = self.storage if config.is_broker else None
        self.metadata = NodeMetadata(
            world,
            config,
            cluster_id=cluster_id,
            follower=follower,
            endpoints=self._controller_endpoints,
            elects_at_once=elects_at_once,
            new_client=partial(quorum_client, security=self._controller_security, traffic=self._raft_traffic),
        )
        self.cluster_ends = False
        """Set it before the node's block is left when all nodes of the cluster stop: this node hands nothing over."""
        self._controller: Controller | None = None
        self._server: ControllerServer | None = None
        self._channel: ControllerChannel | None = None
        self._broker: Broker | None = None
        if config.is_controller:
            self._controller = Controller(world, config, self.metadata, follower=follower)
        gateway = self._gateway()
        if config.controller_listeners:
            self._server = self._new_server(gateway, authorizer, authentication, None if config.is_broker else faults)
        if config.is_broker:
            self._broker = Broker(
                config,
                world,
                storage=self.storage,
                gateway=gateway,
                node_metadata=self.metadata,
                authorizer=authorizer,
                authentication=authentication,
                faults=faults,
                scram_credentials=scram_credentials,
                node_metrics=self._node_samples,
            )
        self._tasks = NodeTasks(self._stop_listening) if self._broker is None else self._broker.tasks

    @property
    def ready(self) -> bool:
        """Whether the node serves: its broker is not fenced; a node that is only a controller knows a leader."""
        if self._broker is not None:
            return self._broker.ready
        return self.metadata.raft.leader.leader_id is not None

    def metrics(self) -> Iterator[Sample]:
        """Yield the current value of every metric of the node, whatever its roles are."""
        if self._broker is not None:
            return self._broker.metrics()
        from triokafka.broker_stub.metrics.broker_catalogue import network_samples, request_samples

        server = self._server
        assert server is not None  # a node without the broker role has controller listeners
        return chain(request_samples(server.dispatcher), network_samples(server.sockets), self._node_samples())

    def _node_samples(self) -> Iterable[Sample]:
        """Return the metrics of what every node has, and those of the controller role."""
        from triokafka.broker_stub.metrics.node_catalogue import NodeMetrics

        if self._metrics is None:
            self._metrics = NodeMetrics(self.world, self.config, self.metadata, self._controller, self._raft_traffic)
        return self._metrics.samples()

    @staticmethod
    def _new_raft_traffic(config: BrokerConfig) -> ChannelTotals | None:
        if not has_other_nodes(config):
            return None
        from triokafka.network.traffic import ChannelTotals  # a quorum of one needs no network client

        return ChannelTotals()

    def _gateway(self) -> ControllerGateway:
        """Return the gateway to the active controller, wherever it can be."""
        config, controller = self.config, self._controller
        local = None if controller is None else LocalControllerGateway(controller)
        if local is not None and not config.controller_listeners and not has_other_nodes(config):
            return local  # no other node can ever lead this quorum
        # Imported here, because a quorum of one starts faster without the network client.
        from triokafka.broker_stub.gateway.controller_channel import ControllerChannel
        from triokafka.broker_stub.gateway.forwarding import RemoteControllerGateway
        from triokafka.broker_stub.gateway.switching import switching_gateway

        self._channel = ControllerChannel(
            self.world,
            find=lambda: self.metadata.leader_node,
            connect=self._connect_to_controller,
            timeout_ms=config.controller_socket_timeout_ms,
        )
        self.metadata.on_leader_change = self._channel.leader_changed
        remote = RemoteControllerGateway(self._channel, session_timeout_ms=config.broker_session_timeout_ms)
        if local is None or controller is None:
            return remote
        return switching_gateway(local, remote, is_active=lambda: controller.is_active)

    def _connect_to_controller(self, node: Address) -> NodeChannel:
        from triokafka.network.node_channel import NodeChannel

        return NodeChannel(
            node,
            world=self.world,
            client_id=str(self.config.node_id),
            request_timeout_ms=self.config.controller_socket_timeout_ms,
            security=self._controller_security,
        )

    def _new_server(
        self,
        gateway: ControllerGateway,
        authorizer: Authorizer | None,
        authentication: Authentication | None,
        faults: Faults | None,
    ) -> ControllerServer:
        from triokafka.broker_stub.controller_server import ControllerServer

        return ControllerServer(
            self.config,
            self.world,
            local=LocalControllerGateway(self.controller),
            active=gateway,
            quorum=lambda: self.metadata.raft,
            cluster_id=lambda: self.metadata.cluster_id,
            publisher=self.metadata.publisher,
            authorizer=authorizer,
            authentication=authentication,
            faults=faults,
            scram_credentials=self._scram_credentials,
        )

    @staticmethod
    def _security_of_controllers(config: BrokerConfig) -> ClientSecurity | None:
        """Return TLS and SASL of connections to controllers; None when they are PLAINTEXT."""
        names = config.controller_listener_names
        if not names or config.security_protocol_of(names[0]) == "PLAINTEXT":
            return None
        from triokafka.broker_stub.network.inter_broker_security import controller_security  # not needed for PLAINTEXT

        return controller_security(config)

    def _controller_endpoints(self) -> Sequence[VoterEndpoint]:
        if self._server is None:
            return controller_endpoints(self.config)
        return [VoterEndpoint(end.name, end.host, end.port) for end in self._server.endpoints()]

    # Parts

    @property
    def broker(self) -> Broker:
        """The broker role. Raises `IllegalStateError` if the node is a controller only."""
        if self._broker is None:
            raise IllegalStateError(f"node {self.config.node_id} is not a broker (process.roles)")
        return self._broker

    @property
    def controller(self) -> Controller:
        """The controller role. Raises `IllegalStateError` if the node is a broker only."""
        if self._controller is None:
            raise IllegalStateError(f"node {self.config.node_id} is not a controller (process.roles)")
        return self._controller

    @property
    def addresses(self) -> str:
        """``host:port`` of every listener of the broker, or of the controller if the node is not a broker."""
        if self._broker is not None:
            return self._broker.bootstrap_servers
        endpoints = [] if self._server is None else self._server.endpoints()
        return ",".join(address_text(end.host, end.port) for end in endpoints)

    @property
    def is_active_controller(self) -> bool:
        """Whether this node is the active controller."""
        return self._controller is not None and self._controller.is_active

    @property
    def failure(self) -> Exception | None:
        """The failure that stopped the node; None while there is none."""
        return self._tasks.failure

    async def wait_stopped(self) -> None:
        """Wait until the node has stopped, by leaving its block or because a part of it failed (`failure`)."""
        await self._tasks.wait_stopped()

    # Life

    async def __aenter__(self) -> Self:
        await self._tasks.open()
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def _start(self) -> None:
        start, broker, server = self._tasks.start, self._broker, self._server
        if broker is not None:
            await broker.bind()
        if server is not None:
            await server.bind()
        await self.storage.open_metadata(self.metadata)
        if self._controller is not None:
            self._controller.start()
        start(self.metadata.run)
        if self._controller is not None:
            start(self._controller.run)
        if self._channel is not None:
            start(self._channel.run)
        if self._authorizer is not None and self._authorizer.stores_acls:
            self._authorizer.follow(self.metadata.publisher, loaded=lambda: self.metadata.is_caught_up)
        if server is not None:
            server.follow_metadata()
            start(partial(server.run, self._acls_loaded))
        if broker is None:
            return
        await self._unless_it_fails(self._caught_up)
        await self.storage.load(self.metadata)
        broker.follow_metadata()
        self.storage.start_tasks(start)
        await self._unless_it_fails(broker.start)

    async def _caught_up(self) -> None:
        """Wait for the metadata of the cluster. Log a warning after ten seconds, and then every minute."""
        patience = _PATIENCE_WITH_QUORUM
        while True:
            with trio.move_on_after(patience):
                await self.metadata.wait_caught_up()
                return
            patience = _REMINDER_SECONDS
            raft = self.metadata.raft
            leader, failure = raft.leader.leader_id, raft.unanswered
            logger.warning(
                "Node %d waits for the metadata of the cluster: %s%s. It needs a majority of the controllers: start "
                "them, and check that this node reaches their addresses.",
                self.config.node_id,
                "it knows no leader of the metadata quorum" if leader is None else f"node {leader} leads the quorum",
                "" if failure is None else f"; last failure: {failure}",
            )

    async def _acls_loaded(self) -> None:
        """Wait until the authorizer has loaded the ACLs; without any in the metadata it needs none."""
        if self._authorizer is None or not self._authorizer.stores_acls:
            return
        try:
            await self.metadata.wait_caught_up()
        except KafkaError:
            await trio.sleep_forever()  # the node's start fails with this error

    async def _unless_it_fails(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Run ``wait``, but raise the failure of a task of the node if that comes first."""
        failure: Exception | None = None

        async def watch(scope: trio.CancelScope) -> None:
            await self._tasks.wait_stopped()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            try:
                await wait()
            except KafkaError as error:
                failure = error
            nursery.cancel_scope.cancel()
        failure = self.failure or failure
        if failure is not None:
            raise failure

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def kill(self) -> None:
        """End at once and leave everything as a process that is killed does; for tests.

        Connections break in the middle of responses, the node does not sign off with the controller, nothing is
        flushed, checkpointed or
        marked as closed cleanly: the next start recovers the written data. Call it inside the block, in
        the task that entered it; leaving the block does nothing more.
        """
        await self._stop(cleanly=False)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _stop(self, *, cleanly: bool = True) -> None:
        if not self._tasks.is_open:
            return
        self._tasks.refuse()
        try:
            with trio.CancelScope(shield=True):
                if self._broker is not None:
                    await self._broker.stop_serving(cleanly=cleanly, signs_off=not self.cluster_ends)
                if cleanly:
                    await self._leave_quorum()
                self._stop_listening()
        finally:
            # The tasks must have ended before the files are closed, also when the body was cancelled or a part failed.
            await self._tasks.close()
        with trio.CancelScope(shield=True):
            if cleanly:
                self.storage.write_high_watermarks()
            if self._controller is not None:
                await self._controller.close()
            await self.metadata.close()
            if cleanly:
                await self.storage.close()  # last: the locks of the directories go with it
            else:
                self.storage.abandon()
        if self._broker is not None:
            self._broker.unfollow_metadata()
        if self._server is not None:
            self._server.unfollow_metadata()
        self._tasks.note_stopped()

    async def _leave_quorum(self) -> None:
        """Let another voter lead the quorum, and finish the requests to this controller."""
        metadata, server = self.metadata, self._server
        if server is None or not metadata.is_open or self.failure is not None:
            return
        if self.cluster_ends:
            return  # the requests in progress are those of the other nodes
        if not metadata.is_alone:
            await self._release_stopping_brokers()
            await metadata.raft.shut_down(timeout=_STOP_TIMEOUT_MS / 1000)
        await server.stop(_STOP_TIMEOUT_MS)

    async def _release_stopping_brokers(self) -> None:
        """As the active controller, answer the brokers that ask to stop: without this node there may be no quorum."""
        if not self.is_active_controller:
            return
        released = trio.Event()

        def published(delta: MetadataDelta, image: MetadataImage) -> None:
            if not any(broker.in_controlled_shutdown and not broker.fenced for broker in image.brokers.values()):
                released.set()

        publisher = self.metadata.publisher
        publisher.subscribe(published)
        with trio.move_on_after(_STOP_TIMEOUT_MS / 1000):
            await released.wait()
        publisher.unsubscribe(published)

    def clock_jumped(self, seconds: float) -> None:
        """Process the deadlines that a jump of the world's clock by ``seconds`` has passed, on all nodes.

        Deadlines of groups and waiting requests end, connections that were idle for too long are closed, retention,
        flushes and compaction that time decides happen soon. Brokers keep their registrations, and the quorum its
        leader.
        """
        if self.metadata.is_open:
            self.metadata.raft.clock_jumped(seconds)
        if self._broker is not None:
            self._broker.clock_jumped()
        self.storage.clock_jumped()
        if self._controller is not None:
            self._controller.clock_jumped()
