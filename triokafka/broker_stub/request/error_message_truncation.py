"""Truncation of error messages that do not fit into a response.

A message may quote a name from the request. If the name has the maximum length of a protocol string, the message
exceeds it.
"""

from __future__ import annotations

from typing import Any, Final

from triokafka.protocol.message import Struct

MAX_BYTES: Final = 2_000
"""Maximum length of an error message in a response that does not fit."""
_FIELD: Final = "error_message"


def cut_error_messages(message: Struct) -> bool:
    """Truncate every error message of a response to `MAX_BYTES`; return whether one was longer."""
    found = False
    for field in message.__fields__:
        value: Any = getattr(message, field.name)
        if field.name == _FIELD:
            if isinstance(value, str) and len(value.encode()) > MAX_BYTES:
                setattr(message, _FIELD, _cut(value))
                found = True
        elif isinstance(value, Struct):
            found |= cut_error_messages(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            for item in value:
                found |= cut_error_messages(item)
    return found


def _cut(text: str) -> str:
    ending = "…"
    return text.encode()[: MAX_BYTES - len(ending.encode())].decode(errors="ignore") + ending
