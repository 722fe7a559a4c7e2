"""TCP sockets of the operating system: a connection and a listening endpoint."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import termios
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from triokafka.structs import Buffer, usual_address
from triokafka.world.file_slice import FileSlice
from triokafka.world.listener import Listener
from triokafka.world.stream import Stream
from triokafka.world.threads import in_thread

_MAX_VECTORS: Final = 512  # below every platform's IOV_MAX


def wakes_when_full(system: str, release: str) -> bool:
    """Whether this kernel wakes a reader whose SO_RCVLOWAT exceeds the free buffer space or memory.

    Linux does since 5.12. Before, small packets could fill the buffer, or memory could be short, and the reader slept
    forever.
    """
    major, minor, *_ = [*release.split(".", 2), ""]
    return system == "Linux" and major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) >= (5, 12)


WAKES_WHEN_FULL: Final = wakes_when_full(os.uname().sysname, os.uname().release)
"""Whether streams may set SO_RCVLOWAT on this system."""
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)  # more data follows: do not send a packet for this alone


_KEEPALIVE_PROBES: Final = 3


def silence_options(seconds: float) -> list[tuple[int, int]]:
    """Return TCP options and their values that end a connection whose peer has been gone for about ``seconds``.

    Only those that this system has: Linux has all; macOS calls the idle time TCP_KEEPALIVE and has no user timeout.
    """
    interval = max(1, int(seconds / 6))
    idle = max(1, int(seconds) - _KEEPALIVE_PROBES * interval)
    wanted = {
        "TCP_KEEPIDLE": idle,
        "TCP_KEEPALIVE": idle,
        "TCP_KEEPINTVL": interval,
        "TCP_KEEPCNT": _KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": max(1_000, round(seconds * 1000)),
    }
    return [(option, value) for name, value in wanted.items() if (option := getattr(socket, name, None)) is not None]


class _Scratch(threading.local):
    """A buffer for pieces of files, one per event loop, small enough for a processor's cache."""

    def __init__(self) -> None:
        self.buffer: Final = memoryview(bytearray(262_144))


_scratch: Final = _Scratch()


class SocketStream(Stream):
    """A non-blocking TCP socket: try first, and wait for readiness only if the socket would block."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._closed = False
        self._drained = False
        self._in_thread = False
        self._expected = self._at_once = 0
        self._sent_in_parts = 0
        self._low_water = 1  # SO_RCVLOWAT: the bytes that must be there before the kernel wakes the reader
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            host, port = sock.getpeername()[:2]
            # A listener of IPv6 accepts IPv4, too. Rules for the IPv4 address hold there as well, as in Java.
            self._peer: tuple[str, int] = usual_address(host), port
            self._local: tuple[str, int] = sock.getsockname()[:2]
        except OSError:
            # The peer is gone already; the descriptor must not wait for the garbage collector.
            sock.close()
            raise

    _wait_readable = staticmethod(trio.lowlevel.wait_readable)

    async def send(self, *buffers: Buffer) -> None:
        await self._send(buffers, 0)

    def _send_now(self, data: bytes, flags: int) -> Sequence[memoryview]:
        """Send what the kernel takes at once, and return the rest; all of it after an error, which comes again."""
        try:
            sent = self._sock.send(data, flags)
        except OSError:
            sent = 0
        if sent == len(data):
            return ()
        self._sent_in_parts += sent
        return (memoryview(data)[sent:],)

    async def _send(self, buffers: Sequence[Buffer], flags: int) -> None:
        if len(buffers) == 1 and isinstance(buffers[0], bytes):
            buffers = self._send_now(buffers[0], flags)
            if not buffers:
                return
        sock = self._sock
        parts = [memoryview(b).cast("B") for b in buffers]
        first = 0
        while first < len(parts):
            try:
                sent = sock.sendmsg(parts[first : first + _MAX_VECTORS], [], flags)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_writable(sock)
                continue
            except OSError:
                self._check_open()
                raise
            while first < len(parts) and sent >= len(parts[first]):
                sent -= len(parts[first])
                first += 1
            if sent:
                parts[first] = parts[first][sent:]
                self._sent_in_parts += sent

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        if len(parts) == 1 and isinstance(parts[0], bytes):
            # Most responses are small and in one piece, and the kernel takes them whole.
            parts = self._send_now(parts[0], 0)
            if not parts:
                return
        buffers: list[Buffer] = []
        for part in parts:
            if not isinstance(part, FileSlice):
                buffers.append(part)
                continue
            if buffers:
                await self._send(buffers, _MORE)
                buffers = []
            await self._send_slice(part)
        if buffers:
            await self._send(buffers, 0)

    async def _send_slice(self, part: FileSlice) -> None:
        sock, scratch, size = self._sock, _scratch.buffer, len(part)
        start = 0
        while start < size:
            got = part.copy_resident(start, scratch)
            try:
                sent = sock.send(scratch[:got]) if got else await self._send_in_thread(part, start)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self._check_open()
                raise
            start += sent
            if not sent:
                self._check_open()
                # The piece is not kept while waiting, so that slow readers cost no memory.
                await trio.lowlevel.wait_writable(sock)

    async def _send_in_thread(self, part: FileSlice, start: int) -> int:
        self._in_thread = True
        try:
            return await in_thread(None, part.send, self._sock.fileno(), start)
        finally:
            self._in_thread = False
            if self._closed:
                self._sock.close()

    def try_send(self, *buffers: Buffer) -> int:
        try:
            return self._sock.sendmsg(buffers[:_MAX_VECTORS])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._check_open()
            raise

    async def receive_into(self, buffer: memoryview) -> int:
        while True:
            if self._drained:
                self._check_open()
                # The last call did not fill its buffer, so the socket is empty.
                if self._expected or self._low_water > 1:
                    self._set_low_water()
                self.waits += 1
                await self._wait_readable(self._sock)
                self._drained = False
            try:
                got = self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                self._drained = True
            except OSError:
                self._check_open()
                raise
            else:
                self._drained = got < len(buffer)
                if self._expected:
                    self._expected = max(self._expected - got, 0)
                return got

    def expect(self, size: int, *, at_once: int) -> None:
        self._expected, self._at_once = size, at_once

    def _set_low_water(self) -> None:
        """Set SO_RCVLOWAT, never above the announced size: a small response after a large one must wake the reader."""
        wanted = min(self._expected, self._at_once) or 1
        if wanted != self._low_water and WAKES_WHEN_FULL:
            # The kernel lowers the value to its buffer size. Some systems that report themselves as Linux lack the
            # option, which costs speed only.
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._low_water = wanted

    def limit_silence(self, seconds: float) -> None:
        # Keepalive probes an idle peer; while bytes are unacknowledged only the user timeout counts (RFC 5482).
        for option, value in silence_options(seconds):
            with suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def widen_send_buffer(self, size: int) -> None:
        with suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def bytes_drained(self) -> int:
        if self._closed:
            return 0
        queued = bytearray(4)
        with suppress(OSError):
            fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, queued)
        return self._sent_in_parts - int.from_bytes(queued, sys.byteorder)

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this connection was closed here")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._sock)
            if self._in_thread:
                # The thread uses the descriptor's number, which must not be reused: shut down now, close after it.
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
            else:
                self._sock.close()

    @property
    def peer_address(self) -> tuple[str, int]:
        return self._peer

    @property
    def local_address(self) -> tuple[str, int]:
        return self._local


_GONE_AT_ONCE: Final = 32
"""The number of connections with a departed peer after which a listener lets other tasks run."""


class SocketListener(Listener):
    """A non-blocking listening TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._address: tuple[str, int] = sock.getsockname()[:2]

    async def accept(self) -> Stream:
        gone = 0
        while True:
            if self._sock.fileno() == -1:
                raise trio.ClosedResourceError("this listener was closed here")
            try:
                sock, _ = self._sock.accept()
                return SocketStream(sock)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
            except OSError as error:
                # The peer disconnected before its connection was accepted, or while its options were set.
                if error.errno not in (errno.ECONNABORTED, errno.EPROTO, errno.ENOTCONN, errno.EINVAL):
                    raise
                gone += 1
                if not gone % _GONE_AT_ONCE:
                    await trio.lowlevel.checkpoint()

    def close(self) -> None:
        if self._sock.fileno() != -1:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    @property
    def address(self) -> tuple[str, int]:
        return self._address
