"""Functions of the liblz4 that the package ``lz4`` contains, for kernels to call."""

from __future__ import annotations

import importlib
from functools import cache


@cache
def addresses(*names: str) -> tuple[int, ...] | None:
    """Return the addresses of these functions, or None if one cannot be found. Imports the package."""
    try:
        file = importlib.import_module("lz4.frame._frame").__file__
    except (ImportError, AttributeError):
        return None
    return addresses_in(file, *names)


def addresses_in(file: str | None, *names: str) -> tuple[int, ...] | None:
    """Return the addresses of functions of an extension module loaded from ``file``; None if one is missing."""
    try:
        import ctypes

        library = ctypes.CDLL(file)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (ImportError, OSError, AttributeError):
        return None
    return tuple(address for address in found if address) if all(found) else None


def decompress_block() -> int:
    """Return the address of ``LZ4_decompress_safe``, or 0."""
    found = addresses("LZ4_decompress_safe")
    return found[0] if found is not None else 0
