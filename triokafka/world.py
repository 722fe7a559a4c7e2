"""The one door to the outside: clocks, randomness, connections, storage and worker threads.

Every long-lived object is given a `World` and reaches the outside through it alone, so that a test can put a simulated
one in its place: each simulated node has its own, with a clock that skews, a disk that forgets what was not synced, and
a network that delays, drops and cuts. `RealWorld` is the operating system.

Relative waits (``trio.sleep``, ``trio.move_on_after``, ``trio.fail_after``) are Trio's own everywhere; points in time
are seconds on `World.now`, and `World.deadline` turns one into a Trio deadline.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
import resource
import shutil
import socket
import stat
import sys
import termios
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

import trio

from triokafka.structs import Buffer
from triokafka.trio_context import require_trio
from triokafka.world_files import Descriptor, FileSlice

T = TypeVar("T")

_MAX_VECTORS: Final = 512  # below every platform's IOV_MAX


def wakes_when_full(system: str, release: str) -> bool:
    """Whether that kernel wakes who waits for more bytes than it has room for, or memory. Others may never.

    Linux does since 5.12: before, packets with few bytes in them could fill its buffer, and memory could be short.
    """
    major, minor, *_ = [*release.split(".", 2), ""]
    return system == "Linux" and major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) >= (5, 12)


WAKES_WHEN_FULL: Final = wakes_when_full(os.uname().sysname, os.uname().release)
"""Here: only then is the kernel told how many bytes are waited for."""
_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)  # more follows at once: no packet for this alone


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


class Stream(ABC):
    """A byte stream to one peer. One task may send while another receives.

    All methods raise `OSError` when the connection is gone (`BrokenPipeError`, `ConnectionResetError`, …) and
    `trio.ClosedResourceError` after `close`.

    ``waits`` counts how often `receive_into` has waited, so that other tasks had their turn; it may say less.
    """

    waits: int = 0

    @abstractmethod
    async def send(self, *buffers: Buffer) -> None:
        """Send all bytes of all buffers, in order.

        Waits while the peer's window is full; when it need not wait it does not yield to other tasks. If cancelled, an
        unknown part was sent and the stream must be closed.
        """

    async def send_parts(self, parts: Sequence[Buffer | FileSlice]) -> None:
        """`send` for parts that may be slices of files. The event loop does not wait for a disk meanwhile.

        Raises `OSError` also when a file is not what it was.
        """
        buffers: list[Buffer] = []
        for part in parts:
            if isinstance(part, FileSlice):
                whole = bytearray(len(part))
                if part.copy_resident(0, memoryview(whole)) == len(whole):
                    part = whole
                else:
                    part = await in_thread(None, part.read)
            buffers.append(part)
        await self.send(*buffers)

    def try_send(self, *buffers: Buffer) -> int:
        """Send what can be sent without waiting, from the front, and return how many bytes that was; maybe 0.

        Must not be called while `send` waits. A stream that cannot do it takes nothing.
        """
        return 0

    @abstractmethod
    async def receive_into(self, buffer: memoryview) -> int:
        """Receive at least one byte into ``buffer`` and return the number; 0 means that the peer has closed.

        While bytes are there it need not yield to other tasks. Cancelling loses nothing.
        """

    def expect(self, size: int, *, at_once: int) -> None:
        """The peer has announced ``size`` more bytes: whoever waits for them need not be woken for every few.

        At most ``at_once`` of them are waited for in one go, in the kernel's memory.
        """
        return

    def limit_silence(self, seconds: float) -> None:
        """Have the system end the connection when the peer's system has been gone for about so long.

        It covers bytes that the peer never acknowledges, and a peer that vanishes while nothing is sent. Where the
        system has no such limits, or the stream is no socket, nothing happens.
        """
        return

    def bytes_drained(self) -> int:
        """Return a number that grows as the peer's system takes bytes that had to wait here; 0 where it is unknown."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Close at once, without waiting; again does nothing. Waiting calls raise `trio.ClosedResourceError`."""

    @property
    @abstractmethod
    def peer_address(self) -> tuple[str, int]:
        """Host and port of the other end."""

    @property
    @abstractmethod
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""


class Listener(ABC):
    """A listening endpoint."""

    @abstractmethod
    async def accept(self) -> Stream:
        """Wait for the next connection.

        Raises `OSError` when the process has no file descriptor left, and `trio.ClosedResourceError` after `close`.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop listening at once; a second call does nothing."""

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on; the port is the real one when 0 was asked for."""


class File(ABC):
    """An open file. Calls block; use `World.run_in_thread` for the slow ones (`sync`). Errors are `OSError`."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer at the end of the file."""

    @abstractmethod
    def write_at(self, offset: int, *buffers: Buffer) -> int:
        """Write all bytes at ``offset`` (extending the file as needed) and return their number.

        Raises `OSError` (``ENOSPC``, …); then an unknown part is written.
        """

    @abstractmethod
    def view(self, offset: int, size: int) -> memoryview | bytes:
        """Bytes ``offset`` to ``offset + size`` without a copy where possible; the view stays valid after `close`.

        Raises `OSError` when the file is shorter than that, also when it was shortened from outside.
        """

    def slice(self, offset: int, size: int) -> Buffer | FileSlice:
        """As `view`, for bytes that are only to be sent (`Stream.send_parts`), so that they need not be read now."""
        return self.view(offset, size)

    def read_resident(self, offset: int, size: int) -> bytes | None:
        """As `read_at`, but None when the disk would have to be waited for."""
        return self.read_at(offset, size)

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        """A function to be called in a thread, also after `close`, so that `read_resident` finds these bytes."""
        return partial(self.read_at, offset, size)

    @property
    def in_use(self) -> bool:
        """Whether slices of it are being sent, so that closing it would not free anything."""
        return False

    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) to ``size`` bytes."""

    @abstractmethod
    def sync(self) -> None:
        """Return once everything written is on stable storage; not the file's name (`Storage.sync_dir`).

        When it raises, what was written since the last sync may be lost even if a second call succeeds: kernels forget
        which pages they failed to write. Only a file opened after a recovery can be trusted again.
        """

    @abstractmethod
    def close(self) -> None:
        """Close; a second call does nothing. Does not sync."""


class Storage(ABC):
    """A tree of directories and files, addressed by path. Calls block; errors are `OSError`."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing, creating it when ``create``; `FileNotFoundError` otherwise.

        `OSError` also for what is no file, such as a named pipe: it would keep its reader waiting.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    @abstractmethod
    def is_dir(self, path: str) -> bool:
        """Whether ``path`` is a directory."""

    @abstractmethod
    def list_dir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    @abstractmethod
    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents; existing ones are fine."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Move atomically, replacing a file at ``target``. Durable after `sync_dir` of the directory."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove one file."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; a missing one is fine."""

    @abstractmethod
    def modified_ms(self, path: str) -> int:
        """When the content of a file was last changed, by the wall clock, in milliseconds since 1970."""

    @abstractmethod
    def set_modified_ms(self, path: str, at_ms: int) -> None:
        """Say when a file was last changed, in place of when it really was. Not durable before the next `File.sync`."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make names created, renamed and removed in the directory durable."""

    @abstractmethod
    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on the file ``path`` (made if missing) and return the function that releases it.

        Raises `BlockingIOError` when another process, or another broker of this one, holds it.
        """

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the volume that ``path`` is on, and how many of them are free for us; -1 each when unknown."""
        return -1, -1

    def read_file(self, path: str) -> bytes:
        """The whole content of a file."""
        file = self.open(path, read_only=True)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def make_dirs_durably(self, path: str) -> None:
        """Like `make_dirs`, and no power cut takes the new directories away."""
        missing = []
        while path and not self.exists(path):
            missing.append(path)
            path = os.path.dirname(path.rstrip("/"))
        for directory in reversed(missing):
            self.make_dirs(directory)
            self.sync_dir(os.path.dirname(directory.rstrip("/")))

    def replace_file(self, path: str, content: bytes) -> None:
        """Put ``content`` at ``path``, atomically and durably: a temporary file is written, synced and renamed."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, content)
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))


class Doorbell:
    """Rung by writing a byte to ``descriptor``, heard by one task. Leaving its block closes it."""

    def __init__(self) -> None:
        self._heard, self.descriptor = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self.descriptor, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.notify_closing(self._heard)
        os.close(self._heard)
        os.close(self.descriptor)

    async def wait(self) -> None:
        """Wait until it was rung, however often. Cancelling loses no ring."""
        await trio.lowlevel.wait_readable(self._heard)
        os.read(self._heard, 4096)


_MEMORY_OF_A_WORLD: Final = 4 << 30
"""What a world without a machine has."""


class World(ABC):
    """Clocks, randomness, network, storage and threads, as one node sees them.

    ``random`` is the node's only source of randomness; ``storage`` its file system; ``cpus`` the number of processors
    that its threads may run on.
    """

    random: random.Random
    storage: Storage
    cpus: int = 4

    @abstractmethod
    def now(self) -> float:
        """Seconds on this node's monotonic clock; only differences mean anything."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch on this node's wall clock; may jump."""

    @abstractmethod
    def deadline(self, at: float) -> float:
        """The Trio deadline for the point ``at`` on `now`, as ``trio.CancelScope(deadline=…)`` takes it."""

    @abstractmethod
    def random_bytes(self, size: int) -> bytes:
        """Unpredictable bytes: nonces, tokens."""

    @abstractmethod
    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        """All addresses of a host name, in the resolver's order. Raises `OSError` when it has none."""

    async def canonical_name(self, address: str) -> str:
        """The full name of a numeric address as the resolver knows it, or the address itself."""
        return address

    @abstractmethod
    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> Stream:
        """Connect to one address. The caller bounds the time. Raises `OSError`.

        The sizes are those of the socket's buffers in the kernel; -1 leaves them to the operating system.
        """

    @abstractmethod
    async def listen(
        self,
        host: str,
        port: int,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = 1024,
    ) -> Listener:
        """Listen on one address; port 0 takes a free one. Raises `OSError` (``EADDRINUSE``, …).

        The sizes are those of the buffers of every accepted connection in the kernel, -1 leaves them to the operating
        system; ``backlog`` is how many connections may wait to be accepted.
        """

    @abstractmethod
    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run a blocking function away from the event loop and return its result. Not stopped by cancellation."""

    async def run_in_abandonable_thread(self, function: Callable[..., T], *args: Any) -> T:
        """As `run_in_thread`; if cancelled, this returns at once, and the function goes on with nobody to hear of its
        end. It must touch nothing that is used afterwards."""
        return await self.run_in_thread(function, *args)

    def available_memory(self) -> int:
        """Return how many bytes of memory this process may use, whatever is in use already."""
        return _MEMORY_OF_A_WORLD

    def keep_little_free_memory(self) -> None:
        """Have this process return large pieces of freed memory to the operating system, from now on."""
        return

    def release_free_memory(self) -> None:
        """Return memory that this process has freed to the operating system. Blocks for some milliseconds."""
        return

    @property
    def has_doorbells(self) -> bool:
        """Whether `doorbell` makes any: not where threads do not run beside the event loop."""
        return False

    def doorbell(self) -> Doorbell:
        """A bell that a thread can ring without the interpreter. Raises `OSError` when there is none to be had."""
        raise OSError(errno.ENOSYS, "threads do not run beside the event loop here")

    def raise_file_limit(self) -> int:
        """Let this process open as many files and connections as it may, and return how many that is; 0: unknown."""
        return 0

    def uuid(self) -> uuid.UUID:
        """A random (version 4) UUID from `random_bytes`."""
        return uuid.UUID(bytes=self.random_bytes(16), version=4)


class _Scratch(threading.local):
    """A buffer for pieces of files, one per event loop, as large as stays in a processor's cache."""

    def __init__(self) -> None:
        self.buffer: Final = memoryview(bytearray(262_144))


_scratch: Final = _Scratch()


class _SocketStream(Stream):
    """A non-blocking TCP socket: try first, wait for readiness only when the kernel says so."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._closed = False
        self._drained = False
        self._in_thread = False
        self._expected = self._at_once = 0
        self._sent_in_parts = 0
        self._low_water = 1  # the kernel wakes who waits when so many bytes are there, or there will be no more
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._peer: tuple[str, int] = sock.getpeername()[:2]
            self._local: tuple[str, int] = sock.getsockname()[:2]
        except OSError:
            # The peer is gone already; the descriptor must not wait for the garbage collector.
            sock.close()
            raise

    async def send(self, *buffers: Buffer) -> None:
        await self._send(buffers, 0)

    async def _send(self, buffers: Sequence[Buffer], flags: int) -> None:
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
            # Most answers are small and in one piece, and the kernel takes them whole.
            try:
                sent = self._sock.send(parts[0])
            except OSError:  # or it would wait: found out again below
                sent = 0
            if sent == len(parts[0]):
                return
            parts = (memoryview(parts[0])[sent:],)
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
        sock = self._sock
        start = 0
        while start < len(part):
            scratch = _scratch.buffer
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
                # Nothing is kept of the piece meanwhile: readers that are slow cost no memory.
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
                # The last call got less than there was room for: another one now would find nothing.
                if self._expected or self._low_water > 1:
                    self._set_low_water()
                self.waits += 1
                await trio.lowlevel.wait_readable(self._sock)
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
        """Not above what is expected: behind a large answer, a small one must not be waited for."""
        wanted = min(self._expected, self._at_once) or 1
        if wanted != self._low_water and WAKES_WHEN_FULL:
            # The kernel takes less when its buffer is smaller, so nothing waits for what has no room. Some that take
            # themselves for Linux do not have it; without it nothing is lost but speed.
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._low_water = wanted

    def limit_silence(self, seconds: float) -> None:
        # Keepalive asks an idle peer; with unacknowledged bytes under way only the user timeout counts (RFC 5482).
        for option, value in silence_options(seconds):
            with suppress(OSError):
                self._sock.setsockopt(socket.IPPROTO_TCP, option, value)

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
                # The thread must not find another connection under the number of this one: it ends, and then it closes.
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
"""Connections whose peer has left already that a listener passes over before other tasks have their turn."""


class _SocketListener(Listener):
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
                return _SocketStream(sock)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
            except OSError as error:
                # The peer went away between connecting and being accepted, or while its options were set.
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


def _sync(descriptor: int, *, content_only: bool = False) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync there stops at the drive's own cache
    elif content_only:
        os.fdatasync(descriptor)  # with the length, without the times
    else:
        os.fsync(descriptor)


class _OsFile(File):
    def __init__(self, descriptor: int) -> None:
        self._descriptor: Descriptor | None = Descriptor(descriptor)

    @property
    def _open(self) -> Descriptor:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the file was closed")
        return self._descriptor

    def read_at(self, offset: int, size: int) -> bytes:
        return self._open.read(offset, size)

    def read_resident(self, offset: int, size: int) -> bytes | None:
        return self._open.read_resident(offset, size)

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        return self._open.warmer(offset, size)

    def write_at(self, offset: int, *buffers: Buffer) -> int:
        fd = self._open.fd
        total = 0
        for buffer in buffers:
            rest = memoryview(buffer).cast("B")
            while (left := len(rest)) > 0:
                written = os.pwrite(fd, rest, offset + total)
                total += written
                if written == left:
                    break
                rest = rest[written:]
        return total

    def view(self, offset: int, size: int) -> memoryview | bytes:
        # A mapping would raise SIGBUS when the file is shortened from outside; a copy gives a clear error instead.
        data = self.read_at(offset, size)
        self._check_end(offset + len(data), offset + size)
        return data

    def slice(self, offset: int, size: int) -> Buffer | FileSlice:
        self._check_end(self.size(), offset + size)
        return FileSlice(self._open, offset, size)

    def _check_end(self, end: int, expected: int) -> None:
        if end < expected:
            raise OSError(errno.EIO, f"the file ends at byte {end}, {expected} bytes were expected")

    @property
    def in_use(self) -> bool:
        return self._descriptor is not None and len(self._descriptor.slices) > 0

    def size(self) -> int:
        return os.fstat(self._open.fd).st_size

    def truncate(self, size: int) -> None:
        self._open.cut_at(size)
        os.ftruncate(self._open.fd, size)

    def sync(self) -> None:
        _sync(self._open.fd, content_only=True)

    def close(self) -> None:
        self._descriptor = None  # closed with the last slice of it, at the latest


def _not_a_file(path: str, mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    return OSError(errno.EINVAL, f"It is {kind}, not a file", path)


class OsStorage(Storage):
    """The operating system's file system."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            pass
        else:  # before it is opened: a pipe would wait for its other end, and a device may do anything
            if not stat.S_ISREG(mode):
                raise _not_a_file(path, mode)
        return _OsFile(os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        if os.path.exists(path):
            shutil.rmtree(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, at_ms: int) -> None:
        os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        # flock belongs to the open file, so it also excludes a second broker in this process.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return lambda: os.close(descriptor)


_MOST_THREADS: Final = 40
_own_threads: Final[trio.lowlevel.RunVar[trio.CapacityLimiter]] = trio.lowlevel.RunVar("threads of triokafka")
"""Not Trio's own limit, which the application's threads may exhaust for long: nobody would deal or sync meanwhile."""


def _limiter_of_own_threads() -> trio.CapacityLimiter:
    try:
        return _own_threads.get()
    except LookupError:
        limiter = trio.CapacityLimiter(_MOST_THREADS)
        _own_threads.set(limiter)
        return limiter


async def in_thread(
    limiter: trio.CapacityLimiter | None,
    function: Callable[..., T],
    *args: Any,
    abandon_on_cancel: bool = False,
) -> T:
    """Run a function in a worker thread and return its result, or raise its exception.

    Unlike `trio.to_thread.run_sync`, it leaves no reference cycle behind an exception. There, frames of Trio keep the
    outcome, and the exception's traceback keeps these frames with all arguments until the cycle collector runs.
    """
    failures: list[BaseException] = []
    result = await trio.to_thread.run_sync(
        _catching, failures, function, args, limiter=limiter, abandon_on_cancel=abandon_on_cancel
    )
    if not failures:
        return cast("T", result)
    failure = failures.pop()
    try:
        raise failure
    finally:
        del failure


def _catching(failures: list[BaseException], function: Callable[..., T], args: tuple[Any, ...]) -> T | None:
    """Call a function; an exception goes into ``failures``: Trio must not hold it."""
    try:
        return function(*args)
    except BaseException as error:
        failures.append(error)
        return None


_M_TRIM_THRESHOLD: Final = -1  # as in malloc.h
_M_MMAP_THRESHOLD: Final = -3


def untouched_memory(size: int) -> memoryview:
    """Return ``size`` bytes of memory of their own, all 0.

    The operating system provides a page when it is written to first, and takes all of them back with the last view:
    large buffers neither cost what is not used of them nor leave holes in the heap. Raises `OSError` (``ENOMEM``).
    """
    return memoryview(mmap.mmap(-1, size))


def _keep_little_free_memory() -> None:
    """Fix glibc's thresholds (``mallopt``).

    By default they grow with the largest piece that was freed, and then the arena of each thread keeps up to 64 MB.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        library.mallopt(_M_TRIM_THRESHOLD, 8 << 20)


def _release_free_memory() -> None:
    """Return the free memory of the C heap to the operating system, where the C library is glibc (``malloc_trim``).

    glibc keeps freed memory in an arena for each thread.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _available_memory() -> int:
    """Return how many bytes of memory this process may use: the machine's, or its control group's limit if lower."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            found.append(int(file.read()))
    return min(found)


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
            return _SocketStream(socket.socket(fileno=sock.detach()))
        except BaseException:
            sock.close()
            raise

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
        return _SocketListener(sock)

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(_limiter_of_own_threads(), function, *args)

    async def run_in_abandonable_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await in_thread(_limiter_of_own_threads(), function, *args, abandon_on_cancel=True)

    def available_memory(self) -> int:
        return _available_memory()

    def keep_little_free_memory(self) -> None:
        _keep_little_free_memory()

    def release_free_memory(self) -> None:
        _release_free_memory()

    @property
    def has_doorbells(self) -> bool:
        return os.name == "posix"

    def doorbell(self) -> Doorbell:
        return Doorbell()

    def raise_file_limit(self) -> int:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with contextlib.suppress(OSError, ValueError):  # where the hard limit is more than the system allows
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
        return soft
