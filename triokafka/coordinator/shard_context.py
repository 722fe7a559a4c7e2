"""What the runtime keeps of one shard: how far it is, what it holds back, what it is to do once it is loaded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from triokafka.coordinator.log import Shard
from triokafka.coordinator.turn import Turn

C = TypeVar("C")
S = TypeVar("S", bound=Shard[Any])


class ShardState(Enum):
    """Where a shard is between log and service."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(slots=True)
class Held(Generic[C]):
    """A turn whose outcome waits for the high watermark to reach ``end``."""

    end: int
    deadline: float
    turn: Turn[C]


@dataclass(slots=True)
class ShardContext(Generic[S, C]):
    """A shard between log and service: how far its log is replayed, and what is held until that is committed."""

    partition: int
    leader_epoch: int
    shard: S
    state: ShardState = ShardState.LOADING
    wanted_at: float = 0.0
    end: int = 0
    held: deque[Held[C]] = field(default_factory=deque)
    appending: bool = False
    once_loaded: list[Callable[[S, Turn[C]], None]] = field(default_factory=list)
