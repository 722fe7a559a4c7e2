"""What is sent: JSON texts that look like events, or the lines of a file.

A tool that repeats one payload flatters compression; here up to a thousand different ones take turns.
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


@cache
def json_values(size: int) -> list[bytes]:
    """JSON texts cut to ``size`` bytes, 1,000 of them or 4 MiB; the same in every process and on every machine."""
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


def file_values(path: str) -> list[bytes]:
    """The lines of a file that are not empty, without their ends. Raises `OSError`, or `ValueError` for no line."""
    lines = [line for line in Path(path).read_bytes().splitlines() if line]
    if not lines:
        raise ValueError(f"{path} has no line that is not empty")
    return lines


def bytes_of(values: Sequence[bytes], records: int) -> int:
    """The bytes of so many records that take the values in turns."""
    rounds, rest = divmod(records, len(values))
    return rounds * sum(map(len, values)) + sum(map(len, values[:rest]))
