"""The result of reading one partition for a fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triokafka.named_tuple import NamedTuple
from triokafka.structs import Buffer
from triokafka.world import FileSlice


class EpochEnd(NamedTuple):
    """The end of a leader epoch: where a replica's log starts to differ from the leader's (KIP-595)."""

    epoch: int
    end_offset: int


class LeaderHint(NamedTuple):
    """The leader of a partition, for a client that sent a request to the wrong broker or with an old epoch
    (KIP-951).
    """

    leader_id: int
    leader_epoch: int


@dataclass(slots=True)
class ReadOutcome:
    """One partition's part of a fetch: offsets taken before the read, and the stored batches.

    With an error, offsets are -1 and there are no records. ``aborted`` has producer id and first offset of every
    aborted transaction that may have records in ``records``, for read_committed consumers.
    ``preferred_read_replica`` is the broker that the consumer should read from instead (KIP-392).
    """

    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | FileSlice = b""
    diverging_epoch: EpochEnd | None = None
    leader_hint: LeaderHint | None = None
    aborted: Sequence[tuple[int, int]] = ()
    preferred_read_replica: int = -1
