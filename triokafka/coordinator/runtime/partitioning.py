"""The mapping from a group (or transactional id) to a partition of the coordinator's topic, as in Kafka."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MIN_INT: Final = -(2**31)
_REMEMBERED: Final = 1_000
_LONGEST_REMEMBERED: Final = 256  # characters; caching longer keys is not worth the memory


def java_string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, in signed 32-bit arithmetic."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


_remembered_hash = lru_cache(_REMEMBERED)(java_string_hash)
"""The cached hash: every request of a group computes it, for the same few keys."""


def coordinator_partition(key: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` (or ``__transaction_state``) that stores ``key``.

    It is the absolute value of Java's string hash modulo the number of partitions. As in Kafka, ``Integer.MIN_VALUE``
    counts as zero; masking the sign bit would give another result.
    """
    value = _remembered_hash(key) if len(key) <= _LONGEST_REMEMBERED else java_string_hash(key)
    return (0 if value == _MIN_INT else abs(value)) % partitions
