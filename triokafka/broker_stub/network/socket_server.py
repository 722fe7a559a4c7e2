"""The broker's listeners: one acceptor task per listener and one task per connection."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Collection
from math import inf
from typing import Final

import trio

from triokafka.broker_stub.network.authentication import Authentication, NoAuthentication
from triokafka.broker_stub.network.connection_limits import (
    ConnectingTooFastError,
    ConnectionConfig,
    ConnectionLimits,
    TooManyConnectionsError,
)
from triokafka.broker_stub.network.fair_scheduler import FairScheduler
from triokafka.broker_stub.network.framing import FrameBuffers
from triokafka.broker_stub.network.idle_connections import IdleConnections
from triokafka.broker_stub.network.limited_log import LimitedLog
from triokafka.broker_stub.network.processor import ConnectionProcessor, Shared
from triokafka.broker_stub.network.processor import logger as processor_logger
from triokafka.broker_stub.network.response_memory import ResponseMemory
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.handler_slots import HandlerSlots
from triokafka.broker_stub.request.request_memory import NO_LIMIT, RequestMemory
from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import address_text
from triokafka.world import Listener, Stream, World

logger = logging.getLogger(__name__)

_ACCEPT_RETRY_SECONDS: Final = 0.1
_RETURN_SECONDS: Final = 1.0
_COMPLAINT_SECONDS: Final = 60.0
"""Interval between log lines while a listener cannot accept connections."""
_ACCEPTED_AT_ONCE: Final = 32
"""Connections accepted before the acceptor yields: some milliseconds of work, for which open connections wait."""
_FOLLOWER_SEND_BUFFER: Final = 2 << 20
"""Bytes of a response to a follower that the kernel may hold: twice ``replica.fetch.max.bytes``."""


class Endpoint(NamedTuple):
    """One address to listen on, and the listener's name."""

    name: str
    host: str
    port: int


class SocketConfig(NamedTuple):
    """The options of the network layer, named as in Kafka's configuration (``connections.max.idle.ms`` and so on).

    ``connections`` and ``handler_slots`` can change while the broker runs.
    """

    request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    connections: ConnectionConfig = ConnectionConfig()
    handler_slots: int = 8
    queued_max_requests: int = 500
    queued_max_request_bytes: int = NO_LIMIT
    queued_request_stall_timeout_ms: int = 10_000
    queued_max_response_bytes: int = NO_LIMIT
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    listen_backlog_size: int = 4096
    failed_authentication_delay_ms: int = 100


class SocketServer:
    """Accepts connections and runs their processors.

    Call `bind` for each listener, which raises all errors, and then `run`.

    Args:
        authentication: authenticates each connection before its first request. Default: accept every connection.
    """

    def __init__(self, world: World, config: SocketConfig, *, authentication: Authentication | None = None) -> None:
        self._world = world
        self._config = config
        self._authentication = NoAuthentication() if authentication is None else authentication
        self.limits = ConnectionLimits(config.connections)
        self.slots = HandlerSlots(config.handler_slots, max_queued=config.queued_max_requests)
        self.memory = RequestMemory(
            config.queued_max_request_bytes,
            largest=config.request_max_bytes,
            stall_seconds=config.queued_request_stall_timeout_ms / 1000,
            now=world.loop_clock(),
            on_freed=self._memory_was_freed,
        )
        self.unsent = ResponseMemory(config.queued_max_response_bytes)
        self._freed = trio.Event()
        self._listeners: dict[str, Listener] = {}
        self._connections: dict[ConnectionProcessor, None] = {}
        self._room = trio.lowlevel.ParkingLot()  # tasks that wait for a connection to end or for changed limits
        self._buffers = FrameBuffers()
        self._next_index = 0
        self._idle = IdleConnections(self._connections, config.connections_max_idle_ms, world)
        self._stopping = False
        self._bad_requests = LimitedLog(
            processor_logger,
            world,
            "closed %d more connections for bad requests in the last %.0f s; run the broker with -v to see each",
        )
        self._refusals = LimitedLog(
            logger, world, "refused %d more connections in the last %.0f s; run the broker with -v to see each"
        )

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return self.limits.total

    @property
    def listeners(self) -> list[str]:
        """The names of the listeners."""
        return list(self._listeners)

    def address(self, name: str) -> tuple[str, int]:
        """Return the host and port to which the listener ``name`` is bound."""
        return self._listeners[name].address

    async def bind(self, endpoint: Endpoint) -> tuple[str, int]:
        """Listen on an address. Clients can connect from now on; the server reads requests after `run`.

        Raises:
            ConfigurationError: the listener cannot bind, or the authentication is not ready; the message says why.
        """
        config = self._config
        await self._authentication.prepare()
        try:
            listener = await self._world.listen(
                endpoint.host,
                endpoint.port,
                send_buffer_bytes=config.send_buffer_bytes,
                receive_buffer_bytes=config.receive_buffer_bytes,
                backlog=config.listen_backlog_size,
            )
        except OSError as error:
            raise ConfigurationError(_bind_sentence(endpoint, error)) from error
        self._listeners[endpoint.name] = listener
        return listener.address

    async def run(
        self,
        dispatcher: Dispatcher,
        *,
        late: Collection[str] = (),
        ready: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Serve until cancelled, and then close all connections. Call `stop` first to finish requests in progress.

        The listeners with the names ``late`` accept no connection until ``ready`` returns.
        """

        async def accept_late(name: str, listener: Listener) -> None:
            await ready()
            await self._accept(name, listener, shared, nursery)

        shared = self.shared(dispatcher)
        try:
            async with trio.open_nursery() as nursery:
                shared = shared._replace(start=nursery.start_soon)
                nursery.start_soon(self._idle.run)
                nursery.start_soon(self._authentication.run)
                nursery.start_soon(self._bad_requests.run)
                nursery.start_soon(self._refusals.run)
                nursery.start_soon(self._return_memory)
                for name, listener in self._listeners.items():
                    if name in late:
                        nursery.start_soon(accept_late, name, listener)
                    else:
                        nursery.start_soon(self._accept, name, listener, shared, nursery)
        finally:
            self.close()

    def shared(self, dispatcher: Dispatcher) -> Shared:
        """Return the objects that the connections of this server share."""
        return Shared(
            dispatcher,
            self.slots,
            self.memory,
            self.unsent,
            self._buffers,
            FairScheduler(),
            self._world,
            self._config.request_max_bytes,
            self._authentication,
            self._config.failed_authentication_delay_ms,
            0 if self._config.send_buffer_bytes < 0 else max(self._config.send_buffer_bytes, _FOLLOWER_SEND_BUFFER),
            self._bad_requests,
        )

    def reconfigure(self, config: SocketConfig) -> None:
        """Apply new connection limits and a new number of handler slots.

        Above a lowered limit, the server closes the excess connections, the most idle ones first.
        """
        if config.handler_slots != self.slots.slots:
            self.slots.resize(config.handler_slots)
        if config.connections != self._config.connections:
            self.limits.configure(config.connections)
            self._cut_excess()
            self._room.unpark_all()
        self._config = config

    def clock_jumped(self) -> None:
        """Check for idle connections immediately, after the world's clock has jumped forward."""
        self._idle.clock_jumped()

    def cut(self) -> int:
        """Close every connection immediately, keep listening, and return the number of connections."""
        for connection in self._connections:
            connection.close("the program closed all connections")
        return len(self._connections)

    def close(self) -> None:
        """Stop listening and close every connection immediately."""
        self._stopping = True
        for listener in self._listeners.values():
            listener.close()
        for connection in self._connections:
            connection.close("the broker stops")

    async def stop(self, timeout_ms: int) -> None:
        """Stop accepting, let requests in progress finish for at most ``timeout_ms``, then close."""
        self._stopping = True
        for listener in self._listeners.values():
            listener.close()
        for connection in list(self._connections):
            connection.finish()
        with trio.move_on_after(timeout_ms / 1000):
            while self._connections:
                await self._room.park()
        self.close()

    async def _accept(self, name: str, listener: Listener, shared: Shared, nursery: trio.Nursery) -> None:
        """Accept connections of one listener, up to `_ACCEPTED_AT_ONCE` before it yields to open connections."""
        silent_until = -inf
        accepted = 0
        while True:
            if accepted >= _ACCEPTED_AT_ONCE:
                accepted = 0
                await trio.lowlevel.checkpoint()
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                if self._stopping:
                    return
                # Most likely the process is out of file descriptors, from which the acceptor must recover.
                if (now := self._world.now()) >= silent_until:
                    silent_until = now + _COMPLAINT_SECONDS
                    logger.error("listener %s cannot accept: %s", name, error)
                await trio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            accepted += 1
            try:
                while self.limits.is_full(name) and not self._stopping:
                    # One connection waits here and the rest in the kernel's backlog until another one closes.
                    await self._room.park()
            except trio.Cancelled:
                stream.close()
                raise
            if self._stopping:
                stream.close()
                return
            ip = stream.peer_address[0]
            try:
                seconds = self.limits.opened(name, ip, self._world.now())
            except TooManyConnectionsError as error:
                self._refusals.warn("refusing a connection: %s", error)
                stream.close()
                continue
            except ConnectingTooFastError as error:
                self._refusals.warn("refusing a connection: %s", error)
                nursery.start_soon(_close_later, stream, error.seconds)
                continue
            self._next_index += 1
            connection = ConnectionProcessor(
                stream, connection_id=_connection_id(stream, self._next_index), listener=name, shared=shared
            )
            self._connections[connection] = None
            nursery.start_soon(self._process, connection, ip)
            self._cut_excess()
            if seconds:  # new connections come too fast (KIP-612)
                accepted = 0
                await trio.sleep(seconds)

    async def _process(self, connection: ConnectionProcessor, ip: str) -> None:
        try:
            await connection.run()
        finally:
            del self._connections[connection]
            self.limits.closed(connection.listener, ip)
            self._room.unpark_all()

    def _cut_excess(self) -> None:
        """Close the most idle connections above ``max.connections``, except on the protected listener."""
        if not self.limits.excess:
            return
        excess = max(self.limits.excess - sum(connection.closing for connection in self._connections), 0)
        candidates = [c for c in self._connections if self.limits.may_be_cut(c.listener) and not c.closing]
        candidates.sort(key=lambda connection: connection.idle_since)
        for connection in candidates[:excess]:
            connection.close("the broker has too many connections (max.connections) and this one was the most idle")

    def _memory_was_freed(self) -> None:
        self._freed.set()

    async def _return_memory(self) -> None:
        """Return memory to the operating system after large requests, at most once in `_RETURN_SECONDS`."""
        while True:
            await self._freed.wait()
            self._freed = trio.Event()
            await trio.sleep(_RETURN_SECONDS)  # until then the requests have freed their memory
            await self._world.run_in_thread(self._world.release_free_memory)


async def _close_later(stream: Stream, seconds: float) -> None:
    """Close a connection above its rate limit after a delay, since the peer would reconnect immediately."""
    try:
        await trio.sleep(seconds)
    finally:
        stream.close()


def _connection_id(stream: Stream, index: int) -> str:
    local, peer = stream.local_address, stream.peer_address
    return f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{index}"


def _bind_sentence(endpoint: Endpoint, error: OSError) -> str:
    where = f"{address_text(endpoint.host, endpoint.port)} (listener {endpoint.name})"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: the port is in use; stop the program that uses it, or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {where}: this machine has no such address"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: not permitted; ports below 1024 need privileges"
    return f"cannot listen on {where}: {error.strerror or error}"
