"""A TCP proxy on loopback that injects faults: cuts after a number of bytes, holds, delays or drops data, resets or
half-closes connections, leaves them half-open, accepts new ones without forwarding, limits the rate.

`ProxiedWorld` is the operating system, but every connection of its clients goes through a `FaultProxy` for the broker's
address. So any broker can be put behind proxies, whatever address it advertises.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from triokafka.world import Stream
from triokafka.world.system import RealWorld

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Direction:
    """The treatment of the bytes of one direction, over all connections of a proxy.

    Args:
        delay: seconds that every piece waits.
        swallows: read the bytes and drop them.
        cut_after: reset the connection after this many more bytes; the field is then None again.
        end_after: as ``cut_after``, but close only this direction, in order.
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self.swallows = False
        self.cut_after: int | None = None
        self.end_after: int | None = None
        self.bytes_passed = 0
        self._open = trio.Event()
        self._open.set()

    @property
    def held(self) -> bool:
        """Whether the direction is held."""
        return not self._open.is_set()

    def hold(self) -> None:
        """Hold all bytes until `release`; they wait in the sockets, as with a stopped broker."""
        if self._open.is_set():
            self._open = trio.Event()

    def release(self) -> None:
        """Let it pass again."""
        self._open.set()

    async def opened(self) -> None:
        """Wait until bytes may pass."""
        await self._open.wait()


class _Link:
    def __init__(self, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        self.client = client
        self.broker = broker
        self.ended = False
        self.lost: set[Direction] = set()
        self.bytes_per_second: dict[Direction, float] = {}
        self.scope = trio.CancelScope()

    def reset(self) -> None:
        if self.ended:
            return
        self.ended = True
        for stream in (self.client, self.broker):
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            stream.socket.close()
        self.scope.cancel()


class FaultProxy:
    """A proxy for one address, without faults at first; ``count`` is the number of connections so far."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.to_broker = Direction()
        self.to_client = Direction()
        self.count = 0
        self.address = ("", 0)
        self._links: list[_Link] = []
        self._hole: set[Direction] = set()

    async def start(self, nursery: trio.Nursery) -> tuple[str, int]:
        """Listen on a free port of loopback; return host and port."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.address = listener.socket.getsockname()[:2]
        nursery.start_soon(self._accept, listener)
        return self.address

    def reset_all(self) -> None:
        """Reset every connection now; accept new ones."""
        for link in self._links:
            link.reset()

    def half_open(self, *directions: Direction) -> int:
        """Drop all data of the present connections permanently, in these directions (both by default).

        Neither end notices, even if the other end closes. New connections work. Returns the number of connections.
        """
        for link in self._links:
            link.lost.update(directions or (self.to_broker, self.to_client))
        return len(self._links)

    def black_hole(self, *directions: Direction) -> None:
        """Apply `half_open`, and the same to every new connection until `heal`; those stay half-open afterwards."""
        self.half_open(*directions)
        self._hole = set(directions or (self.to_broker, self.to_client))

    def drip(self, bytes_per_second: float, *directions: Direction) -> None:
        """Limit the rate of the present connections from now on, in these directions (both by default)."""
        for link in self._links:
            link.bytes_per_second.update(
                dict.fromkeys(directions or (self.to_broker, self.to_client), bytes_per_second)
            )

    def heal(self) -> None:
        """End the faults for new connections; present ones work unless they are half-open or drip."""
        self._hole = set()
        for direction in (self.to_broker, self.to_client):
            direction.delay = 0.0
            direction.swallows = False
            direction.cut_after = direction.end_after = None
            direction.release()

    async def _accept(self, listener: trio.SocketListener) -> None:
        async with listener, trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._serve, await listener.accept())

    async def _serve(self, client: trio.SocketStream) -> None:
        self.count += 1
        async with client:
            try:
                broker = await trio.open_tcp_stream(*self.target)
            except OSError:
                return
            async with broker:
                link = _Link(client, broker)
                link.lost |= self._hole
                self._links.append(link)
                try:
                    with link.scope:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(self._pump, link, client, broker, self.to_broker)
                            nursery.start_soon(self._pump, link, broker, client, self.to_client)
                finally:
                    self._links.remove(link)

    async def _pump(
        self, link: _Link, source: trio.SocketStream, sink: trio.SocketStream, direction: Direction
    ) -> None:
        try:
            while data := await source.receive_some(65_536):
                if direction.delay:
                    await trio.sleep(direction.delay)
                await direction.opened()
                if direction.swallows or direction in link.lost:
                    continue
                if direction in link.bytes_per_second:
                    await self._drip(link, sink, direction, data)
                    continue
                limit = direction.cut_after if direction.cut_after is not None else direction.end_after
                if limit is not None and len(data) >= limit:
                    await sink.send_all(data[:limit])
                    resets, direction.cut_after, direction.end_after = direction.cut_after is not None, None, None
                    if resets:
                        link.reset()
                    else:
                        await sink.send_eof()
                    return
                if direction.cut_after is not None:
                    direction.cut_after -= len(data)
                elif direction.end_after is not None:
                    direction.end_after -= len(data)
                await sink.send_all(data)
                direction.bytes_passed += len(data)
            if link.lost:
                await trio.sleep_forever()  # the other end does not notice
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            if link.lost:
                await trio.sleep_forever()
            link.reset()

    async def _drip(self, link: _Link, sink: trio.SocketStream, direction: Direction, data: bytes) -> None:
        for start in range(len(data)):
            await trio.sleep(1 / link.bytes_per_second[direction])
            if direction in link.lost:
                return
            await sink.send_all(data[start : start + 1])
            direction.bytes_passed += 1


class ProxiedWorld(RealWorld):
    """The operating system with a proxy for every address; made by `proxied_world`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__()
        self.proxies: dict[tuple[str, int], FaultProxy] = {}
        self._nursery = nursery
        self._making = trio.Lock()

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        async with self._making:
            proxy = self.proxies.get((host, port))
            if proxy is None:
                proxy = FaultProxy((host, port))
                await proxy.start(self._nursery)
                self.proxies[host, port] = proxy
        return await super().connect(
            *proxy.address, send_buffer_bytes=send_buffer_bytes, receive_buffer_bytes=receive_buffer_bytes
        )


@asynccontextmanager
async def proxied_world() -> AsyncIterator[ProxiedWorld]:
    """Yield a world whose connections go through proxies for the length of the block."""
    async with trio.open_nursery() as nursery:
        yield ProxiedWorld(nursery)
        nursery.cancel_scope.cancel()


class ProxyTrouble:
    """Inject ``count`` random faults into all proxies of a world, on average ``pause`` seconds apart.

    ``stale`` allows requests to reach the broker after the client has given them up and sent them again; only sequence
    numbers protect from that. ``longest`` bounds the length of one fault in seconds.
    """

    def __init__(
        self,
        world: ProxiedWorld,
        chance: random.Random,
        *,
        count: int,
        pause: float = 0.03,
        stale: bool,
        longest: float = 0.3,
    ) -> None:
        self._world = world
        self._chance = chance
        self._count = count
        self._pause = pause
        self._longest = longest
        self._kinds = [
            self._cut_request,
            self._cut_request,
            self._cut_answer,
            self._cut_answer,
            self._end_answer,
            self._reset,
            self._lose_answers,
            self._lose_answers,
            self._hold_answers,
            self._delay_answers,
            *([self._hold_requests] if stale else []),
        ]

    async def run(self) -> None:
        """Inject the faults; at the end all proxies work."""
        for _ in range(self._count):
            await trio.sleep(self._chance.uniform(0, 2 * self._pause))
            if self._world.proxies:
                proxy = self._chance.choice(list(self._world.proxies.values()))
                await self._chance.choice(self._kinds)(proxy)
        for proxy in self._world.proxies.values():
            proxy.heal()

    def _some_bytes(self) -> int:
        return self._chance.choice([1, 3, 20, 100, 300, 1_000])

    async def _wait(self) -> None:
        await trio.sleep(self._chance.uniform(0, self._longest))

    async def _cut_request(self, proxy: FaultProxy) -> None:
        proxy.to_broker.cut_after = self._some_bytes()

    async def _cut_answer(self, proxy: FaultProxy) -> None:
        proxy.to_client.cut_after = self._some_bytes()

    async def _end_answer(self, proxy: FaultProxy) -> None:
        proxy.to_client.end_after = self._some_bytes()

    async def _reset(self, proxy: FaultProxy) -> None:
        proxy.reset_all()

    async def _lose_answers(self, proxy: FaultProxy) -> None:
        """The broker executes requests, and the responses are lost; then the connection ends."""
        proxy.to_client.swallows = True
        await self._wait()
        proxy.reset_all()
        proxy.to_client.swallows = False

    async def _hold_answers(self, proxy: FaultProxy) -> None:
        proxy.to_client.hold()
        await self._wait()
        proxy.to_client.release()

    async def _hold_requests(self, proxy: FaultProxy) -> None:
        proxy.to_broker.hold()
        await self._wait()
        proxy.to_broker.release()

    async def _delay_answers(self, proxy: FaultProxy) -> None:
        proxy.to_client.delay = self._chance.uniform(0, 0.05)
        await self._wait()
        proxy.to_client.delay = 0.0
