"""A Produce request waits for replicas, or for a flush of the leader's log."""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.replica.append_outcome import AppendOutcome
from triokafka.broker_stub.replica.partition import Partition


def committed(partition: Partition, outcome: AppendOutcome) -> int | None:
    """With acks=all: return the error code once the high watermark has passed the records; None before."""
    if partition.high_watermark < outcome.required_offset:
        return None
    # The records may be committed, but on fewer replicas than the topic requires.
    return 0 if partition.enough_replicas else errors.NotEnoughReplicasAfterAppendError.code


def flushed(partition: Partition, outcome: AppendOutcome) -> int | None:
    """With acks=1: return 0 once the leader has flushed the records (``flush.messages``); None before."""
    return None if partition.log.settled_offset < outcome.required_offset else 0
