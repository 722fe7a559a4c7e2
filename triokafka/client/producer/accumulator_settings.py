"""The user's options about batches, in the units of the accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from triokafka.backoff import Backoff
from triokafka.structs import Buffer

if TYPE_CHECKING:
    from triokafka.client.config import ProducerOptions

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

    @classmethod
    def of(cls, options: ProducerOptions) -> Self:
        """Return the settings of a producer with these options."""
        return cls(
            batch_size=options.batch_size,
            linger=options.linger_ms / 1000,
            delivery_timeout=options.delivery_timeout_ms / 1000,
            retry_backoff=Backoff(options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000),
            compression_type=options.compression_type,
            compression_level=options.compression_level,
            max_request_size=options.max_request_size,
            one_in_flight=options.max_in_flight_requests_per_connection == 1,
            idempotent=options.idempotent,
            transactional=options.transactional_id is not None,
            adaptive_partitioning=options.partitioner_adaptive_partitioning_enable,
            availability_timeout=options.partitioner_availability_timeout_ms / 1000,
        )

    @staticmethod
    def record_bound(key: Buffer | None, value: Buffer | None, headers: Sequence[tuple[str, Buffer | None]]) -> int:
        """Return the most bytes that a record can take in a batch, before compression."""
        size = _RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, content in headers:
            size += 10 + 3 * len(name) + (len(content) if content is not None else 0)
        return size
