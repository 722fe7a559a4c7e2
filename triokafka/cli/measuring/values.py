"""What is sent: JSON texts that look like events, or the lines of a file.

A tool that repeats one payload flatters compression; here a thousand different ones take turns.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Final

DISTINCT: Final = 1000


@cache
def json_values(size: int) -> list[bytes]:
    """`DISTINCT` JSON texts cut to ``size`` bytes; the same in every process and on every machine."""
    chance = random.Random(7)
    made = []
    for _ in range(DISTINCT):
        text = b""
        while len(text) < size:
            text += json.dumps(
                {
                    "id": chance.getrandbits(40),
                    "user": chance.randint(1, 10**6),
                    "type": chance.choice(["click", "view", "buy"]),
                    "page": f"/p/{chance.randint(1, 5000)}",
                    "amount": round(chance.random() * 500, 2),
                }
            ).encode()
        made.append(text[:size])
    return made


def file_values(path: str) -> list[bytes]:
    """The lines of a file that are not empty, without their ends. Raises `OSError`, or `ValueError` for no line."""
    lines = [line for line in Path(path).read_bytes().splitlines() if line]
    if not lines:
        raise ValueError(f"{path} has no line that is not empty")
    return lines
