"""The last stable offset of a log: read_committed consumers and compaction stop there."""

from __future__ import annotations

from triokafka.broker_stub.log.log_state import LogState


def last_stable_offset(state: LogState, high_watermark: int) -> int:
    """Return the high watermark, or the first offset of a transaction that is open or whose marker is not committed, if
    that is lower.
    """
    producers = state.producers
    if producers.all_decided:
        return high_watermark
    producers.committed(high_watermark)
    first = producers.first_unstable_offset
    # Deleted records of a transaction are before the log start offset, where reads fail.
    return high_watermark if first is None else min(max(first, state.log_start_offset), high_watermark)
