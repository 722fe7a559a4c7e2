"""Payloads of the load: JSON texts that look like events, or the lines of a file.

Repeating one payload would flatter compression, so up to a thousand different ones are sent in rotation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

_MOST: Final = 1000
_MOST_BYTES: Final = 4 << 20
_LINE: Final = b"\n"


@cache
def json_values(size: int) -> list[bytes]:
    """Return 1,000 JSON texts, or 4 MiB, cut to ``size`` bytes; the same in every process and on every machine."""
    chance = random.Random(7)
    return [_json_text(chance, size) for _ in range(max(1, min(_MOST, _MOST_BYTES // size)))]


def _json_text(chance: random.Random, size: int) -> bytes:
    text = bytearray()
    while len(text) < size:
        event = {
            "id": chance.getrandbits(40),
            "user": chance.randint(1, 10**6),
            "type": chance.choice(["click", "view", "buy"]),
            "page": f"/p/{chance.randint(1, 5000)}",
            "amount": round(chance.random() * 500, 2),
        }
        text += json.dumps(event).encode()
    return bytes(text[:size])


def file_values(path: str, delimiter: bytes = _LINE) -> list[bytes]:
    """Return a file's non-empty values without what ends them. Raises `OSError`, or `ValueError` for no values.

    Lines may also end as on Windows.
    """
    data = Path(path).read_bytes()
    parts = data.splitlines() if delimiter == _LINE else data.removesuffix(_LINE).split(delimiter)
    values = [value for value in parts if value]
    if not values:
        raise ValueError(f"{path} has only empty {'lines' if delimiter == _LINE else 'values'}")
    return values


def bytes_of(values: Sequence[bytes], records: int) -> int:
    """Return the total bytes of ``records`` records that use the values in rotation."""
    rounds, rest = divmod(records, len(values))
    return rounds * sum(map(len, values)) + sum(map(len, values[:rest]))
