"""The plain twin of ``_lz4_worker``: the same jobs, but each needs the interpreter lock."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final

from triokafka.records.compression import compress

MOST_JOBS: Final = 16
"""The most jobs with uncollected results."""


class Lz4Worker:
    """Jobs in their order: each compresses part of a buffer in place.

    `serve` runs in a thread; all else is called by the event loop. ``compress`` and ``bound`` are the addresses of
    liblz4's ``LZ4F_compressFrame`` and ``LZ4F_compressFrameBound``, for the compiled twin. When jobs are done that were
    not collected, a byte is written to ``descriptor``. A buffer must neither be read nor written while it is in a job.
    """

    def __init__(self, compress: int, bound: int, descriptor: int) -> None:
        self._descriptor = descriptor
        self._changed = threading.Condition()
        self._jobs: deque[tuple[memoryview, int]] = deque()
        self._results: list[int] = []
        self._serving = False
        self._stopping = False
        self._rung = False

    @property
    def serving(self) -> bool:
        """Whether a thread takes new jobs."""
        return self._serving

    def push(self, buffer: bytearray, start: int, end: int) -> bool:
        """Add a job. Return False, without effect, if there is no room or no thread is serving.

        Raises:
            ValueError: the buffer has no such bytes.
        """
        if not 0 <= start <= end <= len(buffer):
            raise ValueError(f"bytes {start} to {end} of a buffer of {len(buffer)}")
        with self._changed:
            if not self._serving or self._stopping or len(self._jobs) + len(self._results) >= MOST_JOBS:
                return False
            self._jobs.append((memoryview(buffer)[start:], end - start))
            self._changed.notify()
        return True

    def finished(self) -> list[int]:
        """Return the compressed sizes of the jobs done since the last call; -1 if a result did not fit its buffer."""
        with self._changed:
            results, self._results = self._results, []
            self._rung = False
        return results

    def stop(self) -> None:
        """End `serve` after the current job; the jobs behind it are dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def serve(self, idle: float) -> None:
        """Do jobs, in a thread, until there has been none for ``idle`` seconds, or until `stop`."""
        with self._changed:
            self._serving = True
            while self._changed.wait_for(lambda: self._jobs or self._stopping, idle) and not self._stopping:
                place, size = self._jobs[0]
                self._changed.release()
                try:
                    packed = compress("lz4", place[:size])
                    fits = len(packed) <= len(place)
                    if fits:
                        place[: len(packed)] = packed
                finally:
                    self._changed.acquire()
                del place
                self._jobs.popleft()
                self._results.append(len(packed) if fits else -1)
                if not self._rung:
                    self._rung = True
                    os.write(self._descriptor, b"!")
            self._serving = False
