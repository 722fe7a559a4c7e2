"""Memory settings of Python workers, which allocate and free record batches of megabytes."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Final

KEPT_BYTES: Final = 32 << 20
"""How much freed memory the C library keeps for reuse."""

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


@cache
def keep_freed_memory() -> bool:
    """Make the C library keep up to 32 MiB of freed memory. Applies to the whole process and cannot be undone.

    Otherwise the memory of each batch returns to the system, which zeroes it before reuse: a tenth to a fifth of a
    worker's processor time. Returns False where the C library does not support this, which is harmless.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def keep_what_is_loaded() -> None:
    """In a Spark task, exclude all present objects from garbage collection, once per process.

    Spark collects garbage after every task, each time over all imported modules (pyspark, pyarrow, pandas): a sixth of
    a worker's processor time with tasks of 100 MB, more with small ones. Later objects are collected as usual.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
