"""A storage that gives every call to another one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from triokafka.world.storage import Storage


class ForwardingStorage(Storage):
    """Passes every call but `open` on to `_storage`; a subclass overrides the calls that it changes."""

    @property
    @abstractmethod
    def _storage(self) -> Storage:
        """The other storage, asked for before each call."""

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
        return self._storage.space(path)

    def absolute(self, path: str) -> str:
        return self._storage.absolute(path)
