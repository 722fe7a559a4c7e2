"""A world with faults: its clock can jump, its connections can freeze, die or drip, and its disk can be full.

`FaultyWorld` wraps any other world, real or simulated. Without a fault it behaves as that world does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakValueDictionary

import trio

from triokafka.testing.disk_room import DiskRoom
from triokafka.testing.faulty_stream import FaultyStream
from triokafka.testing.gate import BothGates, Gate
from triokafka.testing.gated_listener import GatedListener
from triokafka.testing.guarded_storage import GuardedStorage
from triokafka.testing.held_ports import HeldPorts
from triokafka.world import Listener, Stream, World
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    from triokafka.world.process_usage import ProcessUsage

T = TypeVar("T")

_LARGEST_SHIFT_MS: Final = 1_000 * 365 * 24 * 3_600_000
"""Most programs that read timestamps cannot represent years of more than four digits."""


@dataclass(slots=True)
class ClockShift:
    """How far the clocks of one or more worlds were put forward."""

    ms: int = 0


class FaultyWorld(World):
    """Another world, with faults that can be switched on. ``is_real``: the other world is the operating system.

    If that is so, no other program gets the port of a listener after it has closed, until ``held_ports`` releases it.

    Args:
        world: the other world.
        clock: the clock that this world shares with others; its own by default.
        gate_to: returns the gate that the data of a connection to a port passes, or None.
    """

    def __init__(
        self,
        world: World,
        *,
        clock: ClockShift | None = None,
        gate_to: Callable[[int], Gate | None] = lambda port: None,
    ) -> None:
        self.random = world.random
        self.cpus = world.cpus
        self.is_real = isinstance(world, RealWorld)
        self.held_ports = HeldPorts()
        self._world = world
        self._clock = ClockShift() if clock is None else clock
        self._disk_room = DiskRoom()
        self.storage = GuardedStorage(world.storage, check=lambda: None, room=self._disk_room)
        self._gate_to = gate_to
        self._flowing = Gate()
        self._reachable = Gate()
        self._streams: WeakValueDictionary[int, FaultyStream] = WeakValueDictionary()
        self._connections = 0

    # Faults

    @property
    def disk_room(self) -> int | None:
        """The bytes by which files may still grow; None for as many as the storage takes."""
        return self._disk_room.free_bytes

    @disk_room.setter
    def disk_room(self, free_bytes: int | None) -> None:
        self._disk_room.free_bytes = free_bytes

    def put_clock_forward(self, ms: int) -> None:
        """Put both clocks forward by ``ms`` milliseconds, for all worlds that share them.

        The caller must wake tasks that wait for a time.
        """
        if ms < 0:
            raise ValueError(f"a clock can only be put forward, not by {ms} ms")
        if self._clock.ms + ms > _LARGEST_SHIFT_MS:
            raise ValueError(f"a clock can be put forward by a thousand years in all, not by {ms} ms")
        self._clock.ms += ms

    @property
    def is_frozen(self) -> bool:
        """Whether connections are frozen."""
        return not self._flowing.is_open

    def freeze(self) -> None:
        """Stop accepting, receiving, sending and work in threads, as a process does after SIGSTOP."""
        self._flowing.shut()

    def thaw(self) -> None:
        """End `freeze`. Calls that waited continue."""
        self._flowing.open()

    def half_open(self) -> None:
        """Make current connections lose all data in both directions permanently.

        Neither end notices: there is no reset, writing succeeds, and no end arrives. New connections work.
        """
        for stream in list(self._streams.values()):
            stream.lose()

    def black_hole(self) -> None:
        """Drop all data until `heal`: current connections stay `half_open` permanently, and new ones get no response.

        A connection that is made meanwhile works after `heal`.
        """
        self.half_open()
        self._reachable.shut()

    def heal(self) -> None:
        """End `black_hole`. The connections that it broke stay broken."""
        self._reachable.open()

    def drip(self, bytes_per_second: float) -> None:
        """Slow current connections down permanently, in both directions. New connections have full speed.

        Raises:
            ValueError: the rate is not above 0.
        """
        if not bytes_per_second > 0:
            raise ValueError(f"a dripping connection transfers more than 0 bytes a second, not {bytes_per_second}")
        for stream in list(self._streams.values()):
            stream.slow_down(bytes_per_second)

    async def _wait_reachable(self) -> None:
        while not (self._flowing.is_open and self._reachable.is_open):
            await self._flowing.wait()
            await self._reachable.wait()

    def _wrap(self, stream: Stream, link: Gate | None = None) -> Stream:
        wrapped = FaultyStream(stream, self._flowing if link is None else BothGates(self._flowing, link))
        self._connections += 1
        self._streams[self._connections] = wrapped
        return wrapped

    # The world

    def now(self) -> float:
        return self._world.now() + self._clock.ms / 1000

    def wall_ms(self) -> int:
        return self._world.wall_ms() + self._clock.ms

    def deadline(self, at: float) -> float:
        return self._world.deadline(at - self._clock.ms / 1000)

    def random_bytes(self, size: int) -> bytes:
        return self._world.random_bytes(size)

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        return await self._world.resolve(host, port)

    async def canonical_name(self, address: str) -> str:
        return await self._world.canonical_name(address)

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        link = self._gate_to(port)
        if link is not None:
            await link.wait()
        stream = await self._world.connect(
            host, port, send_buffer_bytes=send_buffer_bytes, receive_buffer_bytes=receive_buffer_bytes
        )
        try:
            await self._reachable.wait()
        except trio.Cancelled:
            stream.close()
            raise
        return self._wrap(stream, link)

    async def listen(
        self,
        host: str,
        port: int,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 1024,
    ) -> Listener:
        self.held_ports.release(host, port)
        listener = await self._world.listen(
            host,
            port,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
            backlog=backlog,
        )
        if not self.is_real:
            return GatedListener(listener, gate=self._wait_reachable, wrap=self._wrap)
        hold = partial(self.held_ports.hold, host, listener.address[1])
        return GatedListener(listener, gate=self._wait_reachable, wrap=self._wrap, closed=hold)

    def process_usage(self) -> ProcessUsage | None:
        """See `World`."""
        return self._world.process_usage()

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if not self._flowing.is_open:
            await self._flowing.wait()
        return await self._world.run_in_thread(function, *args)

    async def run_in_abandonable_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await self._world.run_in_abandonable_thread(function, *args)

    def raise_file_limit(self) -> int:
        return self._world.raise_file_limit()
