"""The world of the operating system: its clocks, randomness, network, files and threads."""

from __future__ import annotations

import errno
import os
import random
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from triokafka.trio_context import require_trio
from triokafka.world import process_memory
from triokafka.world.doorbell import Doorbell
from triokafka.world.listener import Listener
from triokafka.world.os_storage import OsStorage
from triokafka.world.socket_stream import SocketListener, SocketStream
from triokafka.world.stream import Stream
from triokafka.world.threads import in_thread, own_thread_limiter
from triokafka.world.world import World

if TYPE_CHECKING:
    from triokafka.world.process_usage import ProcessUsage

T = TypeVar("T")


def wall_ms() -> int:
    """The operating system's wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class RealWorld(World):
    """The operating system: its clocks, its network, its files, its threads."""

    def __init__(self) -> None:
        self.random = random.Random()
        self.storage = OsStorage()
        self.cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def now(self) -> float:
        try:
            return trio.current_time()
        except RuntimeError:
            require_trio("This call")
            raise

    def loop_clock(self) -> Callable[[], float]:
        if getattr(self.now, "__func__", None) is not RealWorld.now:  # replaced
            return self.now
        try:
            return trio.lowlevel.current_clock().current_time
        except RuntimeError:  # outside of an event loop
            return self.now

    def wall_ms(self) -> int:
        return wall_ms()

    def deadline(self, at: float) -> float:
        return at

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except ValueError as error:  # labels that are empty or too long, zero bytes
            raise OSError(errno.EINVAL, f"{host!r} is not the name of a host: {error}") from error
        return [(str(info[4][0]), int(info[4][1])) for info in found]

    async def canonical_name(self, address: str) -> str:
        try:
            name, _ = await trio.socket.getnameinfo((address, 0), socket.NI_NAMEREQD)
        except OSError:
            return address
        return name

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
        try:
            # Before connecting, because the window is agreed on then.
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                if size >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            await sock.connect((host, port))
            return self._new_stream(socket.socket(fileno=sock.detach()))
        except BaseException:
            sock.close()
            raise

    def _new_stream(self, sock: socket.socket) -> SocketStream:
        return SocketStream(sock)

    async def listen(
        self,
        host: str,
        port: int,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 1024,
    ) -> Listener:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Accepted sockets have the sizes of the one that listens; set later, the window would be agreed on already.
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                if size >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
            sock.setblocking(False)
            sock.bind((host, port))
            sock.listen(backlog)
        except BaseException:
            sock.close()
            raise
        return SocketListener(sock)

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(own_thread_limiter(), function, *args)

    async def run_in_abandonable_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(own_thread_limiter(), function, *args, abandon_on_cancel=True)

    def available_memory(self) -> int:
        return process_memory.available_memory()

    def process_usage(self) -> ProcessUsage | None:
        from triokafka.world.process_usage import process_usage  # only a broker whose metrics are read needs it

        return process_usage()

    def keep_little_free_memory(self) -> None:
        process_memory.keep_little_free_memory()

    def release_free_memory(self) -> None:
        process_memory.release_free_memory()

    @property
    def has_doorbells(self) -> bool:
        return os.name == "posix"

    def doorbell(self) -> Doorbell:
        return Doorbell()

    def raise_file_limit(self) -> int:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with suppress(OSError, ValueError):  # where the hard limit is more than the system allows
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
        return soft
