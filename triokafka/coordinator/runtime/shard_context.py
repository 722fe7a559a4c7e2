"""The runtime's bookkeeping for one shard: its load state, held answers, and operations to run after loading."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

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
    held: deque[Held[C]] = field(default_factory=deque)
    appending: bool = False
    once_loaded: list[Callable[[S, Effects[C]], None]] = field(default_factory=list)
