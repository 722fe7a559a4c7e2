"""How much of what is there one micro-batch takes: the shares of partitions, and when to wait for more. No I/O.

The rules and their rounding are the connector's, so that a query that moves here makes the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from triokafka.spark.offsets import MAX_OFFSET, Offsets
from triokafka.structs import TopicPartition

UNSAMPLED_OFFSETS: Final = 100
"""What a batch that is limited in bytes takes of a partition of which it is not known how large its records are."""


def backlog(start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """How many offsets there are between the two, for partitions that have any and whose start is known."""
    return {one: end - start[one] for one, end in latest.items() if one in start and end > start[one]}


def prorate(start: Offsets, latest: Offsets, limit: int) -> dict[TopicPartition, int]:
    """The ends of a batch of about ``limit`` offsets, shared out in proportion to what each partition has.

    A share below one is rounded up, so that no partition starves, others down; so a batch may exceed the limit by less
    than the number of partitions. A partition whose start is not known is taken whole, and one that lies before its
    start is left as it is: the checks of the plan speak of them.
    """
    sizes = backlog(start, latest)
    # In floats and in this order, as the connector reckons: 29 of a hundred offsets are 28 under a limit of a hundred,
    # and whole numbers would make other batches than it makes from the same checkpoint.
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
    """Draw ``ends`` in until a batch has about ``total`` bytes, and each partition at most about ``each``.

    ``bytes_per_offset`` are samples; of a partition without one `UNSAMPLED_OFFSETS` are taken, so that bytes limit a
    batch also where nothing could be looked at. One that is not behind, or has no bytes, stays as it is. At least one
    offset of each partition is taken, whatever its size.
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


class Admission:
    """Decides on the end of each micro-batch. Times are milliseconds on whatever clock the caller has.

    Args:
        max_offsets: most offsets of one batch, shared out by `prorate`; None for all there are.
        min_offsets: fewer than that wait for more; None for batches as soon as there is anything.
        max_delay_ms: how long they wait at most.
        max_bytes, max_partition_bytes: about how many bytes a batch, or a partition of a batch, may have.
    """

    def __init__(
        self,
        *,
        max_offsets: int | None = None,
        min_offsets: int | None = None,
        max_delay_ms: float = 15 * 60_000,
        max_bytes: int | None = None,
        max_partition_bytes: int | None = None,
    ) -> None:
        self.max_offsets = max_offsets
        self.min_offsets = min_offsets
        self.max_delay_ms = max_delay_ms
        self.max_bytes = max_bytes
        self.max_partition_bytes = max_partition_bytes
        # None until the first batch, which always runs.
        self._last_batch_ms: float | None = None

    @property
    def limits_bytes(self) -> bool:
        """Whether `admit` wants samples of the bytes per offset."""
        return self.max_bytes is not None or self.max_partition_bytes is not None

    def admit(
        self,
        start: Offsets,
        latest: Offsets,
        *,
        now_ms: float,
        bytes_per_offset: Mapping[TopicPartition, float] | None = None,
    ) -> dict[TopicPartition, int]:
        """The end of the next batch; ``start`` itself when it is not time for one."""
        if self._waits(start, latest, now_ms):
            return dict(start)
        ends = dict(latest) if self.max_offsets is None else prorate(start, latest, self.max_offsets)
        if self.limits_bytes:
            ends = limit_bytes(start, ends, bytes_per_offset or {}, total=self.max_bytes, each=self.max_partition_bytes)
        return ends

    def note_batch(self, now_ms: float) -> None:
        """A batch was made without being asked for here: the next one waits for enough, as after any other."""
        self._last_batch_ms = now_ms

    def _waits(self, start: Offsets, latest: Offsets, now_ms: float) -> bool:
        if self.min_offsets is None:
            return False
        due = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self.max_delay_ms
        # A new partition counts from its beginning.
        if not due and sum(end - start.get(one, 0) for one, end in latest.items()) < self.min_offsets:
            return True
        self._last_batch_ms = now_ms
        return False
