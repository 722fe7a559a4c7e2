"""Reads that never wait for the disk: they raise for data outside of the page cache, which a thread then loads."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.world import File, Storage


class ColdReadError(Exception):
    """The data is not in the page cache: call ``warm`` in a thread, then read again.

    ``warm`` raises nothing: the second read reports disk errors.
    """

    def __init__(self, warm: Callable[[], None]) -> None:
        super().__init__("not in memory")
        self.warm = warm


class PageCacheFile:
    """An open file whose reads raise `ColdReadError` instead of waiting for the disk."""

    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes from ``offset``; fewer at the end of the file."""
        data = self._file.read_resident(offset, size)
        if data is None:
            raise ColdReadError(_quiet(self._file.warmer(offset, size)))
        return data


def require_in_page_cache(storage: Storage, path: str) -> None:
    """Raise `ColdReadError` unless the whole file is in the page cache. A missing file is no error."""
    try:
        file = storage.open(path, read_only=True)
    except FileNotFoundError:
        return
    try:
        PageCacheFile(file).read_at(0, file.size())
    finally:
        file.close()


def _quiet(warm: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            warm()
        except OSError:
            pass

    return run
