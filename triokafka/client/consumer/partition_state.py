"""The state of one assigned partition. A plain object."""

from __future__ import annotations


class PartitionState:
    """One assigned partition.

    ``position`` is the next offset to hand out. The user has finished all records below ``finished``, so auto-commit
    may commit it. Both are None until resolved. ``version`` changes with every jump of the position, so that data asked
    for before the jump is known to be stale. ``reset_to`` is set while the position must be looked up by timestamp.
    ``going`` says that it is about to be given up. ``fetched_epoch`` is the leader epoch of the data in the buffer that
    came last, -1 without any. ``position_epoch`` is the leader epoch of the record before the position, or came with
    the position. In the first case, no record before the position ``epoch_from`` has that epoch, and ``epoch_before``
    was the epoch there. ``stop_at`` ends a bounded read: nothing is fetched from there on.
    """

    __slots__ = (
        "epoch_before",
        "epoch_from",
        "fetched_epoch",
        "finished",
        "going",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "paused",
        "position",
        "position_epoch",
        "reset_to",
        "stop_at",
        "validated_epoch",
        "validating",
        "version",
    )

    def __init__(self, version: int) -> None:
        self.position: int | None = None
        self.position_epoch = -1
        self.epoch_from: int | None = None
        self.epoch_before = -1
        self.fetched_epoch = -1
        self.finished: int | None = None
        self.paused = False
        self.going = False
        self.reset_to: int | None = None
        self.stop_at: int | None = None
        self.version = version
        self.validating = False
        self.validated_epoch = -1
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    @property
    def fetchable(self) -> bool:
        """Whether records may be asked for."""
        return self.position is not None and not self.paused and not self.validating and not self.going
