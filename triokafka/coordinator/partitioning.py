"""Which partition of a coordinator's topic keeps a group: the hash that every Kafka broker and tool agrees on."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MIN_INT: Final = -(2**31)
_REMEMBERED: Final = 1_000
_LONGEST_REMEMBERED: Final = 256  # characters: what is longer is not worth the memory


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 code units, in signed 32-bit arithmetic."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


_remembered_hash = lru_cache(_REMEMBERED)(java_string_hash)
"""Every request of a group asks for it: members ask for the same few again and again."""


def coordinator_partition(key: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` (or ``__transaction_state``) that keeps ``key``.

    The absolute value of Java's hash modulo the number of partitions. The smallest integer has no absolute value and
    counts as zero, which is not what masking the sign bit would give.
    """
    value = _remembered_hash(key) if len(key) <= _LONGEST_REMEMBERED else java_string_hash(key)
    return (0 if value == _MIN_INT else abs(value)) % partitions
