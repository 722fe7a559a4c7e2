"""The broker's metadata publisher: applies every committed change of the metadata to the parts of this broker.

Partitions, coordinators, quotas and configuration follow the image. Nothing here waits or changes the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.config.dynamic_config import DynamicBrokerConfig
from triokafka.broker_stub.coordinators.registry import CoordinatorRegistry
from triokafka.broker_stub.gateway.broker_lifecycle import BrokerLifecycle
from triokafka.broker_stub.gateway.directory_assignments import DirectoryAssignments
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log_options import cleaner_config, fetcher_config, move_rate
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.metadata.cache import MetadataCache
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.metadata.features import cordons_directories
from triokafka.broker_stub.network.options import ip_connection_rates, socket_config
from triokafka.broker_stub.network.socket_server import SocketServer
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.request.quotas import ClientQuotas
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition
from triokafka.world import World


class BrokerMetadataPublisher:
    """Keeps the parts of a broker in step with the image, with its logs, and with each other."""

    def __init__(
        self,
        world: World,
        *,
        config: DynamicBrokerConfig,
        configuration: EffectiveConfiguration,
        metadata: MetadataCache,
        logs: LogManager,
        cleaner: LogCleaner,
        replicas: ReplicaManager,
        quotas: ClientQuotas,
        sockets: SocketServer,
        coordinators: CoordinatorRegistry,
        assignments: DirectoryAssignments,
        reconfigure_security: Callable[[BrokerConfig], None],
        lifecycle: BrokerLifecycle,
    ) -> None:
        self._world = world
        self._config = config
        self._configuration = configuration
        self._metadata = metadata
        self._logs = logs
        self._cleaner = cleaner
        self._replicas = replicas
        self._quotas = quotas
        self._sockets = sockets
        self._coordinators = coordinators
        self._assignments = assignments
        self._reconfigure_security = reconfigure_security
        self._lifecycle = lifecycle

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Partitions, logs, coordinators and configuration follow the image."""
        self._metadata.update(delta, image)
        if any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs):
            self._reconfigure(image)
        if delta.client_quotas_changed:
            self._quotas.configure(image.client_quotas)
            self._sockets.limits.configure_ip_rates(ip_connection_rates(image.client_quotas))
        self._coordinators.topics_created(delta, image)
        cordons = cordons_directories(image)
        self._logs.cordon(self._config.current.cordoned_directories if cordons else ())
        changes = self._replicas.apply(delta, image)
        self._coordinators.replicas_changed(changes, delta)
        self._assignments.metadata_changed(delta, image)
        self._lifecycle.metadata_changed(image)
        if any(image.brokers[number].in_controlled_shutdown for number in delta.changed_brokers & image.brokers.keys()):
            self._lifecycle.report_soon()  # that broker stops once all others are known to have these metadata

    def _reconfigure(self, image: MetadataImage) -> None:
        config = self._configuration.broker_config(image)
        if config.security != self._config.current.security:
            self._reconfigure_security(config)
        self._config.update(config)
        self._logs.reconfigure(defaults=config.topic_defaults, producer_expiration_ms=config.producer_id_expiration_ms)
        self._cleaner.config = cleaner_config(config)
        self._logs.mover.bytes_per_second = move_rate(image, config.node_id)
        self._replicas.reconfigure_all(image)
        self._replicas.fetchers.reconfigure(fetcher_config(config), image)
        self._sockets.reconfigure(socket_config(config, self._world.available_memory()))

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Stop using logs that are offline, first in the coordinators and then in the replica manager."""
        self._coordinators.logs_offline(topic_partitions)
        self._replicas.logs_offline(topic_partitions, reason)
