"""The registration of a broker with the controller: its listeners as clients reach them, and its directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from triokafka.broker_stub.config import SECURITY_PROTOCOLS, BrokerConfig
from triokafka.broker_stub.metadata import EndpointImage, features
from triokafka.broker_stub.metadata.broker_registration import BrokerRegistration
from triokafka.errors import ConfigurationError


def check_listeners(config: BrokerConfig) -> None:
    """Raise `ConfigurationError` when a listener has a security protocol that is not served."""
    for listener in config.broker_listeners:
        if listener.security_protocol != "PLAINTEXT":
            raise ConfigurationError(
                f"the listener {listener.name} has the security protocol {listener.security_protocol}; this broker "
                f"serves PLAINTEXT only (listener.security.protocol.map)"
            )


def advertised_endpoints(config: BrokerConfig, ports: Mapping[str, int]) -> list[EndpointImage]:
    """Return every listener as clients should know it: as configured, with the port on which it really listens.

    Args:
        ports: by the listener's name.
    """
    endpoints = []
    for listener in config.broker_listeners:
        host, port = listener.host or "localhost", ports[listener.name]
        configured = config.advertised.get(listener.name)
        if configured is not None:
            host, port = configured.host or host, configured.port or port
        protocol = SECURITY_PROTOCOLS[listener.security_protocol]
        endpoints.append(EndpointImage(listener.name, host, port, protocol))
    return endpoints


def registration_of(
    config: BrokerConfig,
    *,
    cluster_id: str,
    incarnation_id: UUID,
    endpoints: Sequence[EndpointImage],
    directories: Sequence[UUID],
) -> BrokerRegistration:
    """Return the registration of one run of a broker.

    Args:
        incarnation_id: a new one at every start.
        directories: the ids of data directories, of offline ones with logs as well: the next start knows of them then.
    """
    return BrokerRegistration(
        broker_id=config.node_id,
        incarnation_id=incarnation_id,
        cluster_id=cluster_id,
        endpoints=tuple(endpoints),
        features=features.SUPPORTED,
        rack=config.broker_rack,
        directories=tuple(directories),
    )
