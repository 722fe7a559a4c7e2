"""The runtime's bookkeeping for one shard: its load state and held answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, Generic, TypeVar
from uuid import UUID

from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.runtime.shard import Shard

C = TypeVar("C")
S = TypeVar("S", bound=Shard[Any])


class ShardState(Enum):
    """The lifecycle of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True)
class Held(Generic[C]):
    """Effects whose answers wait until the high watermark reaches ``end``."""

    end: int
    deadline: float
    effects: Effects[C]


@dataclass(slots=True)
class ShardContext(Generic[S, C]):
    """A shard with its replay position (``end``) and the effects whose answers wait for the high watermark."""

    partition: int
    leader_epoch: int
    shard: S
    state: ShardState = ShardState.LOADING
    wanted_at: float = 0.0
    end: int = 0
    committed_below: int = 0
    """The highest high watermark that the runtime has seen."""
    held: deque[Held[C]] = field(default_factory=deque)
    appending: bool = False
    deleted_topics: dict[UUID, str] = field(default_factory=dict)
    """Topics that were deleted while the shard was loading."""
    failed_loads: int = 0
    retry_at: float = inf
    """When a failed load is tried again, in seconds on the monotonic clock."""
