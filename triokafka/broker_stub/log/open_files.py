"""A limit for the open files of all logs that share one `OpenFiles`.

A broker may host more partitions than a process may open files. Callers get a file by path each time. The least
recently used file is closed to make room, and opened again when needed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from triokafka.world import File, Storage

DEFAULT_LIMIT: Final = 500


class OpenFiles:
    """A bounded set of open files. Not thread-safe; disk errors are `OSError`.

    ``storage`` has the files.

    Args:
        limit: the most open files, at least 1.
    """

    def __init__(self, storage: Storage, limit: int = DEFAULT_LIMIT) -> None:
        self.storage: Final = storage
        self._limit = max(1, limit)
        self._files: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> File:
        """Return the open file, which is valid until the next call of any method."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        while len(self._files) >= self._limit:
            # Closing a file that is being sent would free no descriptor, and hide its use from a truncation.
            idle = next((known for known, file in self._files.items() if not file.in_use), None)
            if idle is None:
                break
            self._files.pop(idle).close()
        file = self._files[path] = self.storage.open(path, create=create)
        return file

    def close(self, path: str) -> None:
        """Close the file if it is open, before it is renamed or removed, or when it is no longer needed."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        """Close all files."""
        while self._files:
            self._files.popitem()[1].close()
