"""The user's options about batches, in the units of the accumulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from triokafka.backoff import Backoff

BATCH_HEADER: Final = 61


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """The accumulator's settings. Times are seconds.

    A node that takes no batches for longer than ``availability_timeout`` counts as slow; 0 is no limit.
    ``batch_limit`` is the most bytes of a finished batch; only a single large record makes one larger.
    """

    batch_size: int
    linger: float
    delivery_timeout: float
    retry_backoff: Backoff
    compression_type: str = "none"
    compression_level: int | None = None
    max_request_size: int = 1_048_576
    one_in_flight: bool = False
    idempotent: bool = False
    transactional: bool = False
    adaptive_partitioning: bool = True
    availability_timeout: float = 0.0
    batch_limit: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_limit", max(min(self.batch_size, self.max_request_size), BATCH_HEADER + 1))
