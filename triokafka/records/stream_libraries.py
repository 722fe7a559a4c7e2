"""Streaming decompressors of the C libraries inside Python packages, for kernels to call.

The addresses are those of C functions; None if a package is missing or does not export them, as ``_zstd`` in some
builds of Python 3.14. Callers then use the package's Python objects.
"""

from __future__ import annotations

import importlib
from functools import cache

from triokafka.records import lz4_library

_LZ4: tuple[str, ...] = (
    "LZ4F_createDecompressionContext",
    "LZ4F_freeDecompressionContext",
    "LZ4F_decompress",
    "LZ4F_isError",
)
_ZSTD: tuple[str, ...] = (
    "ZSTD_createDCtx",
    "ZSTD_freeDCtx",
    "ZSTD_DCtx_reset",
    "ZSTD_sizeof_DCtx",
    "ZSTD_decompressStream",
    "ZSTD_isError",
    "ZSTD_DCtx_setParameter",
)


@cache
def lz4_functions() -> tuple[int, ...] | None:
    """Create, free, decompress, is error."""
    return lz4_library.addresses(*_LZ4)


@cache
def zstd_functions() -> tuple[int, ...] | None:
    """Create, free, reset, size of, decompress, is error, set a parameter."""
    for module in ("_zstd", "backports.zstd._zstd"):
        try:
            file = importlib.import_module(module).__file__
        except (ImportError, AttributeError):
            continue
        found = lz4_library.addresses_in(file, *_ZSTD)
        if found is not None:
            return found
    return None
