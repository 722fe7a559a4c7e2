"""Measurements of a node of the quorum: elections, commits, appended and fetched records, idle time. Pure.

Averages, maxima and rates are over Kafka's window of two samples of 30 seconds. Times are seconds on the monotonic
clock.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.rates import Rate
from triokafka.metrics.stats import Avg, Max

_WINDOW: Final = MetricConfig()
_MAX_UNCOMMITTED: Final = 1_000
"""The most appends whose commit is timed at once. Without a majority the rest is not timed."""


class _Times:
    """The average and the maximum of durations in the window."""

    def __init__(self) -> None:
        self._average = Avg()
        self._most = Max()

    def record(self, seconds: float, now: float) -> None:
        for stat in (self._average, self._most):
            stat.update(_WINDOW, 1, seconds, seconds, seconds, now)

    def average(self, now: float) -> float:
        """Return the average; NaN without durations."""
        return self._average.measure(_WINDOW, now)

    def most(self, now: float) -> float:
        """Return the maximum; NaN without durations."""
        return self._most.measure(_WINDOW, now)


class _Sums:
    """A sum per second over the window."""

    def __init__(self) -> None:
        self._rate = Rate()

    def record(self, amount: float, now: float) -> None:
        self._rate.update(_WINDOW, 1, amount, amount, amount, now)

    def per_second(self, now: float) -> float:
        """Return the rate."""
        return self._rate.measure(_WINDOW, now)


class QuorumMetrics:
    """The measurements of one node.

    ``elections`` has the times from the start of an election to a known leader, ``commits`` those from an append by
    this leader to its commit. ``appended`` counts the records that this leader appended, ``fetched`` those that this
    follower received. ``busy`` is the time that the state machine needed.
    """

    def __init__(self) -> None:
        self.elections = _Times()
        self.commits = _Times()
        self.appended = _Sums()
        self.fetched = _Sums()
        self.busy = _Sums()
        self._election_began_at: float | None = None
        self._uncommitted: deque[tuple[int, float]] = deque()

    def election_began(self, now: float) -> None:
        """Record that the node asks for votes; an election that goes on keeps its start."""
        if self._election_began_at is None:
            self._election_began_at = now

    def leader_known(self, now: float) -> None:
        """Record that the node leads or follows; the election, if there was one, is over."""
        if self._election_began_at is not None:
            self.elections.record(now - self._election_began_at, now)
            self._election_began_at = None

    def appended_until(self, end_offset: int, records: int, now: float) -> None:
        """Record an append of this leader."""
        self.appended.record(records, now)
        if len(self._uncommitted) < _MAX_UNCOMMITTED:
            self._uncommitted.append((end_offset, now))

    def committed(self, high_watermark: int, now: float) -> None:
        """Record that everything before ``high_watermark`` is committed."""
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            _, appended_at = self._uncommitted.popleft()
            self.commits.record(now - appended_at, now)

    def left_leadership(self) -> None:
        """Forget the appends that are not committed: this node will not learn when they are."""
        self._uncommitted.clear()

    def idle_share(self, now: float) -> float:
        """Return the share of time, 0 to 1, in which the state machine had nothing to do."""
        return min(1.0, max(0.0, 1.0 - self.busy.per_second(now)))
