"""A DeleteRecords request waits until every replica has deleted the records."""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.broker_stub.replica.partition import Partition


@dataclass(slots=True)
class DeleteOutcome:
    """One partition's part of a DeleteRecords request: the offset to reach, and the result."""

    target: int = -1
    low_watermark: int = -1
    error_code: int = 0


def deleted_everywhere(partition: Partition, outcome: DeleteOutcome) -> int | None:
    """Return 0 once the low watermark has reached the offset before which records were deleted; None before.

    After the time-out the records are deleted later all the same.
    """
    outcome.low_watermark = partition.low_watermark()
    return None if outcome.low_watermark < outcome.target else 0
