"""Brokers as responses show them to a client."""

from __future__ import annotations

from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage


def controller_id(image: MetadataImage, node_id: int) -> int:
    """The id that responses name as the controller's: every broker forwards, so all name the same unfenced broker."""
    return min((node.broker_id for node in image.brokers.values() if not node.fenced), default=node_id)


def endpoint_of(broker: BrokerImage, listener: str) -> list[tuple[str, int]]:
    """Host and port of ``broker`` on ``listener``; nothing when it has no such listener, and clients of it do not see
    it.
    """
    return [(endpoint.host, endpoint.port) for endpoint in broker.endpoints if endpoint.name == listener][:1]
