"""Dynamic configuration (KIP-226): applies changed broker options to the parts of a running broker."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.log_options import cleaner_config, fetcher_config, move_rate
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.network.options import socket_config
from triokafka.broker_stub.network.socket_server import SocketServer
from triokafka.broker_stub.request.services import BrokerServices


class DynamicReconfiguration:
    """Applies the broker options of an image."""

    def __init__(
        self,
        services: BrokerServices,
        *,
        cleaner: LogCleaner,
        sockets: SocketServer,
        reconfigure_security: Callable[[BrokerConfig], None],
    ) -> None:
        self._services = services
        self._cleaner = cleaner
        self._sockets = sockets
        self._reconfigure_security = reconfigure_security

    def apply(self, image: MetadataImage) -> None:
        """Follow the configuration of this broker in the image."""
        services = self._services
        config = services.configuration.broker_config(image)
        if config.security != services.config.current.security:
            self._reconfigure_security(config)
        services.config.update(config)
        logs = services.logs
        logs.reconfigure(defaults=config.topic_defaults, producer_expiration_ms=config.producer_id_expiration_ms)
        self._cleaner.config = cleaner_config(config)
        logs.mover.bytes_per_second = move_rate(image, config.node_id)
        services.replicas.reconfigure_all(image)
        services.replicas.fetchers.reconfigure(fetcher_config(config), image)
        self._sockets.reconfigure(socket_config(config, services.world.available_memory()))
