"""Requests of a coordinator to other brokers: to the leaders of partitions, and to other coordinators.

The addresses come from the metadata image: a broker's endpoint on the inter-broker listener.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from triokafka.broker_stub.metadata import MetadataImage
from triokafka.errors import KafkaConnectionError
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node
from triokafka.world import World

if TYPE_CHECKING:  # imported with the first request to another broker
    from triokafka.network.node_channel import NodeChannel
    from triokafka.security.client_security import ClientSecurity

R = TypeVar("R", bound=Response)


class BrokerChannels:
    """One channel per broker, made when it is first needed and replaced when the broker's address changes.

    Args:
        client_id: the client id of the requests.
        listener: the name of the inter-broker listener.
        timeout_ms: returns the time limit of a request.
        security: TLS and SASL of that listener; PLAINTEXT when None.
        start: runs a channel until the broker stops; raises `IllegalStateError` when it has stopped.
    """

    def __init__(
        self,
        world: World,
        image: Callable[[], MetadataImage],
        start: Callable[[Callable[[], Awaitable[object]]], None],
        *,
        client_id: str,
        listener: str,
        timeout_ms: Callable[[], int],
        security: ClientSecurity | None = None,
    ) -> None:
        self._world = world
        self._image = image
        self._start = start
        self._client_id = client_id
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._security = security
        self._channels: dict[int, NodeChannel] = {}

    async def send(self, node_id: int, request: Request[R], *, min_version: int | None = None) -> R:
        """Send a request to a broker, in ``min_version`` or a later one, and return the response.

        Raises:
            KafkaError: the broker is unknown or cannot be reached now, or does not know the API. It may have served
                the request.
        """
        return await self._channel(node_id).send(request, min_version=min_version, timeout_ms=self._timeout_ms())

    def _channel(self, node_id: int) -> NodeChannel:
        broker = self._image().brokers.get(node_id)
        endpoint = None
        if broker is not None:
            endpoint = next((one for one in broker.endpoints if one.name == self._listener), None)
        if endpoint is None:
            raise KafkaConnectionError(f"broker {node_id} has no address on the listener {self._listener}")
        node = Node(node_id, endpoint.host, endpoint.port)
        known = self._channels.get(node_id)
        if known is not None and known.node == node:
            return known
        if known is not None:
            known.close()
        from triokafka.network.node_channel import NodeChannel

        channel = NodeChannel(node, world=self._world, client_id=self._client_id, security=self._security)
        self._start(channel.run)
        self._channels[node_id] = channel
        return channel
