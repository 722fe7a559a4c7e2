"""How a broker makes itself known: its listeners as clients reach them, and what the controller is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka.broker_stub.config import SECURITY_PROTOCOLS, BrokerConfig
from triokafka.broker_stub.metadata import EndpointImage, features
from triokafka.broker_stub.metadata.broker_registration import BrokerRegistration
from triokafka.broker_stub.network.socket_server import SocketServer
from triokafka.errors import ConfigurationError

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker


def check_listeners(config: BrokerConfig) -> None:
    """Raise `ConfigurationError` when a listener has a security protocol that is not served."""
    for listener in config.broker_listeners:
        if listener.security_protocol != "PLAINTEXT":
            raise ConfigurationError(
                f"the listener {listener.name} has the security protocol {listener.security_protocol}; this broker "
                f"serves PLAINTEXT only (listener.security.protocol.map)"
            )


def advertised_endpoints(config: BrokerConfig, sockets: SocketServer) -> list[EndpointImage]:
    """Every listener as clients should know it: as configured, with the port that it really has."""
    endpoints = []
    for listener in config.broker_listeners:
        _, port = sockets.address(listener.name)
        host = listener.host or "localhost"
        configured = config.advertised.get(listener.name)
        if configured is not None:
            host, port = configured.host or host, configured.port or port
        protocol = SECURITY_PROTOCOLS[listener.security_protocol]
        endpoints.append(EndpointImage(listener.name, host, port, protocol))
    return endpoints


def registration_of(broker: Broker) -> BrokerRegistration:
    """What the controller is told of this process."""
    config, ids = broker.config, broker.controller.identity.directory_ids
    here = [ids[path] for path in config.data_directories if path in ids]  # the others are offline
    return BrokerRegistration(
        broker_id=broker.node_id,
        incarnation_id=broker.world.uuid(),
        cluster_id=broker.cluster_id,
        endpoints=tuple(advertised_endpoints(config, broker.sockets)),
        features=features.SUPPORTED,
        rack=config.broker_rack,
        directories=(*here, *broker.replicas.missed_directories),  # so that the next start knows of those, too
    )
