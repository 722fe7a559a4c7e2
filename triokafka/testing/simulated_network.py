"""A network in memory, on virtual time: delay, loss, partitions and cut connections, all from one seed.

Bytes travel in segments. A segment arrives after a random delay and never before the previous one. A lost segment is
sent again after a retransmission timeout. A cut ends the connection for both ends, after an unknown part has arrived.
Between partitioned nodes nothing arrives until the partition heals, as with real TCP. No task runs for a connection:
the receiver computes when the next segment is due, and waits for it.

Connections can also die in silence: a half-open connection, or one in a black hole, loses all data, including its end,
and neither end notices. A dripping connection transfers a few bytes at a time.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from triokafka.structs import Buffer
from triokafka.world import Listener, Stream

_WINDOW_BYTES = 1 << 20
_SEGMENT_BYTES = 64 << 10
_FIRST_PORT = 40_000
_DRIP_SECONDS = 0.5  # so each transfer of a dripping connection has the bytes of this time


@dataclass
class Conditions:
    """Behaviour of the network. A field can be assigned at any time and applies to segments sent afterwards.

    Args:
        min_delay, max_delay: bounds of a segment's one-way delay, in seconds.
        loss: probability that a segment must be sent again.
        retransmission: the time that one retransmission takes, in seconds.
        cut: probability that sending a segment cuts the connection.
    """

    min_delay: float = 0.0002
    max_delay: float = 0.002
    loss: float = 0.0
    retransmission: float = 0.2
    cut: float = 0.0


class Network:
    """All hosts, listeners and connections of one simulation.

    ``record`` receives all events in order, for the trace.
    """

    def __init__(self, random: random.Random, record: Callable[..., None]) -> None:
        self.conditions = Conditions()
        self.record = record
        self._random = random
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._connections: list[SimulatedConnection] = []
        self._blocked: set[tuple[str, str]] = set()
        self._black_holes: set[tuple[str, str]] = set()
        self._changed = trio.Event()
        self._next_port = _FIRST_PORT
        self._next_connection = 0

    # -- faults

    def partition(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Block all data from node ``one`` to node ``other`` (and back, unless ``one_way``) until `heal`."""
        self.record("partition", one, other, one_way)
        self._blocked.add((one, other))
        if not one_way:
            self._blocked.add((other, one))

    def heal(self) -> None:
        """End all partitions and black holes. Data delayed by a partition arrives; data in a black hole is lost."""
        self.record("heal")
        self._blocked.clear()
        self._black_holes.clear()
        self.notify()

    def half_open(self, one: str, other: str, *, one_way: bool = False) -> int:
        """Make the current connections between two nodes lose all data permanently.

        No end notices: there is no reset, and writing succeeds. With ``one_way`` only data from ``one`` is lost. New
        connections work. Returns the number of affected connections.
        """
        self.record("half-open", one, other, one_way)
        connections = self._between(one, other)
        for connection in connections:
            connection.lose(one, both=not one_way)
        return len(connections)

    def black_hole(self, one: str, other: str, *, one_way: bool = False) -> None:
        """Drop all data from ``one`` to ``other`` (and back, unless ``one_way``) until `heal`.

        Current connections stay `half_open` permanently; new ones are not established before `heal`.
        """
        self.half_open(one, other, one_way=one_way)
        self._black_holes.add((one, other))

    def drip(self, one: str, other: str, bytes_per_second: float, *, one_way: bool = False) -> int:
        """Slow the current connections between two nodes down permanently; with ``one_way`` only from ``one``.

        Returns the number of affected connections.
        """
        self.record("drip", one, other, bytes_per_second, one_way)
        connections = self._between(one, other)
        for connection in connections:
            connection.slow_down(one, bytes_per_second, both=not one_way)
        return len(connections)

    @property
    def connections(self) -> tuple[SimulatedConnection, ...]:
        """Return the present connections."""
        return tuple(self._connections)

    def _between(self, one: str, other: str) -> list[SimulatedConnection]:
        return [connection for connection in self._connections if {*connection.nodes} == {one, other}]

    def cut(self, one: str, other: str | None = None) -> None:
        """Reset every connection of node ``one``, or only those with ``other``."""
        for connection in list(self._connections):
            if one in connection.nodes and (other is None or other in connection.nodes):
                connection.reset("cut")

    def drop_node(self, name: str) -> None:
        """Close the listeners and reset the connections of a node whose process has ended."""
        for address, listener in list(self._listeners.items()):
            if listener.node == name:
                listener.close()
                self._listeners.pop(address, None)
        self.cut(name)

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether ``source`` currently cannot reach ``target``."""
        return (source, target) in self._blocked

    # -- used by worlds

    def listen(self, node: str, host: str, port: int) -> MemoryListener:
        """Open a listener for a node; port 0 takes a free one."""
        if port == 0:
            port = self._next_port
            self._next_port += 1
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = MemoryListener(self, node, host, port)
        self._listeners[host, port] = listener
        return listener

    def forget_listener(self, listener: MemoryListener) -> None:
        """Note that a listener has closed."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(self, node: str, host: str, port: int) -> Stream:
        """Connect ``node`` to a listener; refused without one, silent while partitioned or in a black hole."""
        await trio.sleep(self.draw_delay())
        while True:
            listener = self._listeners.get((host, port))
            if listener is None:
                raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection to {host}:{port} refused")
            there, back = (node, listener.node), (listener.node, node)
            if not any(way in self._blocked or way in self._black_holes for way in (there, back)):
                break
            await self.changed()
        self._next_connection += 1
        connection = SimulatedConnection(self, self._next_connection, (node, listener.node), listener.address)
        self._connections.append(connection)
        self.record("connect", node, listener.node, connection.number)
        listener.offer(connection.streams[1])
        return connection.streams[0]

    def forget_connection(self, connection: SimulatedConnection) -> None:
        """Note that both ends have closed."""
        if connection in self._connections:
            self._connections.remove(connection)

    def draw_delay(self) -> float:
        """One segment's way through the network, in seconds, retransmissions included."""
        conditions = self.conditions
        delay = self._random.uniform(conditions.min_delay, conditions.max_delay)
        while conditions.loss and self._random.random() < conditions.loss:
            delay += conditions.retransmission
        return delay

    def draws_cut(self) -> bool:
        """Whether the connection is cut at this segment."""
        return bool(self.conditions.cut) and self._random.random() < self.conditions.cut

    async def changed(self) -> None:
        """Wait until a partition heals, a segment is sent or a connection ends."""
        await self._changed.wait()

    def notify(self) -> None:
        """Wake all waiters for a change of the whole network."""
        self._changed.set()
        self._changed = trio.Event()


class _Pipe:
    """One direction of a connection: segments in flight, and received bytes that were not read yet."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.segments: deque[tuple[float, memoryview]] = deque()
        self.unread = 0
        self.last_arrival = 0.0
        self.finished = False
        self.reset = False
        self.loses = False
        self.abandoned = False
        self.bytes_per_second: float | None = None
        self.changed = trio.Event()

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    @property
    def full(self) -> bool:
        return self.unread >= _WINDOW_BYTES and not self.reset

    async def send(self, data: memoryview) -> None:
        while self.full:
            await self.changed.wait()
        self.put(data)

    def lose(self) -> None:
        """Lose all data in flight, and all data sent from now on."""
        self.loses = True
        self.segments.clear()
        self.unread = 0
        self.notify()

    def put(self, data: memoryview) -> None:
        if self.loses:
            return
        if self.reset:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset")
        arrival = max(self.last_arrival, trio.current_time() + self.network.draw_delay())
        self.unread += len(data)
        if self.bytes_per_second is not None:
            size = max(1, int(self.bytes_per_second * _DRIP_SECONDS))
            while len(data) > size:
                arrival += size / self.bytes_per_second
                self.segments.append((arrival, data[:size]))
                data = data[size:]
            arrival += len(data) / self.bytes_per_second
        self.last_arrival = arrival
        self.segments.append((arrival, data))
        self.notify()

    async def receive_into(self, buffer: memoryview) -> int:
        while True:
            if self.network.is_blocked(self.source, self.target):
                # A partition hides everything, including the end of the connection.
                await self.network.changed()
                continue
            if self.loses and not self.abandoned:
                await self.changed.wait()
                continue
            if self.segments:
                arrival, data = self.segments[0]
                if arrival <= trio.current_time():
                    return self._take(data, buffer)
                if self.reset:
                    self.segments.clear()
                    continue
                await self._wait_until(arrival)
                continue
            if self.reset:
                raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
            if self.finished:
                return 0
            await self.changed.wait()

    def _take(self, data: memoryview, buffer: memoryview) -> int:
        size = min(len(data), len(buffer))
        buffer[:size] = data[:size]
        arrival, _ = self.segments.popleft()
        if size < len(data):
            self.segments.appendleft((arrival, data[size:]))
        self.unread -= size
        self.notify()
        return size

    async def _wait_until(self, at: float) -> None:
        changed = self.changed
        with trio.CancelScope(deadline=at):
            await changed.wait()


class SimulatedConnection:
    """Two pipes and the two streams over them; ``nodes`` are the connecting and the accepting one."""

    def __init__(self, network: Network, number: int, nodes: tuple[str, str], listening: tuple[str, int]) -> None:
        self.network = network
        self.number = number
        self.nodes = nodes
        there, back = _Pipe(network, *nodes), _Pipe(network, nodes[1], nodes[0])
        near = (nodes[0], 50_000 + number % 10_000)
        self.streams = (
            MemoryStream(self, back, there, local=near, peer=listening),
            MemoryStream(self, there, back, local=listening, peer=near),
        )
        self._pipes = (there, back)

    def lose(self, source: str, *, both: bool) -> None:
        """Lose all data from the node ``source``, or from either node."""
        for pipe in self._pipes:
            if both or pipe.source == source:
                pipe.lose()

    def slow_down(self, source: str, bytes_per_second: float, *, both: bool) -> None:
        """Limit data from the node ``source``, or from either node, to this rate."""
        for pipe in self._pipes:
            if both or pipe.source == source:
                pipe.bytes_per_second = bytes_per_second

    def reset(self, why: str) -> None:
        """End the connection for both ends; data in flight is lost."""
        self.network.record(why, self.number)
        for pipe in self._pipes:
            pipe.reset = True
            pipe.notify()
        self.network.forget_connection(self)
        self.network.notify()


class MemoryStream(Stream):
    """One end of a simulated connection."""

    def __init__(
        self,
        connection: SimulatedConnection,
        incoming: _Pipe,
        outgoing: _Pipe,
        *,
        local: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        self._connection = connection
        self._incoming = incoming
        self._outgoing = outgoing
        self._local = local
        self._peer = peer
        self._closed = False

    async def send(self, *buffers: Buffer) -> None:
        data = b"".join(buffers)
        network = self._connection.network
        for start in range(0, len(data), _SEGMENT_BYTES):
            self._check_open()
            segment = memoryview(data)[start : start + _SEGMENT_BYTES]
            if network.draws_cut():
                self._connection.reset("cut")
            await self._outgoing.send(segment)
            network.record("send", self._connection.number, self._outgoing.source, len(segment))
        await trio.lowlevel.checkpoint()

    def try_send(self, *buffers: Buffer) -> int:
        data = b"".join(buffers)
        network = self._connection.network
        taken = 0
        while taken < len(data) and not self._outgoing.full:
            self._check_open()
            segment = memoryview(data)[taken : taken + _SEGMENT_BYTES]
            if network.draws_cut():
                self._connection.reset("cut")
            self._outgoing.put(segment)
            network.record("send", self._connection.number, self._outgoing.source, len(segment))
            taken += len(segment)
        return taken

    async def receive_into(self, buffer: memoryview) -> int:
        self._check_open()
        try:
            return await self._incoming.receive_into(buffer)
        except OSError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this connection was closed here")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._outgoing.finished = True
        self._outgoing.notify()
        # Data that still arrives is answered with a reset: a sender at the other end must not wait for the window.
        self._incoming.reset = self._incoming.abandoned = True
        self._incoming.notify()
        if self._outgoing.reset or self._incoming.finished:
            self._connection.network.forget_connection(self._connection)

    @property
    def peer_address(self) -> tuple[str, int]:
        return self._peer

    @property
    def local_address(self) -> tuple[str, int]:
        return self._local


class MemoryListener(Listener):
    """A simulated listening port with a backlog of 1024 connections."""

    def __init__(self, network: Network, node: str, host: str, port: int) -> None:
        self.node = node
        self._network = network
        self._address = (host, port)
        self._send, self._receive = trio.open_memory_channel[Stream](1024)

    def offer(self, stream: Stream) -> None:
        """Accept an incoming connection; refuse it if the backlog is full."""
        try:
            self._send.send_nowait(stream)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection to {self._address} refused") from None

    async def accept(self) -> Stream:
        return await self._receive.receive()

    def close(self) -> None:
        self._network.forget_listener(self)
        self._receive.close()
        self._send.close()

    @property
    def address(self) -> tuple[str, int]:
        return self._address
