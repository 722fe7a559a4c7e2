"""When a flow writes an offset sync, by MirrorMaker 2's rule (``offset.lag.max``). Pure."""

from __future__ import annotations


class OffsetSyncRule:
    """Decides for one partition. A sync is due for the first record, after a gap in the source or a step back in the
    target, and every ``max_lag`` records."""

    def __init__(self, max_lag: int) -> None:
        self._max_lag = max_lag
        self._synced = -1
        self._upstream = -1
        self._downstream = -1

    def is_due(self, first: tuple[int, int], last: tuple[int, int]) -> bool:
        """Whether a sync is due for ``last``, after the records ``first`` to ``last`` were mirrored in one run.

        Each is the source offset and the target offset of a record.
        """
        due = (
            self._synced < 0
            or last[1] - (self._synced + 1) >= self._max_lag
            or first[0] - self._upstream != 1
            or first[1] < self._downstream
        )
        self._upstream, self._downstream = last
        if due:
            self._synced = last[1]
        return due
