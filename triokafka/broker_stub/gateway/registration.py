"""The registration of a node: its advertised listeners, and a broker's directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from triokafka.broker_stub.config import SECURITY_PROTOCOLS, BrokerConfig, ListenerSpec
from triokafka.broker_stub.metadata import EndpointImage, features
from triokafka.broker_stub.metadata.broker_registration import BrokerRegistration


def advertised_endpoints(
    config: BrokerConfig, listeners: Iterable[ListenerSpec], port_of: Callable[[str], int]
) -> list[EndpointImage]:
    """Return the advertised endpoints of listeners. ``port_of`` returns the bound port of a listener."""
    endpoints = []
    for listener in listeners:
        host, port = listener.host or "localhost", port_of(listener.name)
        configured = config.advertised.get(listener.name)
        if configured is not None:
            host, port = configured.host or host, configured.port or port
        protocol = SECURITY_PROTOCOLS[listener.security_protocol]
        endpoints.append(EndpointImage(listener.name, host, port, protocol))
    return endpoints


def registration_of(
    config: BrokerConfig,
    *,
    incarnation_id: UUID,
    cluster_id: str,
    endpoints: Iterable[EndpointImage],
    directory_ids: Mapping[str, UUID],
    previous_broker_epoch: int = -1,
) -> BrokerRegistration:
    """Return the registration of this process.

    Its directories are those in use: the controller elects no replica in another one. A configured directory without
    an id is offline. ``previous_broker_epoch`` is that of the last stop if it was clean, otherwise -1.
    """
    return BrokerRegistration(
        broker_id=config.node_id,
        incarnation_id=incarnation_id,
        cluster_id=cluster_id,
        endpoints=tuple(endpoints),
        features=features.SUPPORTED,
        rack=config.broker_rack,
        directories=tuple(directory_ids[path] for path in config.data_directories if path in directory_ids),
        previous_broker_epoch=previous_broker_epoch,
    )
