"""DeleteRecords on the leader: raising the log start offset, and waiting for the followers to do so."""

from __future__ import annotations

from dataclasses import dataclass

from triokafka import errors
from triokafka.broker_stub.replica.partition import Partition


@dataclass(slots=True)
class DeleteOutcome:
    """One partition's part of a DeleteRecords request: the offset to reach, and the result."""

    target: int = -1
    low_watermark: int = -1
    error_code: int = 0


def delete_records_before(partition: Partition, offset: int) -> int:
    """Raise the log start offset to ``offset`` (-1: the high watermark) and return the resulting offset.

    The records are deleted once `low_watermark` has reached it.

    Raises:
        PolicyViolationError: the topic's ``cleanup.policy`` does not include ``delete``.
        OffsetOutOfRangeError: ``offset`` is beyond the high watermark.
        NotLeaderForPartitionError: another broker leads.
    """
    partition.require_leader()
    log, high_watermark = partition.log, partition.high_watermark
    if not log.config.deletes:
        raise errors.PolicyViolationError(f"{partition.topic_partition}: cleanup.policy does not include delete")
    target = high_watermark if offset == -1 else offset
    if not 0 <= target <= high_watermark:
        raise errors.OffsetOutOfRangeError(
            f"{partition.topic_partition}: records up to {offset} cannot be deleted, the high watermark is "
            f"{high_watermark}"
        )
    if target > log.log_start_offset:
        log.advance_log_start_offset(target)
    return target


def low_watermark(partition: Partition) -> int:
    """Return the lowest log start offset of the replicas whose brokers are up: DeleteRecords waits for it."""
    lowest, registrations = partition.log.log_start_offset, partition.isr.registrations
    for replica, follower in partition.followers.items():
        if registrations is None or registrations.is_active(replica):
            lowest = min(lowest, follower.log_start_offset)
    return lowest


def deleted_everywhere(partition: Partition, outcome: DeleteOutcome) -> int | None:
    """Return 0 once the low watermark has reached the offset before which records were deleted; None before.

    After the time-out the records are deleted later all the same.
    """
    outcome.low_watermark = low_watermark(partition)
    return None if outcome.low_watermark < outcome.target else 0
