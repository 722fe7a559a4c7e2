"""Which files are open: at most so many at once, over all logs that share one `OpenFiles`.

A broker hosts more partitions than a process may have files. Whoever needs a file asks by path each time; one that was
not asked for longest is closed to make room, and opened again when it is needed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from triokafka.world import File, Storage

DEFAULT_LIMIT: Final = 500


class OpenFiles:
    """A bounded set of open files. Not thread safe; errors of the disk are `OSError`.

    ``storage`` is where the files are.

    Args:
        limit: how many are open at once, at least 1.
    """

    def __init__(self, storage: Storage, limit: int = DEFAULT_LIMIT) -> None:
        self.storage: Final = storage
        self._limit = max(1, limit)
        self._files: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; valid until the next call of any kind."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        while len(self._files) >= self._limit:
            # Closing one that is being sent would free nothing, and hide from who cuts the file that it is.
            idle = next((known for known, file in self._files.items() if not file.in_use), None)
            if idle is None:
                break
            self._files.pop(idle).close()
        file = self._files[path] = self.storage.open(path, create=create)
        return file

    def close(self, path: str) -> None:
        """Close the file if it is open: it is about to be renamed or removed, or not needed any more."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def close_all(self) -> None:
        """Close whatever is open."""
        while self._files:
            self._files.popitem()[1].close()
