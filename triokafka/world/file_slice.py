"""Files of the operating system as they are shared by readers, and slices of them that are on their way to a socket.

A `FileSlice` holds no bytes: who sends it copies a piece from the page cache into a buffer and gives that to the socket
at once, and a piece that is not in the page cache is sent by the kernel, file to socket, while a thread waits for the
disk. The event loop never does. ``docs/architecture/zero-copy.md`` has the measurements behind this.

Mapped memory is not used: a file that is shortened from outside would end the process, and pages that are not there
would stop the event loop.
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
    """An open file, closed when nobody has it any more: neither who opened it nor a slice that is being sent."""

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
        """As `read`, but None when the disk would have to be waited for."""
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
            return self.read(offset, size)  # a file system that cannot tell
        if got == size:
            return bytes(buffer)
        if got and offset + got < os.fstat(self.fd).st_size:
            return None
        return bytes(memoryview(buffer)[:got])

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        """A function for a thread: afterwards these bytes are in the page cache."""
        return partial(self.read, offset, size)

    def cut_at(self, size: int) -> None:
        """The file is about to be cut: slices that reach beyond are read into memory, so that they stay what they are.

        Waits for a thread that is sending from one of them.
        """
        for part in list(self.slices):
            if part.offset + len(part) > size:
                part.detach()


class FileSlice:
    """Bytes of an open file that are to be sent, and stay in the file until they are.

    It stays valid, with the bytes that it had, while the file is renamed, removed, closed or cut by its owner. What
    somebody else does to the file shows as an error.
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

    def read(self) -> bytes:
        """All of it. Blocks while the disk is read.

        Raises:
            OSError: the file is shorter by now, or the disk failed.
        """
        descriptor = self._descriptor
        if descriptor is None:
            return self._detached
        data = descriptor.read(self.offset, self._size)
        if len(data) < self._size:
            raise self._shortened(self.offset + len(data))
        return data

    def detach(self) -> None:
        """Take the bytes into memory, and let go of the file."""
        with self._lock:
            if self._descriptor is not None:
                self._detached = self.read()
                self._descriptor.slices.discard(self)
                self._descriptor = None

    def copy_resident(self, start: int, target: memoryview) -> int:
        """Fill ``target`` from ``start`` of the slice on as far as the disk need not be waited for; how many bytes.

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
            got = os.preadv(descriptor.fd, [target[:size]], self.offset + start)  # a file system that cannot tell
        if not got:
            raise self._shortened(os.fstat(descriptor.fd).st_size)
        return got

    def send(self, socket_fd: int, start: int) -> int:
        """For a thread: send bytes from ``start`` of the slice on to a non-blocking socket; returns how many.

        Waits for the disk. 0 when the socket is full, or when the bytes were taken into memory just now.

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
