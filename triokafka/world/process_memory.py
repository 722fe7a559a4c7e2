"""The memory of this process: how much it may use, and when it goes back to the operating system."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # as in malloc.h
_M_MMAP_THRESHOLD: Final = -3


def untouched_memory(size: int) -> memoryview:
    """Return a new mapping of ``size`` bytes, all 0.

    The operating system provides a page at its first write, and takes all pages back when the last view is gone. A
    large buffer therefore costs only the pages in use, and leaves no hole in the heap. Raises `OSError` (``ENOMEM``).
    """
    return memoryview(mmap.mmap(-1, size))


def keep_little_free_memory() -> None:
    """Fix glibc's thresholds (``mallopt``).

    By default they grow with the largest piece that was freed, and then the arena of each thread keeps up to 64 MB.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        library.mallopt(_M_TRIM_THRESHOLD, 8 << 20)


def release_free_memory() -> None:
    """Return the free memory of the C heap to the operating system, where the C library is glibc (``malloc_trim``).

    glibc keeps freed memory in an arena for each thread.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def available_memory() -> int:
    """Return how many bytes of memory this process may use: the machine's, or its control group's limit if lower."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(path) as file:
            found.append(int(file.read()))
    return min(found)
