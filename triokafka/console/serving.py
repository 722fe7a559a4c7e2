"""Serves the console's application on one address, with a bounded number of connections.

A browser that does not read its data within ``send.timeout.ms`` is disconnected: without that, a reader that stands
still would hold its live tail, and the end of the process, for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableSet
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, LifespanState
from hypercorn.utils import wrap_app

from triokafka.console.app import ConsoleOptions, console_app
from triokafka.console.limits import ConsoleLimits
from triokafka.world import World

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_END_SECONDS = 1.0
_MOST_APP_BODY = 1 << 20


@dataclass(frozen=True)
class ConsoleAddress:
    """Where the page is served; with ``certfile`` by https. Port 0 selects a free port."""

    host: str
    port: int
    certfile: str | None = None
    keyfile: str | None = None

    @property
    def shown_host(self) -> str:
        """The host as addresses have it."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def own_names(self) -> set[str]:
        """Names of this machine under which browsers reach the page."""
        return {self.shown_host, "localhost", "127.0.0.1", "[::1]"} if self.host in LOOPBACK else {self.shown_host}


async def serve_console(
    address: ConsoleAddress,
    options: ConsoleOptions,
    hosts: MutableSet[str],
    world: World,
    stopped: Callable[[], Awaitable[None]],
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until ``stopped`` returns or the caller is cancelled; ``task_status`` gets the page's URL.

    Open requests get a second to end, live tails too; then their connections are broken.

    ``hosts`` is the set in ``options.hosts``; the address's own names are added to it.

    Raises:
        OSError: the address cannot be used.
    """
    config = Config()
    config.bind = [f"{address.shown_host}:{address.port}"]
    config.certfile, config.keyfile = address.certfile, address.keyfile
    config.accesslog = config.errorlog = None
    config.alpn_protocols = ["http/1.1"]
    listeners, bound = _listeners(config)  # outside of the nursery, which would wrap an OSError in a group
    async with trio.open_nursery() as clients:
        app = wrap_app(console_app(options, world, clients), _MOST_APP_BODY, None)
        state: LifespanState = {}
        lifespan = Lifespan(app, config, state)
        await clients.start(lifespan.handle_lifespan)
        await lifespan.wait_for_startup()
        handler = partial(TCPServer, app, config, WorkerContext(None), ConnectionState(state.copy()))
        for name in address.own_names:
            hosts |= {name, f"{name}:{bound}"}
        async with trio.open_nursery() as connections:
            served = _Connections(handler, options.limits)
            server = partial(trio.serve_listeners, served.serve, listeners, handler_nursery=connections)
            try:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(server)
                    task_status.started(f"{'https' if address.certfile else 'http'}://{address.shown_host}:{bound}/")
                    await stopped()
                    accepting.cancel_scope.cancel()
                with trio.move_on_after(_END_SECONDS):
                    await served.all_ended()
            finally:
                connections.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await served.end()
        clients.cancel_scope.cancel()


def _listeners(config: Config) -> tuple[list[Any], int]:
    sockets = config.create_sockets()
    context = config.create_ssl_context()
    made: list[Any] = []
    port = 0
    for sock in [*sockets.secure_sockets, *sockets.insecure_sockets]:
        sock.listen(config.backlog)
        port = sock.getsockname()[1]
        plain = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        made.append(plain if context is None else trio.SSLListener(plain, context, https_compatible=True))
    return made, port


class _Connections:
    """Serves streams, a bounded number at a time."""

    def __init__(self, handler: Callable[[Any], Awaitable[None]], limits: ConsoleLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._streams: set[Any] = set()
        self._one_ended = trio.Event()

    async def serve(self, stream: Any) -> None:
        """Serve a new connection to its end, or close it at once when there are too many."""
        if len(self._streams) >= self._limits.max_connections:
            await trio.aclose_forcefully(stream)
            return
        self._streams.add(stream)
        try:
            _limit_sending(stream, self._limits.send_timeout_ms / 1_000)
            await self._handler(stream)
        finally:
            self._streams.discard(stream)
            self._one_ended.set()

    async def all_ended(self) -> None:
        """Wait until there are no connections."""
        while self._streams:
            self._one_ended = trio.Event()
            await self._one_ended.wait()

    async def end(self) -> None:
        """Break all connections, also those whose peers read no data."""
        for stream in list(self._streams):
            await trio.aclose_forcefully(stream)


def _limit_sending(stream: Any, seconds: float) -> None:
    """Break the connection when the peer does not take data for ``seconds``. The server shields its sending."""
    transport = getattr(stream, "transport_stream", stream)
    send = transport.send_all

    async def send_all(data: bytes) -> None:
        with trio.move_on_after(seconds) as scope:
            await send(data)
        if scope.cancelled_caught:
            await trio.aclose_forcefully(transport)
            raise trio.BrokenResourceError("the browser takes no data")

    transport.send_all = send_all
