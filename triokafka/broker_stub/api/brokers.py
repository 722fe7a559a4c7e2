"""How a broker is named to a client: by the address of the listener that the client itself uses."""

from __future__ import annotations

from triokafka.broker_stub.metadata.image import BrokerImage


def endpoint_of(broker: BrokerImage, listener: str) -> list[tuple[str, int]]:
    """Host and port of ``broker`` on ``listener``; nothing when it has no such listener, and clients of it do not see
    it.
    """
    return [(endpoint.host, endpoint.port) for endpoint in broker.endpoints if endpoint.name == listener][:1]
