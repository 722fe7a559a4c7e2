"""Counts of the error codes in a response, at every level of its declaration: top, topic, partition and group."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from triokafka.protocol.declaration import Struct

Counter = Callable[[Any, dict[int, int]], None]


@cache
def error_counter(response_type: type[Struct]) -> Counter | None:
    """Return a function that counts a response's error codes, 0 included; None for a response without error codes."""
    parts: list[Counter] = []
    for field in response_type.__fields__:
        if field.name == "error_code":
            parts.append(_count_own)
            continue
        below = error_counter(field.struct) if field.struct is not None else None
        if below is None:
            continue
        if not field.is_array:
            parts.append(_within(field.name, below))
        elif below is _count_own:
            parts.append(_own_of_each(field.name))
        else:
            parts.append(_within_each(field.name, below))
    if len(parts) <= 1:
        return parts[0] if parts else None

    def count(struct: Any, counts: dict[int, int]) -> None:
        for part in parts:
            part(struct, counts)

    return count


def _count_own(struct: Any, counts: dict[int, int]) -> None:
    code = struct.error_code
    counts[code] = counts.get(code, 0) + 1


def _within(name: str, below: Counter) -> Counter:
    def count(struct: Any, counts: dict[int, int]) -> None:
        inner = getattr(struct, name)
        if inner is not None:
            below(inner, counts)

    return count


def _own_of_each(name: str) -> Counter:
    def count(struct: Any, counts: dict[int, int]) -> None:
        for item in getattr(struct, name) or ():
            code = item.error_code
            counts[code] = counts.get(code, 0) + 1

    return count


def _within_each(name: str, below: Counter) -> Counter:
    def count(struct: Any, counts: dict[int, int]) -> None:
        for item in getattr(struct, name) or ():
            below(item, counts)

    return count
