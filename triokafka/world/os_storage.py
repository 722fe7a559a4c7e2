"""The file system of the operating system."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable

from triokafka.structs import Buffer
from triokafka.world.file import File
from triokafka.world.file_slice import Descriptor, FileSlice
from triokafka.world.storage import Storage


def _sync(descriptor: int, *, content_only: bool = False) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync on macOS does not flush the drive's cache
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
            size = len(buffer)
            written = os.pwrite(fd, buffer, offset + total) if size else 0
            while written < size:
                written += os.pwrite(fd, memoryview(buffer)[written:], offset + total + written)
            total += size
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
        self._descriptor = None  # the descriptor closes with its last slice


def _not_a_file(path: str, mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    kind = "a named pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    return OSError(errno.EINVAL, f"It is {kind}, not a file", path)


class OsStorage(Storage):
    """The operating system's file system."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False) -> File:
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            pass
        else:  # check before opening: a pipe waits for its other end, and a device may do anything
            if not stat.S_ISREG(mode):
                raise _not_a_file(path, mode)
        return _OsFile(os.open(path, flags, 0o600 if private else 0o644))

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

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def lock(self, path: str) -> Callable[[], None]:
        # flock belongs to the open file, so it also excludes a second broker in this process.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return lambda: os.close(descriptor)


def storage_with(storage: Storage, path: str) -> Storage:
    """Return ``storage`` if it has the file, or else the operating system's.

    For files that the user names, such as certificates: those of a node whose data is in memory are on the real disk.
    """
    return storage if storage.exists(path) else OsStorage()
