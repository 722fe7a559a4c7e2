"""The bounds of a read, and offsets by partition. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from triokafka.structs import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
MAX_OFFSET: Final = 2**63 - 1

Offsets = Mapping[TopicPartition, int]
"""The next offset to read, by partition."""


@dataclass(frozen=True, slots=True)
class Everywhere:
    """The beginning (`EARLIEST`) or the end (`LATEST`) of every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset by partition; `EARLIEST` and `LATEST` are allowed."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after ``timestamp_ms`` in every partition.

    ``otherwise_latest`` applies to a start without such a record: True means the end of the partition, False an error.
    An end without such a record is always the end of the partition.
    """

    timestamp_ms: int
    otherwise_latest: bool = False


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a timestamp by partition; see `AtTimestamp`."""

    timestamps_ms: Offsets
    otherwise_latest: bool = False


@dataclass(frozen=True, slots=True)
class AtGroup:
    """The committed offsets of a consumer group, in every partition."""

    group_id: str


Bound = Everywhere | AtOffsets | AtTimestamp | AtTimestamps | AtGroup
"""One bound of a read: its start or its end."""


def names(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for a message: ``orders-0, orders-1``."""
    return ", ".join(str(partition) for partition in sorted(partitions))
