"""Functions of the liblz4 that the package ``lz4`` brings with it, for kernels to call."""

from __future__ import annotations

import importlib
from functools import cache


@cache
def addresses(*names: str) -> tuple[int, ...] | None:
    """Where the functions of these names are, or None where one of them cannot be found. Imports the package."""
    try:
        import ctypes

        library = ctypes.CDLL(importlib.import_module("lz4.frame._frame").__file__)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (ImportError, OSError, AttributeError):
        return None
    return tuple(address for address in found if address) if all(found) else None


def decompress_block() -> int:
    """Where ``LZ4_decompress_safe`` is, or 0."""
    found = addresses("LZ4_decompress_safe")
    return found[0] if found is not None else 0
