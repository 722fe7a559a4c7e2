"""The memory of Python workers, through which record batches of megabytes come and go."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Final

KEPT_BYTES: Final = 32 << 20
"""How much of what was freed the C library keeps for what comes next."""

# Of mallopt, as in glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


@cache
def keep_freed_memory() -> bool:
    """Have the C library keep what is freed, up to 32 MiB. Once in a process; it cannot be taken back.

    Otherwise the memory of each batch goes back to the system, which wipes it before it comes again: a tenth to a fifth
    of a worker's processor time. False where the C library cannot be told, which is harmless.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def keep_what_is_loaded() -> None:
    """In a task of Spark: have the garbage collector pass over all that there is now, once in a process.

    Spark looks for garbage after every task, each time in all that was imported (pyspark, pyarrow, pandas): a sixth of
    a worker's processor time with tasks of 100 MB, more with small ones. What is made later is collected as ever.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.freeze()
