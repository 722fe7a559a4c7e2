"""Controller id and broker endpoints for responses."""

from __future__ import annotations

from triokafka.broker_stub.metadata.image import BrokerImage, MetadataImage


def controller_id(image: MetadataImage, node_id: int) -> int:
    """Return the controller id for responses: the lowest id of an unfenced broker.

    Every broker forwards requests to the controller, so any broker can act for it. All brokers must return the same id.
    """
    return min((node.broker_id for node in image.brokers.values() if not node.fenced), default=node_id)


def endpoint_of(broker: BrokerImage, listener: str) -> list[tuple[str, int]]:
    """Return host and port of ``broker`` on ``listener`` as a list of one.

    Return an empty list when the broker lacks that listener; responses on the listener then omit the broker.
    """
    return [(endpoint.host, endpoint.port) for endpoint in broker.endpoints if endpoint.name == listener][:1]
