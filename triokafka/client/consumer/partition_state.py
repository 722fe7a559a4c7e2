"""The state of one assigned partition. A plain object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition.

    ``position`` is the next offset to return. The user has finished all records below ``finished``, so auto-commit may
    commit it. Both are None until resolved. ``version`` changes with every jump of the position, to recognise stale
    data fetched before the jump. ``reset_to`` is set while the position must be looked up by timestamp. A partition
    with ``revoking`` is about to be revoked. ``fetched_epoch`` is the leader epoch of the newest buffered data, -1
    without any. ``position_epoch`` is the leader epoch of the record before the position, or came with the position. In
    the first case, no record before the position ``epoch_from`` has that epoch, and ``epoch_before`` was the epoch
    there. ``stop_at`` ends a bounded read: nothing is fetched from there on.
    """

    version: int
    position: int | None = None
    position_epoch: int = -1
    epoch_from: int | None = None
    epoch_before: int = -1
    fetched_epoch: int = -1
    finished: int | None = None
    paused: bool = False
    revoking: bool = False
    reset_to: int | None = None
    stop_at: int | None = None
    validating: bool = False
    validated_epoch: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1

    @property
    def fetchable(self) -> bool:
        """Whether records may be fetched."""
        return self.position is not None and not self.paused and not self.validating and not self.revoking
