"""Metrics of the log cleaner. Kafka's metric names are the property names with hyphens."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.cleaner.cleaner_pass import CleaningStats


class Uncleanable(NamedTuple):
    """A log that the cleaner skips because it cannot be cleaned."""

    topic_partition: TopicPartition
    directory: str
    size: int
    reason: str


class _Pass(NamedTuple):
    seconds: float
    stats: CleaningStats


class CleanerMetrics:
    """Metrics of the last pass of each thread, and of the last selection of a log.

    ``max_dirty_ratio`` is the dirty share of the log that most needs cleaning. ``max_compaction_delay_ms`` is the time
    since its oldest dirty record exceeded ``max.compaction.lag.ms``. ``passes`` counts since the start of the broker.
    """

    def __init__(self, world: World) -> None:
        self.max_dirty_ratio = 0.0
        self.max_compaction_delay_ms = 0
        self.passes = 0
        self._world = world
        self._last: deque[_Pass] = deque(maxlen=1)
        self._last_at = world.now()

    def cleaned(self, stats: CleaningStats, *, seconds: float, threads: int) -> None:
        """Record a finished pass."""
        if self._last.maxlen != max(threads, 1):
            self._last = deque(self._last, maxlen=max(threads, 1))
        self._last.append(_Pass(seconds, stats))
        self._last_at = self._world.now()
        self.passes += 1

    @property
    def max_dirty_percent(self) -> int:
        """The highest dirty ratio of any log, in percent."""
        return int(100 * self.max_dirty_ratio)

    @property
    def cleaner_recopy_percent(self) -> int:
        """The share of the bytes read in the last passes that was written again, in percent."""
        read = sum(entry.stats.bytes_read for entry in self._last)
        return int(100 * sum(entry.stats.bytes_written for entry in self._last) / read) if read else 0

    @property
    def max_buffer_utilization_percent(self) -> int:
        """The highest utilization of the offset map, in percent."""
        return int(100 * max((entry.stats.map_utilization for entry in self._last), default=0.0))

    @property
    def max_clean_time_secs(self) -> int:
        """The duration of the longest of the last passes, in seconds."""
        return int(max((entry.seconds for entry in self._last), default=0.0))

    @property
    def time_since_last_run_ms(self) -> int:
        """Milliseconds since the last pass, or since the start of the broker."""
        return int(1000 * (self._world.now() - self._last_at))
