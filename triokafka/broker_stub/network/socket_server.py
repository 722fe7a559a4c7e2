"""The broker's listeners: one acceptor task each, and a task for every connection that they accept."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from triokafka.broker_stub.handlers import Dispatcher
from triokafka.broker_stub.network.framing import FrameBuffers
from triokafka.broker_stub.network.handler_slots import HandlerSlots
from triokafka.broker_stub.network.limits import ConnectionLimits, TooManyConnectionsError
from triokafka.broker_stub.network.processor import ConnectionProcessor
from triokafka.errors import ConfigurationError
from triokafka.world import Listener, Stream, World

logger = logging.getLogger(__name__)

_ACCEPT_RETRY_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address to listen on, and the listener's name."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """The limits of the network layer, named as in Kafka's configuration (``connections.max.idle.ms`` and so on)."""

    request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    handler_slots: int = 8
    queued_max_requests: int = 500


class SocketServer:
    """Accepts connections and runs their processors.

    `bind` first, so that every address is known (and every failure raised) before anything is served; then `run`.
    """

    def __init__(self, world: World, limits: SocketLimits) -> None:
        self._world = world
        self._limits = limits
        self._counts = ConnectionLimits(
            max_connections=limits.max_connections,
            max_per_ip=limits.max_connections_per_ip,
            per_ip_overrides=limits.max_connections_per_ip_overrides,
        )
        self.slots = HandlerSlots(limits.handler_slots, max_queued=limits.queued_max_requests)
        self._listeners: dict[str, Listener] = {}
        self._connections: dict[ConnectionProcessor, None] = {}
        self._room = trio.lowlevel.ParkingLot()  # those who wait for a connection to end
        self._buffers = FrameBuffers()
        self._next_index = 0
        self._stopping = False

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return self._counts.total

    def address(self, name: str) -> tuple[str, int]:
        """Host and port that the listener ``name`` really listens on."""
        return self._listeners[name].address

    async def bind(self, endpoint: Endpoint) -> tuple[str, int]:
        """Listen on one more address; from now on it accepts, though nothing is read before `run`.

        Raises:
            ConfigurationError: the address cannot be listened on; says which and why.
        """
        try:
            listener = await self._world.listen(endpoint.host, endpoint.port)
        except OSError as error:
            raise ConfigurationError(_bind_sentence(endpoint, error)) from error
        self._listeners[endpoint.name] = listener
        return listener.address

    async def run(self, dispatcher: Dispatcher) -> None:
        """Serve until cancelled. Connections are then cut; use `stop` first to let requests in progress finish."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sweep_idle)
                for name, listener in self._listeners.items():
                    nursery.start_soon(self._accept, name, listener, dispatcher, nursery)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening and close every connection at once."""
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

    async def _accept(self, name: str, listener: Listener, dispatcher: Dispatcher, nursery: trio.Nursery) -> None:
        while True:
            while self._counts.full:
                # The rest wait in the kernel's backlog until somebody leaves.
                await self._room.park()
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                if self._stopping:
                    return
                # Out of file descriptors, most likely: the acceptor must survive it (A02).
                logger.error("listener %s cannot accept: %s", name, error)
                await trio.sleep(_ACCEPT_RETRY_SECONDS)
                continue
            if self._stopping:
                stream.close()
                return
            ip = stream.peer_address[0]
            try:
                self._counts.opened(ip)
            except TooManyConnectionsError as error:
                logger.warning("refusing a connection: %s", error)
                stream.close()
                continue
            nursery.start_soon(self._process, name, stream, ip, dispatcher)
            await trio.lowlevel.checkpoint()

    async def _process(self, name: str, stream: Stream, ip: str, dispatcher: Dispatcher) -> None:
        self._next_index += 1
        connection = ConnectionProcessor(
            stream,
            connection_id=_connection_id(stream, self._next_index),
            listener=name,
            dispatcher=dispatcher,
            slots=self.slots,
            max_frame_bytes=self._limits.request_max_bytes,
            world=self._world,
            buffers=self._buffers,
        )
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]
            self._counts.closed(ip)
            self._room.unpark_all()

    async def _sweep_idle(self) -> None:
        limit = self._limits.connections_max_idle_ms / 1000
        if limit <= 0:
            return
        while True:
            now = self._world.now()
            oldest = now
            for connection in list(self._connections):
                if now - connection.idle_since >= limit:
                    connection.close(f"idle for {self._limits.connections_max_idle_ms} ms")
                elif connection.idle_since < oldest:
                    oldest = connection.idle_since
            await trio.sleep(max(oldest + limit - now, 0))


def _connection_id(stream: Stream, index: int) -> str:
    local, peer = stream.local_address, stream.peer_address
    return f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{index}"


def _bind_sentence(endpoint: Endpoint, error: OSError) -> str:
    where = f"{endpoint.host}:{endpoint.port} (listener {endpoint.name})"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {where}: the port is in use; stop the program that uses it, or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {where}: this machine has no such address"
    if error.errno == errno.EACCES:
        return f"cannot listen on {where}: not permitted; ports below 1024 need privileges"
    return f"cannot listen on {where}: {error}"
