"""Comparing a follower's log with the leader's: where they diverge, and when only a snapshot helps."""

from __future__ import annotations

from triokafka.broker_stub.raft.raft_log_interface import OffsetAndEpoch, RaftLog, SnapshotId
from triokafka.named_tuple import NamedTuple


class LogComparison(NamedTuple):
    """The result: neither field is set if the follower's log is a prefix of the leader's."""

    diverging: OffsetAndEpoch | None = None
    snapshot: SnapshotId | None = None


def compare(log: RaftLog, offset: int, epoch: int) -> LogComparison:
    """Compare the leader's log with one that ends at ``offset`` with a record of ``epoch``.

    A diverging follower gets the largest epoch that both may have, and the end of that epoch in the leader's log.
    """
    latest = log.latest_snapshot_id()
    if offset == 0 and latest is not None and latest.end_offset > 0:
        return LogComparison(snapshot=latest)
    if offset == 0 and log.start_offset == 0:
        return LogComparison()
    earliest = log.earliest_snapshot_id()
    if (
        earliest is not None
        and latest is not None
        and log.start_offset > 0
        and (
            offset < log.start_offset
            or (offset == log.start_offset and epoch != earliest.epoch)
            or epoch < earliest.epoch
        )
    ):
        return LogComparison(snapshot=latest)
    end = log.end_offset_for_epoch(epoch)
    if end.epoch != epoch or end.offset < offset:
        return LogComparison(diverging=end)
    return LogComparison()


def truncation_offset(log: RaftLog, diverging: OffsetAndEpoch) -> int:
    """Return where a follower truncates after a diverging answer: the end of the last epoch that both logs share."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    own = log.end_offset_for_epoch(diverging.epoch)
    return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
