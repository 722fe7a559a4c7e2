"""Keys and values as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_BYTES: Final = (bytes, bytearray, memoryview)


def serialized(serializer: Callable[[Any], Any] | None, given: Any, what: str) -> Any:
    """Return bytes or None.

    Raises:
        TypeError: the result is neither.
    """
    made = given if serializer is None else serializer(given)
    if made is None or type(made) is bytes:
        return made
    if not isinstance(made, _BYTES):
        raise TypeError(f"Unsupported type for {what}: {type(made)}")
    return bytes(made)  # the sender may change it after the call
