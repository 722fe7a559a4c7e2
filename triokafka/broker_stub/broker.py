"""The broker of a node: constructs its parts, and starts and stops them in order.

Start: bind the listeners, lock and open the logs, replay the metadata log (`BrokerMetadataPublisher` applies every
image), register with the controller, accept connections, and then import the modules that no request has needed so far.
A stop does the reverse. No request is handled here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from triokafka.broker_stub.api import Handlers
from triokafka.broker_stub.authorizer import AllowAll, Authorizer
from triokafka.broker_stub.broker_metadata_publisher import BrokerMetadataPublisher
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.current_config import CurrentConfig
from triokafka.broker_stub.coordinators.broker_channels import BrokerChannels
from triokafka.broker_stub.coordinators.consumer_offsets_topic import group_entry
from triokafka.broker_stub.coordinators.coordinator_entry import Coordinator
from triokafka.broker_stub.coordinators.registry import CoordinatorRegistry
from triokafka.broker_stub.coordinators.transaction_state_topic import transaction_entry
from triokafka.broker_stub.coordinators.transaction_verifier import TransactionVerifier
from triokafka.broker_stub.deferred_imports import load_the_rest
from triokafka.broker_stub.dynamic_reconfiguration import DynamicReconfiguration
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.gateway.advertised_endpoints import advertised_endpoints
from triokafka.broker_stub.gateway.broker_lifecycle import BrokerLifecycle, registration_of
from triokafka.broker_stub.gateway.directory_assignments import DirectoryAssignments
from triokafka.broker_stub.gateway.gateway_interface import ControllerGateway
from triokafka.broker_stub.log.prevalidation import PrevalidationSlots
from triokafka.broker_stub.log_options import fetcher_config
from triokafka.broker_stub.metadata import EndpointImage, MetadataImage
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.metadata.features import cordons_directories
from triokafka.broker_stub.network.authentication import Authentication
from triokafka.broker_stub.network.options import socket_config
from triokafka.broker_stub.network.socket_server import Endpoint, SocketServer
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.node_security import NodeSecurity
from triokafka.broker_stub.node_storage import NodeStorage
from triokafka.broker_stub.node_tasks import NodeTasks
from triokafka.broker_stub.producer_ids import ProducerIds
from triokafka.broker_stub.purgatory.delayed_operation import Expirer
from triokafka.broker_stub.replica.replica_listener import LeadershipChange
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.request.auto_topic_creation import AutoTopicCreation
from triokafka.broker_stub.request.client_quotas import ClientQuotas
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.services import BrokerServices
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition, address_text
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.coordinators.marker_writer import PartitionMarkers
    from triokafka.broker_stub.metrics.broker_catalogue import BrokerMetrics
    from triokafka.broker_stub.metrics.sample import Sample
    from triokafka.broker_stub.replica.read_result import ReadOutcome
    from triokafka.coordinator.group.group_coordinator import GroupCoordinator
    from triokafka.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from triokafka.network.fetch_sessions.fetch_session_cache import FetchSessionCache
    from triokafka.security.scram_credentials import ScramCredentials

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_MS: Final = 2_000
"""The time for requests in progress to finish when the broker stops, in milliseconds."""


class Broker:
    """The broker role of a node: listeners, request path, replicas, coordinators, and its own metadata cache.

    Use: `bind`, `follow_metadata` once the controller has started, `start`; `stop` and `unfollow_metadata` at the end.
    `Node` does it.

    Args:
        storage: the data directories, which the node opens and closes.
        gateway: reaches the active controller.
        node_metadata: publishes committed metadata, and knows the ids of the cluster and of the data directories.
        authorizer, authentication, faults, scram_credentials: see `Node`.
        node_metrics: returns the metrics of the node's other parts, such as the quorum and the controller.
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        *,
        storage: NodeStorage,
        gateway: ControllerGateway,
        node_metadata: NodeMetadata,
        authorizer: Authorizer | None = None,
        authentication: Authentication | None = None,
        faults: Faults | None = None,
        scram_credentials: ScramCredentials | None = None,
        node_metrics: Callable[[], Iterable[Sample]] = tuple,
    ) -> None:
        self._config = CurrentConfig(config)
        self.world = world
        self.node_id = config.node_id
        self.faults = Faults(world.random.random) if faults is None else faults
        self._storage = storage
        self._node_metadata = node_metadata
        self._node_metrics = node_metrics
        self._metrics: BrokerMetrics | None = None
        self._directory_ids: Callable[[], Mapping[str, UUID]] = lambda: node_metadata.identity.directory_ids
        self.configuration = EffectiveConfiguration(config)
        self.gateway = gateway
        self.metadata = MetadataCache(lambda: node_metadata.kraft_version)
        self._security = NodeSecurity(config, world, lambda: self.image, scram_credentials)
        self.lifecycle = BrokerLifecycle(
            self.world,
            self.gateway,
            heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
            session_timeout_ms=config.broker_session_timeout_ms,
            metadata_offset=lambda: self.image.offset,
            registered=self._registered,
            is_stuck=lambda: node_metadata.is_stuck,
            offline_directories=self._failed_directories,
            cordoned_directories=self._cordoned_directories,
        )
        self.logs = storage.logs
        self.cleaner = storage.cleaner
        self.replicas = ReplicaManager(
            config.node_id,
            self.logs,
            self.world,
            listener=self,
            produce_purge_interval=config.producer_purgatory_purge_interval_requests,
            fetch_purge_interval=config.fetch_purgatory_purge_interval_requests,
            delete_purge_interval=config.delete_records_purgatory_purge_interval_requests,
            lag_ms=config.replica_lag_time_max_ms,
            quota_windows=config.replication_quota_window_num,
            quota_window_seconds=config.replication_quota_window_size_seconds,
            selector_class=config.replica_selector_class,
            rack=config.broker_rack,
            resign=self.lifecycle.resign,
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
        self._transaction_entry = transaction_entry(
            self.world,
            config,
            self.replicas,
            lambda: self.image,
            self._coordinator_created,
            markers=lambda: self.partition_markers,
            nodes=self._channels("markers"),
            new_producer_id=self.producer_ids.next_id,
        )
        self.coordinators = CoordinatorRegistry(
            [self._group_entry, self._transaction_entry],
            log_size=lambda topic_partition: self.replicas.partition(topic_partition).log.size,
        )
        verifier = TransactionVerifier(
            self.world,
            config.node_id,
            self.replicas,
            lambda: self.image,
            self._transaction_entry,
            self._channels("verification"),
            lambda: self.config.transaction_partition_verification_enable,
        )
        self.topic_creation = AutoTopicCreation(self.gateway, config, self.metadata, self.coordinators)
        self.sockets = SocketServer(
            self.world,
            socket_config(config, self.world.available_memory()),
            authentication=authentication or self._security.listeners,
        )
        handlers = Handlers()
        self._services = BrokerServices(
            check_stores=None if self._security.listeners is None else self._security.listeners.check,
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
            transactions=self._transaction_entry,
            transaction_verifier=verifier,
            partition_markers=lambda: self.partition_markers,
            coordinators=self.coordinators,
            quotas=self.quotas,
            producer_ids=self.producer_ids,
            topic_creation=self.topic_creation,
            authorizer=AllowAll() if authorizer is None else authorizer,
            faults=self.faults,
            advertised=handlers.advertised,
        )
        self.dispatcher = Dispatcher(self._services, handlers, self.sockets.memory)
        self._made_at = self.world.now()
        self.tasks = NodeTasks(self.sockets.close)
        self._started = False
        self._assignments = DirectoryAssignments(
            config.node_id,
            self.gateway,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            directory_of=self._directory_of,
        )
        self.publisher = BrokerMetadataPublisher(
            self._services,
            sockets=self.sockets,
            assignments=self._assignments,
            lifecycle=self.lifecycle,
            reconfiguration=DynamicReconfiguration(
                self._services,
                cleaner=self.cleaner,
                sockets=self.sockets,
                reconfigure_security=self._security.reconfigure,
            ),
        )

    # As the listener of its replicas

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        """See `ReplicaListener`."""
        self.coordinators.high_watermark_changed(topic_partition, offset)

    def reopened(self, change: LeadershipChange) -> None:
        """See `ReplicaListener`."""
        self.coordinators.replica_reopened(change)
        self._assignments.look_at([change.topic_partition])

    # What it is

    @property
    def image(self) -> MetadataImage:
        """The committed metadata, as far as this broker has applied it."""
        return self.metadata.image

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._node_metadata.cluster_id

    @property
    def config(self) -> BrokerConfig:
        """The configuration with its dynamic changes."""
        return self._config.current

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port`` of every listener, separated by commas."""
        return ",".join(address_text(endpoint.host, endpoint.port) for endpoint in self._advertised())

    def _advertised(self) -> list[EndpointImage]:
        config = self.config
        return advertised_endpoints(config, config.broker_listeners, lambda name: self.sockets.address(name)[1])

    @cached_property
    def fetch_sessions(self) -> FetchSessionCache[ReadOutcome]:
        """The fetch sessions of clients (KIP-227); imported with the first Fetch."""
        from triokafka.network.fetch_sessions.fetch_session_cache import FetchSessionCache

        return FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots,
            self.world,
            max_partitions=self.config.max_incremental_fetch_session_cache_partitions,
        )

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """Groups and their offsets; created on first use."""
        return self._group_entry.coordinator

    @cached_property
    def partition_markers(self) -> PartitionMarkers:
        """Writes transaction markers to the partitions that this broker leads; imported with the first."""
        from triokafka.broker_stub.coordinators.marker_writer import PartitionMarkers

        return PartitionMarkers(self.world, self.replicas, self._group_entry, lambda: self.config.request_timeout_ms)

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """Transactional ids and their transactions; created on first use."""
        return self._transaction_entry.coordinator

    def _coordinator_created(self, coordinator: Coordinator) -> None:
        if self.tasks.is_open:
            self.tasks.start(coordinator.run)
        elif self._started:
            coordinator.runtime.stop()

    @property
    def ready(self) -> bool:
        """Whether the controller lets this broker lead partitions: it is registered and not fenced."""
        from triokafka.broker_stub.gateway.broker_lifecycle import LifecycleState

        return self.lifecycle.state is LifecycleState.RUNNING

    def metrics(self) -> Iterator[Sample]:
        """Yield the current value of every metric; see `triokafka.broker_stub.metrics.broker_catalogue`."""
        from triokafka.broker_stub.gateway.broker_lifecycle import STATE_NUMBERS
        from triokafka.broker_stub.metrics.broker_catalogue import BrokerMetrics

        if self._metrics is None:
            self._metrics = BrokerMetrics(
                self.dispatcher,
                self._services,
                self.sockets,
                self.cleaner,
                self._assignments,
                started_at=self._made_at,
                broker_state=lambda: STATE_NUMBERS[self.lifecycle.state],
            )
        return chain(self._metrics.samples(), self._node_metrics())

    # Life

    async def bind(self) -> None:
        """Listen on every address, so that clients that connect now wait for the start.

        Raises:
            ConfigurationError: an address cannot be listened on.
        """
        self._started = True
        for entry in self.coordinators:
            if entry.existing is not None:  # used before the start
                self.tasks.start(entry.existing.run)
        for listener in self.config.broker_listeners:
            await self.sockets.bind(Endpoint(listener.name, listener.host, listener.port))

    def follow_metadata(self) -> None:
        """Host partitions, and apply the metadata from now on: the newest image at once."""
        self._storage.host = self
        self._node_metadata.publisher.subscribe(self.publisher.metadata_changed)

    def unfollow_metadata(self) -> None:
        """End `follow_metadata`."""
        self._node_metadata.publisher.unsubscribe(self.publisher.metadata_changed)
        self._storage.host = None

    async def start(self) -> None:
        """Register with the controller, and serve.

        Raises:
            KafkaError: the controller refused the registration.
        """
        start = self.tasks.start
        replicas = self.replicas
        for purgatory in (replicas.produce_purgatory, replicas.fetch_purgatory, replicas.delete_purgatory):
            start(Expirer(purgatory, self.world).run)
        # Before the registration: a restarted broker catches up while it is fenced.
        start(partial(replicas.run_in_sync_sets, self.gateway, lambda: self.lifecycle.broker_epoch))
        start(
            partial(
                replicas.fetchers.run,
                fetcher_config(self.config),
                listener=self.config.inter_broker_listener,
                image=lambda: self.image,
                broker_epoch=lambda: self.lifecycle.broker_epoch,
                security=self._security.peers,
            )
        )
        registration = registration_of(
            self.config,
            incarnation_id=self.world.uuid(),
            cluster_id=self.cluster_id,
            endpoints=self._advertised(),
            directory_ids=self._directory_ids(),
            previous_broker_epoch=self.logs.previous_broker_epoch,
        )
        await self.lifecycle.start(registration, timeout_ms=self.config.initial_broker_registration_timeout_ms)
        start(self.lifecycle.run)
        start(self._assignments.run)
        start(self.replicas.retry_offline)
        start(self.replicas.replace_lost_ends)
        start(self._serve)
        start(partial(load_the_rest, self.dispatcher, self.coordinators))
        logger.info("broker %d of cluster %s serves %s", self.node_id, self.cluster_id, self.bootstrap_servers)

    async def stop(self, *, cleanly: bool = True) -> None:
        """Stop serving and end all tasks; cleanly, requests in progress finish first and the broker signs off."""
        await self.stop_serving(cleanly=cleanly)
        # The tasks must have ended before the files are closed, also when the body was cancelled.
        await self.tasks.close()

    async def stop_serving(self, *, cleanly: bool = True, signs_off: bool = True) -> None:
        """Do the first part of `stop`: serve no more and sign off, while the tasks of the node continue.

        In a cluster of several brokers the broker signs off first: followers fetch from it until its partitions have
        other leaders. Without ``signs_off`` the broker does not sign off with the controller.
        """
        self.tasks.refuse()
        if not cleanly:
            self.sockets.close()
            return
        with trio.CancelScope(shield=True):
            has_others = any(number != self.node_id for number in self.image.brokers)
            if has_others and signs_off:
                await self._sign_off()
            self.replicas.shut_down()
            for runtime in self.coordinators.runtimes():
                runtime.stop()
            await self.sockets.stop(_STOP_TIMEOUT_MS)
            if not has_others and signs_off:
                await self._sign_off()

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Stop using logs that are offline."""
        self.publisher.logs_offline(topic_partitions, reason)

    def clock_jumped(self) -> None:
        """Process the deadlines that a jump of the world's clock has passed; see `Node.clock_jumped`."""
        for runtime in self.coordinators.runtimes():
            runtime.clock_jumped()
        self.replicas.clock_jumped()
        self.sockets.clock_jumped()

    def _directory_of(self, topic_partition: TopicPartition) -> UUID | None:
        """Return the id of the data directory of a log that is online."""
        log = self.logs.get(topic_partition)
        return None if log is None else self._directory_ids().get(os.path.dirname(log.directory))

    def _failed_directories(self) -> tuple[UUID, ...]:
        offline = self.logs.offline_directories()
        return tuple(known for path, known in self._directory_ids().items() if path.rstrip("/") in offline)

    def _cordoned_directories(self) -> tuple[UUID, ...] | None:
        if not cordons_directories(self.image):
            return None
        return tuple(known for path, known in self._directory_ids().items() if path in self.config.cordoned_directories)

    async def _sign_off(self) -> None:
        try:
            await self.lifecycle.leave()
        except KafkaError as error:
            logger.warning(
                "Broker %d: the controller did not confirm the shutdown; leaderships move when its session ends: %s",
                self.config.node_id,
                error,
            )

    async def _serve(self) -> None:
        await self.sockets.run(self.dispatcher)

    def _channels(self, purpose: str) -> BrokerChannels:
        """Return the channels to the other brokers for one purpose, whose requests wait for no others."""
        return BrokerChannels(
            self.world,
            lambda: self.image,
            lambda run: self.tasks.start(run),
            client_id=f"broker-{self.node_id}-{purpose}",
            listener=self.config.inter_broker_listener,
            timeout_ms=lambda: self.config.request_timeout_ms,
            security=self._security.peers,
        )

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        block = await self.gateway.allocate_producer_ids(self.node_id, self.lifecycle.broker_epoch)
        return block.first, block.size

    def _registered(self, broker_epoch: int) -> None:
        self.logs.registered(broker_epoch)
