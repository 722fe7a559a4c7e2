"""Shows the bytes of a key, value or header: as JSON, text, or hexadecimal. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import KafkaError

if TYPE_CHECKING:
    from triokafka.formats.values import ValueDecoder

_MOST: Final = 64 << 10
"""Bytes of one value that the page shows."""


def shown(data: bytes | None, decoder: ValueDecoder | None = None) -> dict[str, Any]:
    """Return ``{"format": …, "text": …, "size": …}``; the format is null, json, text, hex, or that of a schema.

    Values in an envelope are decoded with their schema when there is a registry. Long values are cut: ``cut`` is true.
    """
    if data is None:
        return {"format": "null", "text": None, "size": 0}
    if decoder is not None and data[:1] == b"\0" and len(data) > 5:
        try:
            return _cut(
                "schema", json.dumps(decoder.decode(data), indent=2, ensure_ascii=False, default=str), len(data)
            )
        except KafkaError as error:
            return {**shown(data), "problem": str(error)}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _cut("hex", data[: _MOST // 2].hex(" "), len(data))
    if data[:1] in (b"{", b"[") and len(data) <= _MOST:
        try:
            return _cut("json", json.dumps(json.loads(text), indent=2, ensure_ascii=False), len(data))
        except (ValueError, RecursionError):
            pass
    printable = all(character.isprintable() or character in "\n\r\t" for character in text[:_MOST])
    return _cut("text", text, len(data)) if printable else _cut("hex", data[: _MOST // 2].hex(" "), len(data))


def _cut(kind: str, text: str, size: int) -> dict[str, Any]:
    return {"format": kind, "text": text[:_MOST], "size": size, "cut": len(text) > _MOST}
