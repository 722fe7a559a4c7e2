"""A type of coordinator: everything that the runtime must know to host it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.runtime.partitioning import coordinator_partition
from triokafka.coordinator.runtime.shard import Shard
from triokafka.coordinator.runtime.timer_queue import TimerKey

S = TypeVar("S", bound=Shard[Any])


class CommitLevel(IntEnum):
    """When a record counts as committed, by the numbers of ``acks``."""

    ALL = -1
    """Once the high watermark has passed it."""
    LEADER = 1
    """When this broker, the leader, has appended the record. The next leader may not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorType(Generic[S]):
    """A type of coordinator, such as the group coordinator, as a broker has configured it."""

    name: str
    """The name in log lines."""
    topic: str
    """The internal topic that stores the state. The leader of a partition coordinates the keys in it."""
    new_shard: Callable[[int, int], S]
    """Returns an empty shard for a partition, in the leader epoch of this broker. It then loads by replaying the
    partition's log."""
    timer_fired: Callable[[S, TimerKey, Effects[Any]], None]
    """Handles an expired deadline of a shard."""
    expire: Callable[[S, Effects[Any]], float | None]
    """Removes state whose retention has passed, in an append of bounded size.

    Returns the seconds until the next call if there is more to do, and None to wait for the regular interval. After a
    failed append, the next call comes at the regular interval."""
    topics_deleted: Callable[[S, Mapping[UUID, str], Effects[Any]], None]
    """Removes the state of deleted topics, given by id and name."""
    commit_level: CommitLevel = CommitLevel.ALL
    commit_timeout_ms: int
    """How long an answer waits for its records to be committed. Afterwards the request fails with
    `RequestTimedOutError`, and the records may still be committed later."""
    expiry_interval_ms: int | None = None
    """Time between two calls of ``expire``; None when stored state does not expire."""
    partition_of: Callable[[str, int], int] = coordinator_partition
    """Maps a key and the number of partitions to the partition that stores the key."""
