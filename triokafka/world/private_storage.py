"""A storage whose new files only their owner can read: the metadata log, with the keys of users, for instance."""

from __future__ import annotations

from triokafka.world.file import File
from triokafka.world.forwarding_storage import ForwardingStorage
from triokafka.world.storage import Storage


class PrivateStorage(ForwardingStorage):
    """Another storage that creates every file for its owner alone. The mode of files that exist does not change."""

    def __init__(self, storage: Storage) -> None:
        self._shared = storage

    @property
    def _storage(self) -> Storage:
        return self._shared

    def open(self, path: str, *, create: bool = False, read_only: bool = False, private: bool = True) -> File:
        return self._shared.open(path, create=create, read_only=read_only, private=True)
