"""The broker's metadata publisher: applies every committed change of the metadata to the parts of this broker.

Partitions, coordinators, quotas and configuration follow the image. Nothing here waits or changes the metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.broker_stub.dynamic_reconfiguration import DynamicReconfiguration
from triokafka.broker_stub.gateway.broker_lifecycle import BrokerLifecycle
from triokafka.broker_stub.gateway.directory_assignments import DirectoryAssignments
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.metadata.features import cordons_directories
from triokafka.broker_stub.network.options import ip_connection_rates
from triokafka.broker_stub.network.socket_server import SocketServer
from triokafka.broker_stub.request.services import BrokerServices
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition


class BrokerMetadataPublisher:
    """Keeps the parts of a broker in step with the image, with its logs, and with each other."""

    def __init__(
        self,
        services: BrokerServices,
        *,
        sockets: SocketServer,
        assignments: DirectoryAssignments,
        lifecycle: BrokerLifecycle,
        reconfiguration: DynamicReconfiguration,
    ) -> None:
        self._services = services
        self._sockets = sockets
        self._assignments = assignments
        self._lifecycle = lifecycle
        self._reconfiguration = reconfiguration

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Partitions, logs, coordinators and configuration follow the image."""
        services = self._services
        services.metadata.update(delta, image)
        if any(kind == ConfigResourceType.BROKER for kind, _ in delta.changed_configs):
            self._reconfiguration.apply(image)
        if delta.client_quotas_changed:
            services.quotas.configure(image.client_quotas)
            self._sockets.limits.configure_ip_rates(ip_connection_rates(image.client_quotas))
        services.coordinators.topics_created(delta, image)
        cordons = cordons_directories(image)
        services.logs.cordon(services.config.current.cordoned_directories if cordons else ())
        changes = services.replicas.apply(delta, image)
        services.coordinators.replicas_changed(changes, delta)
        self._assignments.metadata_changed(delta, image)
        self._lifecycle.metadata_changed(image)
        if any(image.brokers[number].in_controlled_shutdown for number in delta.changed_brokers & image.brokers.keys()):
            self._lifecycle.report_soon()  # that broker stops once all others are known to have these metadata

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Stop using logs that are offline, first in the coordinators and then in the replica manager."""
        self._services.coordinators.logs_offline(topic_partitions)
        self._services.replicas.logs_offline(topic_partitions, reason)
