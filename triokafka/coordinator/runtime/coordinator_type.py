"""A type of coordinator: everything that the runtime and the broker must know to host it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from triokafka.coordinator.runtime.partitioning import coordinator_partition
from triokafka.coordinator.runtime.shard import Shard

S = TypeVar("S", bound=Shard[Any])


class KeyType(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class CommitLevel(IntEnum):
    """When a record counts as committed, by the numbers of ``acks``."""

    ALL = -1
    """Once the high watermark has passed it."""
    LEADER = 1
    """Once this broker, the leader, has appended it. A new leader may not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorType(Generic[S]):
    """A type of coordinator, such as the group coordinator.

    The shard of a partition loads by decoding and replaying the partition's log; see `Shard`.
    """

    name: str
    """The name in log lines."""
    topic: str
    """The internal topic whose leaders are the coordinators."""
    key_type: int
    """The key type in FindCoordinator."""
    new_shard: Callable[[int], S]
    """Returns an empty shard for a partition."""
    partition_of: Callable[[str, int], int] = coordinator_partition
    """Maps a key and the number of partitions to the partition that stores the key."""
    commit_timeout_ms: int
    """How long an answer waits for its records to be committed. Afterwards the request fails with
    `RequestTimedOutError`, and the records may still be committed later."""
    commit_level: CommitLevel = CommitLevel.ALL
    expiry_interval_ms: int | None = None
    """Time between two calls of `Shard.expire`; None when stored state does not expire."""
