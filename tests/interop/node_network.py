"""The network between the nodes of a cluster: TCP proxies on loopback that cut, silence, delay or slow one direction.

Every node advertises the address of a proxy. The proxy finds the node that connected by the process that owns the other
end of the connection, so faults apply to a pair of nodes. Connections of clients have no faults.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

__all__ = ["NodeNetwork", "node_network"]

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_CLIENT: Final = 0
_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_REQUEST: Final = 1


@dataclass
class _Route:
    """The treatment of the bytes from one node to another."""

    delay: float = 0.0
    bytes_per_second: float = 0.0
    refuses: bool = False
    opened: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.opened.set()


class NodeNetwork:
    """The proxies of a cluster. Faults are named by source and destination, and last until `heal`.

    Silence holds the bytes, as a network that loses packets does: TCP delivers them after the network has healed.
    """

    def __init__(self) -> None:
        self.pids: Callable[[], Mapping[int, int]] = dict
        """Return the running process of each node; a test sets it."""
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._routes: dict[tuple[int, int], _Route] = {}
        self._links: dict[tuple[int, int], set[tuple[trio.SocketStream, trio.SocketStream]]] = {}

    # ---------------------------------------------------------------- for tests, from another thread

    def front(self, node: int, port: int) -> int:
        """Start a proxy for a port of a node, and return the proxy's port."""
        assert self._token is not None
        return trio.from_thread.run(self._listen, node, port, trio_token=self._token)

    def cut(self, source: int, destination: int) -> None:
        """Reset the connections that ``source`` opened to ``destination``, and every new one."""
        self._run(self._cut, source, destination)

    def silence(self, source: int, destination: int) -> None:
        """Hold everything that ``source`` sends to ``destination``, whichever of them opened the connection."""
        self._run(self._silence, source, destination)

    def slow(self, source: int, destination: int, *, delay: float = 0.0, bytes_per_second: float = 0.0) -> None:
        """Delay what ``source`` sends to ``destination``, or limit its rate."""
        self._run(self._slow, source, destination, delay, bytes_per_second)

    def isolate(self, node: int, others: Iterable[int], fault: Callable[[int, int], None]) -> None:
        """Apply a fault to both directions between a node and others."""
        for other in others:
            fault(node, other)
            fault(other, node)

    def heal(self) -> None:
        """End all faults."""
        self._run(self._heal)

    def _run(self, change: Callable[..., None], *arguments: object) -> None:
        assert self._token is not None
        trio.from_thread.run_sync(change, *arguments, trio_token=self._token)

    # ---------------------------------------------------------------- in the thread of the proxies

    async def serve(self, started: Callable[[], None]) -> None:
        """Serve until cancelled."""
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            started()
            await trio.sleep_forever()

    def stop(self) -> None:
        """End `serve`, from another thread."""
        assert self._nursery is not None
        self._run(self._nursery.cancel_scope.cancel)

    def _route(self, source: int, destination: int) -> _Route:
        return self._routes.setdefault((source, destination), _Route())

    def _cut(self, source: int, destination: int) -> None:
        self._route(source, destination).refuses = True
        for link in list(self._links.get((source, destination), ())):
            _reset(*link)

    def _silence(self, source: int, destination: int) -> None:
        route = self._route(source, destination)
        if route.opened.is_set():
            route.opened = trio.Event()

    def _slow(self, source: int, destination: int, delay: float, bytes_per_second: float) -> None:
        route = self._route(source, destination)
        route.delay, route.bytes_per_second = delay, bytes_per_second

    def _heal(self) -> None:
        for route in self._routes.values():
            route.delay, route.bytes_per_second, route.refuses = 0.0, 0.0, False
            route.opened.set()

    async def _listen(self, node: int, port: int) -> int:
        assert self._nursery is not None
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def accept() -> None:
            async with trio.open_nursery() as nursery:
                while True:
                    nursery.start_soon(self._serve, await listener.accept(), node, port)

        self._nursery.start_soon(accept)
        return int(listener.socket.getsockname()[1])

    async def _serve(self, client: trio.SocketStream, node: int, port: int) -> None:
        source = _CLIENT
        with suppress(OSError):
            source = _owner(client.socket.getpeername()[1], client.socket.getsockname()[1], self.pids())
        there, back = self._route(source, node), self._route(node, source)
        async with client:
            if there.refuses:
                _reset(client)
                return
            await there.opened.wait()
            await back.opened.wait()
            try:
                broker = await trio.open_tcp_stream("127.0.0.1", port)
            except OSError:
                _reset(client)
                return
            links = self._links.setdefault((source, node), set())
            links.add((client, broker))
            try:
                async with broker, trio.open_nursery() as nursery:
                    nursery.start_soon(_pump, client, broker, there)
                    nursery.start_soon(_pump, broker, client, back)
            finally:
                links.discard((client, broker))


async def _pump(source: trio.SocketStream, sink: trio.SocketStream, route: _Route) -> None:
    try:
        while data := await source.receive_some(65_536):
            if route.delay:
                await trio.sleep(route.delay)
            await route.opened.wait()
            while data and route.bytes_per_second:
                piece, data = data[:16], data[16:]
                await trio.sleep(len(piece) / route.bytes_per_second)
                await sink.send_all(piece)
            await sink.send_all(data)
        await route.opened.wait()
        await sink.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        await route.opened.wait()
        _reset(source, sink)


def _reset(*streams: trio.SocketStream) -> None:
    for stream in streams:
        with suppress(OSError):
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        stream.socket.close()


def _owner(local: int, remote: int, pids: Mapping[int, int]) -> int:
    """Return the node whose process has a loopback connection between these ports, or 0."""
    wanted = f"socket:[{_inode(local, remote)}]"
    for node, pid in pids.items():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(descriptor) == wanted:
                    return node
    return _CLIENT


def _inode(local: int, remote: int) -> int:
    """Ask the kernel for the inode of a socket (sock_diag(7)). The tables in /proc would be read as a whole."""
    address = socket.inet_aton("127.0.0.1") + bytes(12)
    identity = struct.pack("!HH", local, remote) + address + address + struct.pack("=Iq", 0, -1)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + identity
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _REQUEST, 0, 0) + request)
        response = kernel.recv(4096)
    return int(struct.unpack_from("=I", response, 84)[0]) if len(response) >= 88 else 0


@contextmanager
def node_network() -> Iterator[NodeNetwork]:
    """Run proxies in a thread for the length of the block."""
    network, started = NodeNetwork(), threading.Event()
    thread = threading.Thread(target=trio.run, args=(network.serve, started.set), name="proxies")
    thread.start()
    try:
        started.wait()
        yield network
    finally:
        network.stop()
        thread.join()
