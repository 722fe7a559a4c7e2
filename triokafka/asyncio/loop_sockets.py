"""The sockets of producers, which the asyncio loop watches itself.

Each wait for a socket costs Trio two system calls: one to ask for the event, one to fetch it. An asyncio loop watches a
socket until `remove_reader`, and calls a function each time. So the streams of a `LoopWorld` wait for bytes in the
asyncio loop, and for everything else, such as room for bytes, in Trio.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import trio

from triokafka.world.socket_stream import SocketStream
from triokafka.world.system import RealWorld


class HostClock(trio.abc.Clock):
    """Trio's clock of a run beside asyncio: the system's, without an offset, so that `LoopWorld.now` needs no run."""

    def start_clock(self) -> None:
        """Do nothing: the clock always runs."""

    def current_time(self) -> float:
        """Return the seconds on the system's monotonic clock."""
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the seconds until a deadline."""
        return deadline - time.perf_counter()


class LoopSockets:
    """The watched sockets of one asyncio loop.

    ``on_ready`` is called in the asyncio loop with a function that wakes the reader, for the Trio run to call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ready: Callable[[Callable[[], None]], object]) -> None:
        self.on_ready = on_ready
        self._loop = loop
        self._streams: dict[int, LoopStream] = {}
        self._poll = select.poll()

    def watch(self, descriptor: int, stream: LoopStream) -> bool:
        """Watch a socket. Return False if the asyncio loop is closed."""
        if self._loop.is_closed():
            return False
        self._loop.add_reader(descriptor, stream.note_ready)
        self._streams[descriptor] = stream
        self._poll.register(descriptor, select.POLLIN)
        return True

    def forget(self, descriptor: int) -> None:
        """Stop watching a socket. Call it before the socket is closed."""
        if self._streams.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)
            if not self._loop.is_closed():
                self._loop.remove_reader(descriptor)

    def ready(self) -> list[LoopStream]:
        """Return the streams that have bytes now, also if the asyncio loop has not seen it yet."""
        return [self._streams[descriptor] for descriptor, _ in self._poll.poll(0)] if self._streams else []

    def all(self) -> list[LoopStream]:
        """Return all streams that are watched."""
        return list(self._streams.values())


class LoopStream(SocketStream):
    """A stream whose reader waits in the asyncio loop."""

    def __init__(self, sock: socket.socket, sockets: LoopSockets) -> None:
        super().__init__(sock)
        self._sockets = sockets
        self._descriptor = sock.fileno()
        self._is_watched = False
        self._reader: trio.lowlevel.Task | None = None

    async def _wait_readable(self, sock: Any) -> None:
        if not self._is_watched:
            self._is_watched = self._sockets.watch(self._descriptor, self)
            if not self._is_watched:
                await trio.lowlevel.wait_readable(sock)
                return
        self._reader = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    def note_ready(self) -> None:
        """Have the reader woken. Called in the asyncio loop, again and again until the bytes are received."""
        if self._reader is not None:
            self._sockets.on_ready(self.wake)
        else:
            self._unwatch()

    def wake(self) -> None:
        """Let the reader look for bytes. In the Trio run."""
        reader, self._reader = self._reader, None
        if reader is not None:
            trio.lowlevel.reschedule(reader)

    def leave_loop(self) -> None:
        """Wait in Trio from now on: the asyncio loop was closed. In the Trio run."""
        self._unwatch()
        self.wake()

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._sockets.forget(self._descriptor)

    def close(self) -> None:
        """Close without waiting."""
        self._unwatch()
        reader = self._reader
        super().close()
        if reader is not None:
            self.wake()  # the reader sees that the stream is closed


class LoopWorld(RealWorld):
    """The operating system for clients that run beside an asyncio loop."""

    now = staticmethod(time.perf_counter)

    def __init__(self, sockets: LoopSockets) -> None:
        super().__init__()
        self._sockets = sockets

    def _new_stream(self, sock: socket.socket) -> SocketStream:
        return LoopStream(sock, self._sockets)
