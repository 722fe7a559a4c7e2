"""The interface of a file system."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable

from triokafka.world.file import File


class Storage(ABC):
    """A tree of directories and files, addressed by path. Calls block; errors are `OSError`."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False) -> File:
        """Open a file for reading and writing, creating it when ``create``; `FileNotFoundError` otherwise.

        A file that it creates with ``private`` is readable and writable for its owner only.

        Also raises `OSError` for anything but a regular file: a named pipe would keep its reader waiting.
        """

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""

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
        """Return when the content of a file last changed, in milliseconds since 1970 on the wall clock."""

    @abstractmethod
    def set_modified_ms(self, path: str, at_ms: int) -> None:
        """Set the time of the file's last change. Not durable before the next `File.sync`."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make names created, renamed and removed in the directory durable."""

    @abstractmethod
    def lock(self, path: str) -> Callable[[], None]:
        """Take an exclusive lock on the file ``path`` (made if missing) and return the function that releases it.

        Raises `BlockingIOError` when another process, or another broker of this one, holds it.
        """

    def space(self, path: str) -> tuple[int, int]:
        """Return the size of the volume of ``path``, and its free space for this process, in bytes; -1 if unknown."""
        return -1, -1

    def absolute(self, path: str) -> str:
        """Return the path from the root, without ``.`` and ``..``. Storage in memory has no other working directory."""
        return os.path.normpath(os.path.join("/", path))

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a file."""
        file = self.open(path, read_only=True)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def make_dirs_durably(self, path: str) -> None:
        """Like `make_dirs`, but the new directories survive a power cut."""
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
