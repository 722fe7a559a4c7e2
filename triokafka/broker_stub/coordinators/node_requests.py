"""The interface through which a coordinator sends requests to other brokers."""

from __future__ import annotations

from typing import Protocol, TypeVar

from triokafka.errors import KafkaConnectionError
from triokafka.protocol.message import Request, Response

R = TypeVar("R", bound=Response)


class NodeRequests(Protocol):
    """Sends requests to other brokers of the cluster."""

    async def send(self, node_id: int, request: Request[R]) -> R:
        """Send a request and return the response.

        Raises:
            KafkaError: the broker is unknown or cannot be reached now, or does not know the API. It may have served
                the request.
        """


class UnreachableNodes:
    """The other brokers of a node that has no way to them."""

    async def send(self, node_id: int, request: Request[R]) -> R:
        """See `NodeRequests`."""
        raise KafkaConnectionError(f"broker {node_id} cannot be reached from this node")
