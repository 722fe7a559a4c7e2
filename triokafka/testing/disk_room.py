"""A limit on the growth of files, which simulates a full disk."""

from __future__ import annotations

import errno
from collections.abc import Callable

from triokafka.structs import Buffer
from triokafka.world import File, FileSlice


class DiskRoom:
    """Remaining space of a disk: ``free_bytes``, None without a limit."""

    def __init__(self) -> None:
        self.free_bytes: int | None = None

    def take(self, growth: int, path: str) -> None:
        """Allocate space for a file. Raises `OSError` (ENOSPC) if there is too little."""
        if self.free_bytes is None:
            return
        if growth > self.free_bytes:
            raise OSError(errno.ENOSPC, "no space left on the device: the test has filled it", path)
        self.free_bytes -= growth


class LimitedFile(File):
    """A file whose growth is counted against the disk's space."""

    def __init__(self, room: DiskRoom, file: File, path: str) -> None:
        self._room = room
        self._file = file
        self._path = path

    def _grow_to(self, size: int) -> None:
        if self._room.free_bytes is not None:
            self._room.take(max(size - self._file.size(), 0), self._path)

    def write_at(self, offset: int, *buffers: Buffer) -> int:
        if self._room.free_bytes is not None:
            self._grow_to(offset + sum(memoryview(buffer).nbytes for buffer in buffers))
        return self._file.write_at(offset, *buffers)

    def truncate(self, size: int) -> None:
        self._grow_to(size)
        self._file.truncate(size)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def view(self, offset: int, size: int) -> memoryview | bytes:
        return self._file.view(offset, size)

    def slice(self, offset: int, size: int) -> Buffer | FileSlice:
        return self._file.slice(offset, size)

    def read_resident(self, offset: int, size: int) -> bytes | None:
        return self._file.read_resident(offset, size)

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        return self._file.warmer(offset, size)

    @property
    def in_use(self) -> bool:
        return self._file.in_use

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
