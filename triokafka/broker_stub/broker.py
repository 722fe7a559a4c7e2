"""The broker of a node: constructs its parts, and starts and stops them in order.

Start: bind the listeners, lock and open the logs, replay the metadata log (`BrokerMetadataPublisher` applies every
image), register with the controller, accept connections, and then import what has not been needed so far. A stop goes
the same way backwards. No request is handled here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.authorizer import AllowAll, Authorizer
from triokafka.broker_stub.backend import Backend
from triokafka.broker_stub.broker_metadata_publisher import BrokerMetadataPublisher
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.dynamic_config import DynamicBrokerConfig
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.coordinators.coordinator_entry import Coordinator
from triokafka.broker_stub.coordinators.group_entry import group_entry
from triokafka.broker_stub.coordinators.registry import CoordinatorRegistry
from triokafka.broker_stub.deferred_imports import load_the_rest
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.broker_lifecycle import BrokerLifecycle
from triokafka.broker_stub.gateway.controller_gateway import ControllerGateway
from triokafka.broker_stub.gateway.local import LocalControllerGateway
from triokafka.broker_stub.gateway.registration import advertised_endpoints, check_listeners, registration_of
from triokafka.broker_stub.log.prevalidation import PrevalidationSlots
from triokafka.broker_stub.metadata import EndpointImage, MetadataImage
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.network.authentication import Authentication
from triokafka.broker_stub.network.options import socket_config
from triokafka.broker_stub.network.socket_server import Endpoint, SocketServer
from triokafka.broker_stub.producer_ids import ProducerIds
from triokafka.broker_stub.purgatory.delayed_operation import Expirer
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.request.auto_topic_creation import AutoTopicCreation
from triokafka.broker_stub.request.dispatcher import Dispatcher, QuotaHook
from triokafka.broker_stub.request.quotas import ClientQuotas
from triokafka.broker_stub.request.services import BrokerServices
from triokafka.errors import IllegalStateError, KafkaError
from triokafka.structs import TopicPartition, address_text
from triokafka.world import World
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    from triokafka.broker_stub.metrics.catalogue import Sample
    from triokafka.broker_stub.replica.read_result import ReadOutcome
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator
    from triokafka.network.fetch_sessions.fetch_session_cache import FetchSessionCache

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_MS: Final = 2_000
"""How long requests in progress get to finish when the broker stops."""


class Broker:
    """A broker with its controller and group coordinator, for the length of an ``async with`` block.

    Entering the block starts it; inside it serves. Leaving it, in whatever way, stops it cleanly: requests in progress
    get a moment to finish, and logs and checkpoints are written, so that the next start needs no recovery.

    Args:
        config: all options, checked already.
        world: the door to the outside; the operating system when None.
        authorizer: decides who may do what; everybody everything when None.
        quota: told of every answer, and says how long a client is to be held back; nobody when None.
        faults: the faults that tests arm; none are armed when None.
        authentication: finds out who a connection belongs to, before its first request; everybody is anonymous when
            None.
        backend: controller and logs that this broker shares with others in this process, running already; its own, that
            start and stop with it, when None.

    Raises:
        ConfigurationError: at construction: a listener has a security protocol that is not served. On entering: an
            address cannot be listened on, or a data directory cannot be used, is in use by another broker, or belongs
            to another node or cluster. Says which, and what to do.
        KafkaStorageError: on entering: a log cannot be read or written.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        world: World | None = None,
        authorizer: Authorizer | None = None,
        quota: QuotaHook | None = None,
        authentication: Authentication | None = None,
        faults: Faults | None = None,
        backend: Backend | None = None,
    ) -> None:
        check_listeners(config)
        self._config = DynamicBrokerConfig(config)
        self.world: World = RealWorld() if world is None else world
        self.node_id = config.node_id
        self.faults = Faults(self.world.random.random) if faults is None else faults
        self._backend = Backend(config, self.world) if backend is None else backend
        self.controller = controller = self._backend.controller
        # Brokers that share a controller have options of their own, but the same policies, which are made once.
        own = None if backend is None else ConfigurationControl(config, controller.state.configuration.policies)
        self.configuration = EffectiveConfiguration(config)
        self.gateway: ControllerGateway = LocalControllerGateway(controller, own)
        self.metadata = MetadataCache(lambda: controller.kraft_version)
        self.lifecycle = BrokerLifecycle(
            self.world,
            self.gateway,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            metadata_offset=lambda: self.image.offset,
            registered=self._registered,
        )
        self.logs = self._backend.logs
        self.cleaner = self._backend.cleaner
        self.replicas = ReplicaManager(
            config.node_id,
            self.logs,
            self.world,
            listener=self,
            produce_purge_interval=config.producer_purgatory_purge_interval_requests,
            fetch_purge_interval=config.fetch_purgatory_purge_interval_requests,
            shares_logs=self._backend.shared,
        )
        self.quotas = ClientQuotas(
            config.quota_window_num,
            config.quota_window_size_seconds,
            mutation_burst_seconds=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self._group_entry = group_entry(
            self.world, config, self.replicas, lambda: self.image, self._coordinator_created
        )
        self.coordinators = CoordinatorRegistry(
            [self._group_entry], log_size=lambda topic_partition: self.replicas.partition(topic_partition).log.size
        )
        self.topic_creation = AutoTopicCreation(self.gateway, config, self.metadata, self.coordinators)
        self.sockets = SocketServer(
            self.world, socket_config(config, self.world.available_memory()), authentication=authentication
        )
        handlers = Handlers()
        services = BrokerServices(
            node_id=config.node_id,
            world=self.world,
            config=self._config,
            cluster_id=lambda: self.cluster_id,
            metadata=self.metadata,
            configuration=self.configuration,
            gateway=self.gateway,
            replicas=self.replicas,
            logs=self.logs,
            prevalidation_slots=PrevalidationSlots(config.num_validation_threads),
            fetch_sessions=lambda: self.fetch_sessions,
            groups=self._group_entry,
            coordinators=self.coordinators,
            quotas=self.quotas,
            producer_ids=self.producer_ids,
            topic_creation=self.topic_creation,
            authorizer=AllowAll() if authorizer is None else authorizer,
            faults=self.faults,
            advertised=handlers.advertised,
        )
        self.dispatcher = Dispatcher(services, handlers, self.sockets.memory, quota=quota)
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery, bool | None] | None = None
        self._nursery: trio.Nursery | None = None
        self._stopped = trio.Event()
        self._made_at = self.world.now()
        self.failure: Exception | None = None
        self.follower = BrokerMetadataPublisher(
            self.world,
            config=self._config,
            configuration=self.configuration,
            metadata=self.metadata,
            logs=self.logs,
            cleaner=self.cleaner,
            replicas=self.replicas,
            quotas=self.quotas,
            sockets=self.sockets,
            coordinators=self.coordinators,
        )

    # As the listener of its replicas

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        """See `ReplicaListener`."""
        self.coordinators.high_watermark_changed(topic_partition, offset)

    def reopened(self, change: LeadershipChange) -> None:
        """See `ReplicaListener`."""
        self.coordinators.replica_reopened(change)

    # What it is

    @property
    def image(self) -> MetadataImage:
        """The committed metadata, as far as this broker has applied it."""
        return self.metadata.image

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self.controller.cluster_id

    @property
    def config(self) -> BrokerConfig:
        """The configuration with its dynamic changes."""
        return self._config.current

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port`` of every listener, separated by commas."""
        return ",".join(address_text(endpoint.host, endpoint.port) for endpoint in self._advertised())

    def _advertised(self) -> list[EndpointImage]:
        return advertised_endpoints(self.config, lambda listener: self.sockets.address(listener)[1])

    @cached_property
    def fetch_sessions(self) -> FetchSessionCache[ReadOutcome]:
        """The fetch sessions of clients (KIP-227); imported with the first Fetch."""
        from triokafka.network.fetch_sessions.fetch_session_cache import FetchSessionCache

        return FetchSessionCache(self.config.max_incremental_fetch_session_cache_slots, self.world)

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """Groups and their offsets; created on first use."""
        return self._group_entry.coordinator

    def _coordinator_created(self, coordinator: Coordinator) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._guard, coordinator.run)
        elif self._nursery_manager is not None:
            coordinator.runtime.stop()

    def metrics(self) -> list[Sample]:
        """Return the current value of every metric; see `triokafka.broker_stub.metrics.catalogue`."""
        for key in self.dispatcher.handlers:  # also of APIs that nobody has asked for
            self.dispatcher.load(key)
        from triokafka.broker_stub.metrics.catalogue import BrokerMetrics

        metrics = BrokerMetrics(self.dispatcher, self.sockets, self.cleaner, started_at=self._made_at)
        return list(metrics.samples())

    async def wait_stopped(self) -> None:
        """Wait until the broker has stopped, by leaving its block or because a part of it failed (`failure`)."""
        await self._stopped.wait()

    # Life

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def _start(self) -> None:
        if self._nursery_manager is not None:
            raise IllegalStateError("a broker starts once; make another one")
        world = self.world
        self._nursery_manager = trio.open_nursery()
        nursery = self._nursery = await self._nursery_manager.__aenter__()
        for entry in self.coordinators:
            if entry.existing is not None:  # created before the start
                nursery.start_soon(self._guard, entry.existing.run)
        try:
            for listener in self.config.broker_listeners:
                await self.sockets.bind(Endpoint(listener.name, listener.host, listener.port))
            if not self._backend.shared:
                await self._backend.start()
            self._backend.join(self)
            self.controller.publisher.subscribe(self.follower.metadata_changed)
            if not self._backend.shared:
                self._backend.run_tasks(nursery, self._guard)
            for purgatory in (self.replicas.produce_purgatory, self.replicas.fetch_purgatory):
                nursery.start_soon(self._guard, Expirer(purgatory, world).run)
            registration = registration_of(
                self.config,
                incarnation_id=world.uuid(),
                cluster_id=self.cluster_id,
                endpoints=self._advertised(),
                directory_ids=self.controller.identity.directory_ids,
                missed_directories=self.replicas.missed_directories,
            )
            await self.lifecycle.start(registration, timeout_ms=self.config.initial_broker_registration_timeout_ms)
            nursery.start_soon(self._guard, self.lifecycle.run)
            nursery.start_soon(self._guard, self.replicas.retry_offline)
            nursery.start_soon(self._guard, self._serve)
            nursery.start_soon(self._guard, partial(load_the_rest, self.dispatcher, self.coordinators))
        except BaseException:
            await self._stop()
            raise
        logger.info("broker %d of cluster %s serves %s", self.node_id, self.cluster_id, self.bootstrap_servers)

    async def kill(self) -> None:
        """End at once and leave everything as a process that is killed does; for tests.

        Connections break in the middle of answers, nobody is told, nothing is flushed, checkpointed or marked as closed
        cleanly: what was written stays, and the next start recovers it. Call it inside the block, in the task that
        entered it; leaving the block does nothing more.
        """
        await self._stop(cleanly=False)

    async def _stop(self, *, cleanly: bool = True) -> None:
        manager, nursery = self._nursery_manager, self._nursery
        if manager is None or nursery is None:
            return
        self._nursery = None
        if cleanly:
            with trio.CancelScope(shield=True):
                self.replicas.shut_down()
                for runtime in self.coordinators.runtimes():
                    runtime.stop()
                await self.sockets.stop(_STOP_TIMEOUT_MS)
                await self._sign_off()
        else:
            self.sockets.close()
        # The tasks must be gone before the files are closed, also when the body was cancelled.
        nursery.cancel_scope.shield = True
        nursery.cancel_scope.cancel()
        await manager.__aexit__(None, None, None)
        if self._backend.shared:
            self.controller.publisher.unsubscribe(self.follower.metadata_changed)
        elif cleanly:
            await self._backend.close()
        else:
            await self._backend.abandon()
        self._backend.leave(self)
        self._stopped.set()

    def clock_jumped(self) -> None:
        """The world's clock was put forward; see `Backend.clock_jumped`."""
        self._backend.clock_jumped()

    def look_at_clock(self) -> None:
        """The broker's own part of `clock_jumped`."""
        for runtime in self.coordinators.runtimes():
            runtime.clock_jumped()
        self.replicas.clock_jumped()
        self.sockets.clock_jumped()

    async def _sign_off(self) -> None:
        with trio.move_on_after(_STOP_TIMEOUT_MS / 1000):
            try:
                await self.lifecycle.leave()
            except KafkaError as error:
                logger.warning("could not sign off with the controller: %s", error)

    async def _serve(self) -> None:
        await self.sockets.run(self.dispatcher)

    async def _guard(self, run: Callable[[], Awaitable[object]]) -> None:
        """Run a part that should never end by itself; if it fails, the broker stops serving and says why."""
        try:
            await run()
        except Exception as error:
            logger.critical("the broker stops: %r failed", run, exc_info=True)
            self.failure = error
            self.sockets.close()
            self._stopped.set()

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        block = await self.gateway.allocate_producer_ids(self.node_id, self.lifecycle.broker_epoch)
        return block.first, block.size

    def _registered(self, broker_epoch: int) -> None:
        self.logs.broker_epoch = broker_epoch
