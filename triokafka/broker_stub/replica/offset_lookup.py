"""ListOffsets on the leader: the offset of a timestamp, and the first and last offsets, by special timestamps."""

from __future__ import annotations

from typing import Final

from triokafka import errors
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import OffsetAndTimestamp

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


def look_up_offset(
    partition: Partition, timestamp: int, *, read_committed: bool, follower: bool = False
) -> OffsetAndTimestamp | None:
    """Look up an offset by special timestamp (`EARLIEST`, …) or milliseconds; return None if there is none.

    Raises:
        OffsetNotAvailableError: the followers have not caught up with a new leader, so its high watermark may be
            too low, and the offset is not below it.
    """
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return OffsetAndTimestamp(log.log_start_offset, -1, log.leader_epochs.epoch_for_offset(log.log_start_offset))
    end, lags = log.log_end_offset, False
    if not follower:
        end = partition.last_stable_offset if read_committed else partition.high_watermark
        # An open transaction is no reason: the last stable offset may be far below the start of the epoch.
        lags = partition.high_watermark_lags
    found: tuple[int, int, int] | None = None
    if timestamp == LATEST:
        found = None if lags else (end, -1, partition.leader_epoch)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    elif timestamp == MAX_TIMESTAMP:
        found = None if lags else log.offset_of_max_timestamp(end)
    else:
        found = log.offset_for_timestamp(timestamp, end)
    if found is None and lags:
        raise errors.OffsetNotAvailableError(
            f"{partition.topic_partition}: the followers have not caught up with the new leader"
        )
    return None if found is None else OffsetAndTimestamp(*found)
