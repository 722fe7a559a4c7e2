"""Shows the bytes of a key, value or header: as JSON, text, or hexadecimal. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import KafkaError

if TYPE_CHECKING:
    from triokafka.formats.value_codecs import ValueDecoder

MOST_CHARACTERS: Final = 64 << 10
"""Characters of one value that the page shows."""


_LAYOUT: Final = dict.fromkeys(map(ord, "\n\r\t"))


def shown(data: bytes | None, decoder: ValueDecoder | None = None, most: int = MOST_CHARACTERS) -> dict[str, Any]:
    """Return ``{"format": …, "text": …, "size": …}``; the format is null, json, text, hex, or that of a schema.

    Values in an envelope are decoded with their schema when there is a registry. Long values are cut: ``cut`` is true.
    """
    if data is None:
        return {"format": "null", "text": None, "size": 0}
    if decoder is not None and data[:1] == b"\0" and len(data) > 5:
        try:
            text = json.dumps(decoder.decode(data), indent=2, ensure_ascii=False, default=str)
            return _cut("schema", text, len(data), most)
        except KafkaError as error:
            return {**shown(data, None, most), "problem": str(error)}
    # A character has at most four bytes; the cut may split the last one.
    start = data[: 4 * most + 4]
    try:
        text = start.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(start) == len(data) or error.start < len(start) - 3:
            return _cut("hex", data[: most // 3 + 2].hex(" "), len(data), most)
        text = start[: error.start].decode("utf-8")
    if data[:1] in (b"{", b"[") and len(data) <= MOST_CHARACTERS:
        try:
            return _cut("json", json.dumps(json.loads(text), indent=2, ensure_ascii=False), len(data), most)
        except (ValueError, RecursionError):
            pass
    if text[:most].translate(_LAYOUT).isprintable():
        return _cut("text", text, len(data), most)
    return _cut("hex", data[: most // 3 + 2].hex(" "), len(data), most)


def _cut(kind: str, text: str, size: int, most: int) -> dict[str, Any]:
    return {"format": kind, "text": text[:most], "size": size, "cut": len(text) > most}
