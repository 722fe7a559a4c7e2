"""Payloads of the load: JSON texts that look like events, or the lines of a file.

Repeating one payload would flatter compression, so up to a thousand different ones are sent in rotation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, overload

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


class Numbers(Sequence[bytes]):
    """The numbers from 0 on, as text."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        found = range(self._count)[at]
        return b"%d" % found if isinstance(found, int) else [b"%d" % number for number in found]

    def bytes_of_first(self, count: int) -> int:
        """Return the bytes of the first numbers together."""
        digits, total, least = 1, 0, 0
        while least < count:
            most = 10**digits
            total += digits * (min(count, most) - least)
            digits, least = digits + 1, most
        return total


def bytes_of(values: Sequence[bytes], records: int) -> int:
    """Return the total bytes of ``records`` records that use the values in rotation."""
    if isinstance(values, Numbers):
        return values.bytes_of_first(records)
    rounds, rest = divmod(records, len(values))
    return rounds * sum(map(len, values)) + sum(map(len, values[:rest]))
