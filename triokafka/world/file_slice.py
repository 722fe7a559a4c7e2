"""Open files of the operating system, and slices of them that are sent to a socket.

A `FileSlice` holds no bytes. The sender copies a piece from the page cache into a buffer and passes that to the socket.
For a piece that is not in the page cache, a thread waits for the disk while the kernel sends from file to socket. The
event loop never waits for the disk. ``docs/architecture/zero-copy.md`` has the measurements.

The module does not map files into memory: a file shortened from outside would end the process (SIGBUS), and a page that
is not in memory would stop the event loop.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Final
from weakref import WeakSet

_NOT_WAITING: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_AT_ONCE_IN_THREAD: Final = 1_048_576
_NO_SUPPORT: Final = (errno.EOPNOTSUPP, errno.EINVAL)


class Descriptor:
    """An open file. It is closed when neither its opener nor a slice in transit refers to it."""

    __slots__ = ("__weakref__", "fd", "slices")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.slices: WeakSet[FileSlice] = WeakSet()

    def __del__(self) -> None:
        os.close(self.fd)

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer at the end of the file."""
        data = os.pread(self.fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # a signal, or more than the kernel reads at once
        got = len(data)
        while got < size and (data := os.pread(self.fd, size - got, offset + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_resident(self, offset: int, size: int) -> bytes | None:
        """Like `read`, but None if the bytes are not in the page cache."""
        if not _NOT_WAITING:
            return self.read(offset, size)
        buffer = bytearray(size)
        try:
            got = os.preadv(self.fd, [buffer], offset, _NOT_WAITING)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NO_SUPPORT:
                raise
            return self.read(offset, size)  # the file system does not support RWF_NOWAIT
        if got == size:
            return bytes(buffer)
        if got and offset + got < os.fstat(self.fd).st_size:
            return None
        return bytes(memoryview(buffer)[:got])

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        """Return a function for a thread that loads these bytes into the page cache."""
        return partial(self.read, offset, size)

    def cut_at(self, size: int) -> None:
        """Prepare the truncation of the file: read slices that reach beyond ``size`` into memory, so that they stay
        valid.

        Waits for a thread that sends from one of them.
        """
        for part in list(self.slices):
            if part.offset + len(part) > size:
                part.detach()


class FileSlice:
    """Bytes of an open file that will be sent, and stay in the file until then.

    The slice stays valid while the owner renames, removes, closes or cuts the file. A change by another process shows
    as an error.
    """

    __slots__ = ("__weakref__", "_descriptor", "_detached", "_lock", "_size", "offset")

    def __init__(self, descriptor: Descriptor, offset: int, size: int) -> None:
        self.offset = offset
        self._size = size
        self._descriptor: Descriptor | None = descriptor
        self._detached: bytes = b""
        self._lock = threading.Lock()
        descriptor.slices.add(self)

    def __len__(self) -> int:
        return self._size

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Return ``size`` bytes from ``start`` on, or as many as there are; by default all. Blocks while the disk is
        read.

        Raises:
            OSError: the file is shorter by now, or the disk failed.
        """
        size = self._size - start if size is None else min(size, self._size - start)
        descriptor = self._descriptor
        if descriptor is None:
            return self._detached[start : start + size]
        data = descriptor.read(self.offset + start, size)
        if len(data) < size:
            raise self._shortened(self.offset + start + len(data))
        return data

    def detach(self) -> None:
        """Read the bytes into memory, and release the file."""
        with self._lock:
            if self._descriptor is not None:
                self._detached = self.read()
                self._descriptor.slices.discard(self)
                self._descriptor = None

    def copy_resident(self, start: int, target: memoryview) -> int:
        """Copy bytes from ``start`` on into ``target``, as far as they are in the page cache. Return their number.

        Raises:
            OSError: the file is shorter by now, or the disk failed.
        """
        size = min(self._size - start, len(target))
        descriptor = self._descriptor
        if descriptor is None:
            target[:size] = self._detached[start : start + size]
            return size
        if not _NOT_WAITING:
            return 0
        try:
            got = os.preadv(descriptor.fd, [target[:size]], self.offset + start, _NOT_WAITING)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in _NO_SUPPORT:
                raise
            got = os.preadv(descriptor.fd, [target[:size]], self.offset + start)  # without RWF_NOWAIT
        if not got:
            raise self._shortened(os.fstat(descriptor.fd).st_size)
        return got

    def send(self, socket_fd: int, start: int) -> int:
        """Send bytes from ``start`` on to a non-blocking socket, and return their number. Runs in a thread.

        Waits for the disk. Returns 0 when the socket is full, or when `detach` has just read the bytes.

        Raises:
            OSError: the file is shorter by now, or the disk or the connection failed.
        """
        with self._lock:
            descriptor = self._descriptor
            if descriptor is None:
                return 0
            size = min(self._size - start, _AT_ONCE_IN_THREAD)
            try:
                sent = os.sendfile(socket_fd, descriptor.fd, self.offset + start, size)
            except BlockingIOError:
                return 0
        if not sent:
            raise self._shortened(os.fstat(descriptor.fd).st_size)
        return sent

    def _shortened(self, end: int) -> OSError:
        return OSError(errno.EIO, f"the file ends at byte {end}, {self.offset + self._size} bytes were expected")
