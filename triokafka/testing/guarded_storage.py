"""A storage that a fault can close or fill."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from triokafka.testing.disk_room import DiskRoom, LimitedFile
from triokafka.world import File, Storage

_QUORUM_STATE: Final = "quorum-state"


class GuardedStorage(Storage):
    """Another storage, with a check before every call.

    Args:
        storage: the other storage. Files that it opened earlier are not checked.
        check: raises the error for a call that must fail.
        room: limits the growth of files; None does not count it. The election state of the quorum is not counted: a
            node that cannot write it takes no part in the quorum until its next start, as if it had failed.
    """

    def __init__(self, storage: Storage, *, check: Callable[[], None], room: DiskRoom | None = None) -> None:
        self._guarded = storage
        self._check = check
        self._room = room

    @property
    def _storage(self) -> Storage:
        self._check()
        return self._guarded

    def open(self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False) -> File:
        file = self._storage.open(path, create=create, read_only=read_only, private=private)
        if read_only or self._room is None or os.path.basename(path).startswith(_QUORUM_STATE):
            return file
        return LimitedFile(self._room, file, path)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._storage.is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._storage.list_dir(path)

    def make_dirs(self, path: str) -> None:
        self._storage.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._storage.rename(source, target)

    def remove(self, path: str) -> None:
        self._storage.remove(path)

    def remove_tree(self, path: str) -> None:
        self._storage.remove_tree(path)

    def modified_ms(self, path: str) -> int:
        return self._storage.modified_ms(path)

    def set_modified_ms(self, path: str, at_ms: int) -> None:
        self._storage.set_modified_ms(path, at_ms)

    def sync_dir(self, path: str) -> None:
        self._storage.sync_dir(path)

    def lock(self, path: str) -> Callable[[], None]:
        return self._storage.lock(path)

    def space(self, path: str) -> tuple[int, int]:
        total, free = self._storage.space(path)
        return total, free if self._room is None or self._room.free_bytes is None else self._room.free_bytes
