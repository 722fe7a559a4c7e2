"""The advertised endpoints of listeners (``advertised.listeners``), which a node registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from triokafka.broker_stub.config import SECURITY_PROTOCOLS, BrokerConfig, ListenerSpec
from triokafka.broker_stub.metadata import EndpointImage


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
