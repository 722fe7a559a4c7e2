"""The interface of an open file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from triokafka.structs import Buffer
from triokafka.world.file_slice import FileSlice


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
        """Return bytes ``offset`` to ``offset + size``, without a copy where possible; the view stays valid after
        `close`.

        Raises `OSError` if the file is shorter, also if it was shortened from outside.
        """

    def slice(self, offset: int, size: int) -> Buffer | FileSlice:
        """Like `view`, for bytes that will only be sent (`Stream.send_parts`): nothing is read now."""
        return self.view(offset, size)

    def read_resident(self, offset: int, size: int) -> bytes | None:
        """Like `read_at`, but None if the bytes are not in the page cache."""
        return self.read_at(offset, size)

    def warmer(self, offset: int, size: int) -> Callable[[], object]:
        """Return a function that loads these bytes into the page cache. It may run in a thread, also after `close`."""
        return partial(self.read_at, offset, size)

    @property
    def in_use(self) -> bool:
        """Whether slices of the file are being sent: closing it would free no file handle."""
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

        When it raises, the writes since the last sync may be lost even if a second call succeeds: kernels forget which
        pages they failed to write. Only a file opened after a recovery can be trusted again.
        """

    @abstractmethod
    def close(self) -> None:
        """Close; a second call does nothing. Does not sync."""
