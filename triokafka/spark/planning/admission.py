"""Admission control: how many of the available offsets one micro-batch takes, and when to wait for more. No I/O.

Rules and rounding are those of Spark's Kafka connector, so that a migrated query plans the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from triokafka.spark.planning.bounds import MAX_OFFSET, Offsets
from triokafka.structs import TopicPartition

UNSAMPLED_OFFSETS: Final = 100
"""Offsets that a batch limited in bytes takes from a partition whose record sizes are unknown."""


def backlog(start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Return the number of unread offsets per partition, for partitions with a known start and a backlog."""
    return {one: end - start[one] for one, end in latest.items() if one in start and end > start[one]}


def prorate(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about ``limit`` offsets, shared out in proportion to each partition's backlog.

    A share below one is rounded up, so that no partition starves, others down; so a batch may exceed the limit by less
    than the number of partitions. A partition with an unknown start is taken whole. One whose end lies before its start
    is unchanged; the plan's checks report it.
    """
    sizes = backlog(start, latest)
    # In floats and in this order, like the connector: of 100 offsets under a limit of 100, 29 become 28. Integer
    # arithmetic would plan other batches from the same checkpoint.
    total = float(sum(sizes.values()))
    ends = dict(latest)
    for one, size in sizes.items():
        exact = limit * (size / total)
        share = math.ceil(exact) if exact < 1 else math.floor(exact)
        ends[one] = min(latest[one], start[one] + share, MAX_OFFSET)
    return ends


def limit_bytes(
    start: Offsets,
    ends: Offsets,
    bytes_per_offset: Mapping[TopicPartition, float],
    *,
    total: int | None = None,
    each: int | None = None,
) -> dict[TopicPartition, int]:
    """Reduce ``ends`` until a batch has about ``total`` bytes, and each partition at most about ``each``.

    ``bytes_per_offset`` are samples. A partition without a sample gets `UNSAMPLED_OFFSETS`, so that the limit holds
    even when sampling failed. A partition without a backlog or without bytes is unchanged. Each partition takes at
    least one offset, whatever its size.
    """
    sizes = backlog(start, ends)
    weights = {one: size * bytes_per_offset[one] for one, size in sizes.items() if bytes_per_offset.get(one, 0) > 0}
    weight = sum(weights.values())
    drawn = dict(ends)
    for one in sizes.keys() - bytes_per_offset.keys():
        drawn[one] = start[one] + min(sizes[one], UNSAMPLED_OFFSETS)
    for one, bytes_there in weights.items():
        allowed = bytes_there if total is None else bytes_there * min(1.0, total / weight)
        if each is not None:
            allowed = min(allowed, each)
        drawn[one] = start[one] + min(sizes[one], max(1, math.floor(allowed / bytes_per_offset[one] + 1e-9)))
    return drawn


@dataclass(kw_only=True, eq=False)
class Admission:
    """Decides the end of each micro-batch. Times are milliseconds on the caller's clock.

    Args:
        max_offsets: the maximum number of offsets per batch, shared out by `prorate`; None for no limit.
        min_offsets: a smaller backlog waits for more offsets; None starts a batch as soon as there is any.
        max_delay_ms: the maximum time that a backlog waits.
        max_bytes, max_partition_bytes: approximate limits in bytes per batch, and per partition of a batch.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: float = 15 * 60_000
    max_bytes: int | None = None
    max_partition_bytes: int | None = None
    # None until the first batch, which never waits.
    _last_batch_ms: float | None = field(default=None, init=False)

    @property
    def limits_bytes(self) -> bool:
        """Whether `admit` needs samples of the bytes per offset."""
        return self.max_bytes is not None or self.max_partition_bytes is not None

    def admit(
        self,
        start: Offsets,
        latest: Offsets,
        *,
        now_ms: float,
        bytes_per_offset: Mapping[TopicPartition, float] | None = None,
    ) -> dict[TopicPartition, int]:
        """Return the end of the next batch, or ``start`` if no batch is due."""
        if self._waits(start, latest, now_ms):
            return dict(start)
        ends = dict(latest) if self.max_offsets is None else prorate(start, latest, self.max_offsets)
        if self.limits_bytes:
            ends = limit_bytes(start, ends, bytes_per_offset or {}, total=self.max_bytes, each=self.max_partition_bytes)
        return ends

    def note_batch(self, now_ms: float) -> None:
        """Record a batch that was planned without `admit`; the delay of the next batch counts from it."""
        self._last_batch_ms = now_ms

    def _waits(self, start: Offsets, latest: Offsets, now_ms: float) -> bool:
        if self.min_offsets is None:
            return False
        due = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self.max_delay_ms
        # A new partition counts from offset 0.
        if not due and sum(end - start.get(one, 0) for one, end in latest.items()) < self.min_offsets:
            return True
        self._last_batch_ms = now_ms
        return False
