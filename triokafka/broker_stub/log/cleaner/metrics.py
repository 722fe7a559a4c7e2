"""What the cleaner tells about itself. Names in Kafka are the properties' with hyphens."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.cleaner.cleaner_pass import CleaningStats


class Uncleanable(NamedTuple):
    """A log that is left alone because it could not be cleaned."""

    topic_partition: TopicPartition
    directory: str
    size: int
    reason: str


class _Pass(NamedTuple):
    seconds: float
    stats: CleaningStats


class CleanerMetrics:
    """Figures of the last passes, one per thread, and of the last look at the logs.

    ``max_dirty_ratio`` and ``max_compaction_delay_ms`` are of the log that needs cleaning most: the share of it that is
    dirty, and for how long something in it is older than ``max.compaction.lag.ms``. ``passes`` counts since the start.
    """

    def __init__(self, world: World) -> None:
        self.max_dirty_ratio = 0.0
        self.max_compaction_delay_ms = 0
        self.passes = 0
        self._world = world
        self._last: deque[_Pass] = deque(maxlen=1)
        self._last_at = world.now()

    def cleaned(self, stats: CleaningStats, *, seconds: float, threads: int) -> None:
        """A pass is through."""
        if self._last.maxlen != max(threads, 1):
            self._last = deque(self._last, maxlen=max(threads, 1))
        self._last.append(_Pass(seconds, stats))
        self._last_at = self._world.now()
        self.passes += 1

    @property
    def max_dirty_percent(self) -> int:
        """How dirty the dirtiest log is."""
        return int(100 * self.max_dirty_ratio)

    @property
    def cleaner_recopy_percent(self) -> int:
        """How much of what the last passes read they wrote again."""
        read = sum(entry.stats.bytes_read for entry in self._last)
        return int(100 * sum(entry.stats.bytes_written for entry in self._last) / read) if read else 0

    @property
    def max_buffer_utilization_percent(self) -> int:
        """How full the memory for keys was."""
        return int(100 * max((entry.stats.map_utilization for entry in self._last), default=0.0))

    @property
    def max_clean_time_secs(self) -> int:
        """How long the longest of the last passes took."""
        return int(max((entry.seconds for entry in self._last), default=0.0))

    @property
    def time_since_last_run_ms(self) -> int:
        """Since the last pass, or the start."""
        return int(1000 * (self._world.now() - self._last_at))
