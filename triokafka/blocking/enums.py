"""Enumerations of kafka-python. They accept a member, its value, or its name in any spelling."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Self


class EnumHelper:
    """Conversion of members, values and names."""

    @classmethod
    def build_from(cls, val: Any) -> Self:
        """Return the member for a member, value or name. Raises `ValueError`."""
        if isinstance(val, cls):
            return val
        try:
            return cls(val)  # type: ignore[call-arg]
        except ValueError:
            pass
        try:
            return cls[str(val).strip().upper().replace("-", "_")]  # type: ignore[index,no-any-return]
        except KeyError:
            raise ValueError(f"Unrecognized {cls.__name__}: {val}") from None

    @classmethod
    def value_for(cls, val: Any) -> Any:
        """Return the value of that member. Raises `ValueError`."""
        return cls.build_from(val).value  # type: ignore[attr-defined]


class IsolationLevel(EnumHelper, IntEnum):
    """Whether a consumer reads records of transactions that have not ended."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(EnumHelper, IntEnum):
    """Special timestamps for offset lookups."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetTimestamp(int):
    """A time in milliseconds, in a place where a number alone would be an offset."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"
