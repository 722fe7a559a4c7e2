"""The user's options about batches, in the units of the accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from triokafka.backoff import Backoff
from triokafka.structs import Buffer

BATCH_HEADER: Final = 61
_RECORD_OVERHEAD: Final = 36  # the most that lengths, deltas and attributes of a record without headers take


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

    @staticmethod
    def record_bound(key: Buffer | None, value: Buffer | None, headers: Sequence[tuple[str, Buffer | None]]) -> int:
        """Return the most bytes that a record can take in a batch, before compression."""
        size = _RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, content in headers:
            size += 10 + 3 * len(name) + (len(content) if content is not None else 0)
        return size
