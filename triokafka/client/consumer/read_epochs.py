"""Leader epochs of the records that were read, to be compared with the logs of later leaders (KIP-320). Pure."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.structs import OffsetAndMetadata


class ReadEpochs(NamedTuple):
    """The leader epoch of the last record before a position, -1 if unknown.

    No record before the offset ``since`` has that epoch, and ``before`` is the epoch there. ``since`` is None if it was
    not seen where the epoch began.
    """

    last: int = -1
    since: int | None = None
    before: int = -1

    def same_until(self, epoch: int, end_offset: int) -> OffsetAndMetadata | None:
        """Return the offset up to which a leader's log is known to equal the records that were read, and the epoch
        there; None if that is unknown.

        If the offset is below the position, the log was truncated, and the epoch has to be compared in turn.

        Args:
            epoch: the newest in the leader's log that is not newer than ``last``, -1 without one.
            end_offset: the end of that epoch.
        """
        if epoch < 0 or end_offset < 0:
            return None
        if epoch < self.last and self.since is not None and self.since < end_offset:
            # The whole epoch of the last record was truncated. The leader's records in its place may well reach the
            # position. (An epoch that came with the position need not have had a record.)
            return OffsetAndMetadata(self.since, "", min(epoch, self.before))
        return OffsetAndMetadata(end_offset, "", epoch)
