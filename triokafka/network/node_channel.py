"""Requests of one node of the cluster to another: one connection at a time, made on demand.

Raft, replica fetchers, the gateway to the active controller and transaction markers use it. A `NodeChannel` outlives
its connections. It knows one address and no cluster metadata; its owner makes another one when the node moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from triokafka import errors
from triokafka.network.broker_channel import BrokerChannel, ChannelState, copied_failure
from triokafka.network.config import NetworkConfig
from triokafka.network.connection import Connection
from triokafka.network.receive_pool import ReceivePool
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.network.traffic import Traffic
from triokafka.network.versions import request_type_of
from triokafka.protocol.message import Request, Response
from triokafka.structs import Node
from triokafka.world import World

if TYPE_CHECKING:  # imported when there is TLS or SASL
    from triokafka.security.client_security import ClientSecurity

R = TypeVar("R", bound=Response)

DEFAULT_SILENCE_MS: Final = 9_000
_LEAST_TIMEOUT: Final = 0.001


class NodeChannel:
    """The connection of this node to ``node``.

    Use: construct, run `run` in a nursery, `send` from any task, `close` at the end. Without a sender there is no
    connection attempt. After a failed attempt the next one waits for the reconnect back-off. All times are
    milliseconds.

    The other node answers the requests of a connection in order: a Fetch that waits for records delays the response to
    a later request. Use a channel of its own for long waits.

    Args:
        node: number and address of the other node.
        client_id: the client id in the requests' headers.
        request_timeout_ms: the time limit of a request without one of its own. A request without a response in time
            ends the connection, and with it the other requests in flight.
        max_silence_ms: how long a response may be overdue, with nothing received, before the connection counts as
            dead. The time that the protocol lets the other node wait is not counted: ``max_wait_ms`` of a Fetch.
        reconnect_backoff_ms, reconnect_backoff_max_ms: the wait after a failure, doubled with each further one.
        connection_setup_timeout_ms, connection_setup_timeout_max_ms: the time limit of a connection attempt, doubled
            with each failure.
        max_in_flight: the number of requests without a response; more senders wait for their turn.
        max_response_bytes: a larger response ends the connection.
        pool: the buffers of large responses; its own when None.
        security: TLS and SASL of the other node's listener; PLAINTEXT when None.
        traffic: counts requests, responses and connections.
    """

    def __init__(
        self,
        node: Node,
        *,
        world: World,
        client_id: str,
        request_timeout_ms: float = 30_000,
        max_silence_ms: float = DEFAULT_SILENCE_MS,
        reconnect_backoff_ms: float = 50,
        reconnect_backoff_max_ms: float = 1_000,
        connection_setup_timeout_ms: float = 10_000,
        connection_setup_timeout_max_ms: float = 30_000,
        max_in_flight: int = 5,
        max_response_bytes: int = 256 << 20,
        pool: ReceivePool | None = None,
        security: ClientSecurity | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.node = node
        self._world = world
        config = NetworkConfig(
            bootstrap_servers=(),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            reconnect_backoff_ms=reconnect_backoff_ms,
            reconnect_backoff_max_ms=reconnect_backoff_max_ms,
            socket_connection_setup_timeout_ms=connection_setup_timeout_ms,
            socket_connection_setup_timeout_max_ms=connection_setup_timeout_max_ms,
            connections_max_silence_ms=max_silence_ms,
            max_in_flight_requests_per_connection=max_in_flight,
            receive_message_max_bytes=max_response_bytes,
            security=security,
            traffic=traffic,
        )
        self._request_timeout_ms = request_timeout_ms
        self._channel = BrokerChannel(
            node,
            world=world,
            config=config,
            pool=ReceivePool(config.receive_pool_bytes) if pool is None else pool,
            on_change=_ignore,
            has_others=_yes,  # a silent node is not waited for: the owner decides what to do without it
        )
        self._senders = 0
        self._demand = trio.Event()
        self._closing = trio.Event()
        self._runs = False

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent at once."""
        return (
            self._channel.connection is not None
            and self._channel.is_ready(self._world.now())
            and not self._closing.is_set()
        )

    @property
    def error(self) -> errors.KafkaError | None:
        """The reason why the last attempt or connection ended; None while connected, and before the first attempt."""
        return self._channel.error

    @property
    def name(self) -> str:
        """The other node in messages."""
        return f"node {self.node.node_id} at {self.node.address}"

    def __repr__(self) -> str:
        return f"NodeChannel({self.name})"

    async def run(self) -> None:
        """Connect when there is something to send, and serve the connection; until cancelled or closed.

        Raises:
            IllegalStateError: it runs already.
        """
        if self._runs:
            raise errors.IllegalStateError(f"the channel to {self.name} runs already")
        self._runs = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._connect_on_demand)
                await self._closing.wait()
                nursery.cancel_scope.cancel()
        finally:
            self.close()

    async def _connect_on_demand(self) -> None:
        channel = self._channel
        while True:
            if not self._senders:
                self._demand = trio.Event()
                await self._demand.wait()
            elif not channel.may_connect(self._world.now()):
                await trio.sleep(channel.delay(self._world.now()))
            else:
                channel.begin()
                await channel.run()

    def close(self) -> None:
        """End the connection; requests in flight and waiting senders fail. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._channel.connection is not None:
            self._channel.connection.close(self._closed_error())
        self._channel.wake_waiters()

    async def send(
        self,
        request: Request[R] | Callable[[int], Request[R]],
        *,
        api: type[Request[R]] | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: float | None = None,
    ) -> R:
        """Send a request and return its response.

        Waits for a connection, a turn and the response, at most ``timeout_ms`` in all (default
        ``request_timeout_ms``). ``request`` may be a function of the version; then ``api`` is the request's class. If
        cancelled, a late response is dropped, the other node may have executed the request, and the channel stays
        usable.

        Raises:
            KafkaConnectionError: the attempt to connect failed, no connection was made in time, or it ended before the
                response. Only in the last case the other node may have executed the request.
            RequestTimedOutError: no response in time; the connection was closed.
            UnsupportedVersionError: the nodes have no version of this request in common.
            BrokerResponseError: the other node refused this node when it connected.
            ProtocolError: the response is invalid; the connection was closed.
        """
        waiter = await self.submit(
            request, api=api, min_version=min_version, max_version=max_version, timeout_ms=timeout_ms
        )
        response: R = await waiter.wait()
        return response

    async def submit(
        self,
        request: Request[R] | Callable[[int], Request[R]],
        *,
        api: type[Request[R]] | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseWaiter:
        """Send a request and return what waits for its response; the first half of `send`, which has the arguments.

        Waits for a connection and a turn. A response that nobody waits for is dropped. The errors of `send` that come
        after the request has been sent are raised by the wait.
        """
        limit = (self._request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        give_up_at = self._world.now() + limit
        connection = await self._usable_connection(limit)
        request_type = request_type_of(request, api)
        version = self._channel.version_for(request_type, min_version, max_version)
        message = request if isinstance(request, Request) else request(version)
        waiter = ResponseWaiter()
        left = max(_LEAST_TIMEOUT, give_up_at - self._world.now())
        connection.submit(message, version, waiter.done, timeout=left)
        return waiter

    async def _usable_connection(self, limit: float) -> Connection:
        """Return a connection that takes a request now; submit it before the next checkpoint."""
        channel = self._channel
        if self.is_ready and channel.connection is not None:
            return channel.connection
        # The failure of an attempt that is in progress, or that begins from now on, is this caller's failure.
        in_progress = channel.state is ChannelState.CONNECTING
        first = channel.attempts if in_progress else channel.attempts + 1
        self._senders += 1
        self._demand.set()
        try:
            with trio.move_on_after(limit):
                while True:
                    if self._closing.is_set():
                        raise self._closed_error()
                    connection = channel.connection
                    if connection is not None and connection.error is None:
                        await connection.wait_for_slot()
                        if connection.error is None and connection is channel.connection:
                            return connection
                        continue
                    if channel.state is ChannelState.DISCONNECTED and channel.attempts >= first and channel.error:
                        raise copied_failure(channel.error)
                    changed = channel.changed
                    await changed.wait()
        finally:
            self._senders -= 1
        if channel.state is ChannelState.READY:
            raise errors.RequestTimedOutError(f"{self.name} did not take another request within {limit * 1000:.0f} ms")
        raise errors.KafkaConnectionError(
            f"no connection to {self.name} within {limit * 1000:.0f} ms"
            + (f"; last failure: {channel.error}" if channel.error is not None else "")
        )

    def _closed_error(self) -> errors.KafkaConnectionError:
        return errors.KafkaConnectionError(f"the channel to {self.name} was closed by this node")


def _ignore() -> None:
    """The owner of a channel is not interested in its state."""


def _yes() -> bool:
    return True
