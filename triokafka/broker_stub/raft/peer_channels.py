"""Connections to the other nodes of the quorum, and the requests in flight on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import trio

from triokafka.broker_stub.raft.effects import Send
from triokafka.errors import KafkaError
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node

R = TypeVar("R", bound=Response)

_MAX_CHANNELS: Final = 64
"""The most connections to other nodes; the least recently opened one is closed for another."""


class PeerChannel(Protocol):
    """The part of a `NodeChannel` that the quorum uses."""

    async def run(self) -> None:
        """Run the channel's tasks until cancelled or closed."""

    async def send(self, request: Request[R], *, timeout_ms: float | None = None) -> R:
        """Send a request and return the response. Raises `KafkaError`."""

    def close(self) -> None:
        """Close the connection."""


class PeerChannels:
    """Sends the requests of one node of the quorum.

    A request ends the earlier one to the same node, whose response is no longer expected. A Fetch may wait at the
    leader; it has a connection of its own, so that no other request waits behind it.

    Args:
        connect: makes a channel to another node, which is run and closed here.
        timeout_ms: the time limit of a request.
        ended: receives each request with its response or error, unless a later request has ended it.
    """

    def __init__(
        self,
        connect: Callable[[Node], PeerChannel],
        timeout_ms: float,
        ended: Callable[[Send, Any | KafkaError], None],
    ) -> None:
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._ended = ended
        self._channels: dict[tuple[str, int, bool], PeerChannel] = {}
        self._in_flight: dict[tuple[str, int, bool], trio.CancelScope] = {}

    def send(self, send: Send, nursery: trio.Nursery) -> None:
        """Send a request in the background. ``nursery`` runs the tasks of the channels and of the request."""
        from triokafka.protocol.api.fetch import FetchRequest

        key = send.node.host, send.node.port, isinstance(send.request, FetchRequest)
        earlier = self._in_flight.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        channel = self._channels.get(key)
        if channel is None:
            while len(self._channels) >= _MAX_CHANNELS:
                self._channels.pop(next(iter(self._channels))).close()
            channel = self._channels[key] = self._connect(send.node)
            nursery.start_soon(channel.run)
        scope = self._in_flight[key] = trio.CancelScope()
        nursery.start_soon(self._send, channel, send, scope, key)

    async def _send(
        self, channel: PeerChannel, send: Send, scope: trio.CancelScope, key: tuple[str, int, bool]
    ) -> None:
        with scope:
            outcome: Any
            try:
                outcome = await channel.send(send.request, timeout_ms=self._timeout_ms)
            except KafkaError as error:
                outcome = error
            if self._in_flight.get(key) is scope:
                del self._in_flight[key]
            self._ended(send, outcome)

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
