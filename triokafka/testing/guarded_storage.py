"""A storage that a fault can close or fill."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from triokafka.testing.disk_room import DiskRoom, LimitedFile
from triokafka.world import File, Storage
from triokafka.world.forwarding_storage import ForwardingStorage

_QUORUM_STATE: Final = "quorum-state"


class GuardedStorage(ForwardingStorage):
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

    def space(self, path: str) -> tuple[int, int]:
        total, free = self._storage.space(path)
        return total, free if self._room is None or self._room.free_bytes is None else self._room.free_bytes
