"""The cleaner of a broker: selects the log that most needs cleaning, runs passes over it, and writes the checkpoints.

Worker threads do the work in small steps, so that the event loop stays responsive. Only the event loop changes a log,
when a new segment is complete. The cleaner skips a log that it cannot clean, and continues with the others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.log.cleaner.cleanable_range import CleanableRange, cleanable_range
from triokafka.broker_stub.log.cleaner.metrics import CleanerMetrics, Uncleanable
from triokafka.broker_stub.log.io_throttle import Throttle
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import IllegalStateError, KafkaError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.cleaner.cleaner_pass import CleanerLimits, CleaningStats, Replacement

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 60  # a full or failing disk may have recovered by then
_SHORTEST_REST_SECONDS: Final = 0.01
_SALT_BYTES: Final = 16


class CleanerConfig(NamedTuple):
    """The ``log.cleaner.…`` configuration with Kafka's defaults; memory is the total of all threads."""

    threads: int = 1
    backoff_ms: int = 15_000
    dedupe_buffer_size: int = 134_217_728
    io_buffer_size: int = 524_288
    io_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float = float("inf")

    @property
    def limits(self) -> CleanerLimits:
        """The limits of one pass."""
        from triokafka.broker_stub.log.cleaner.cleaner_pass import CleanerLimits

        threads = max(1, self.threads)
        return CleanerLimits(
            map_bytes=self.dedupe_buffer_size // threads,
            load_factor=self.io_buffer_load_factor,
            step_bytes=max(1, self.io_buffer_size // threads // 2),
        )


class _Candidate(NamedTuple):
    topic_partition: TopicPartition
    log: PartitionLog
    range: CleanableRange


class _StoppedError(Exception):
    """A pass was aborted."""


class LogCleaner:
    """Cleans the logs of ``logs`` while `run` is running.

    ``config`` may be replaced at any time; the next step uses it.

    The cleaner cleans committed records only: it skips a log whose partition has no high watermark.
    """

    def __init__(self, world: World, logs: LogManager, config: CleanerConfig | None = None) -> None:
        self.config = config or CleanerConfig()
        self.metrics = CleanerMetrics(world)
        self._world = world
        self._logs = logs
        self._progress = logs.cleaning
        self._states = logs.cleaning.states
        self._throttle = Throttle()
        self._wake = trio.Event()

    # -- requests

    def in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether a log is being cleaned. Meanwhile only the cleaner may delete its segments."""
        return self._states.in_progress(topic_partition)

    def pause(self, topic_partition: TopicPartition) -> None:
        """Stop cleaning a log until `resume` was called as often as `pause`."""
        self._states.pause(topic_partition)

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one `pause`. Raises `IllegalStateError` when the log is not paused."""
        self._states.resume(topic_partition)
        self._wake.set()

    def cleaned_up_to(self, topic_partition: TopicPartition) -> int | None:
        """The offset below which a hosted log is clean; None when it was never cleaned."""
        return self._progress.cleaned_up_to(topic_partition)

    def uncleanable(self) -> list[Uncleanable]:
        """The logs that the cleaner skips because they cannot be cleaned, with the reasons."""
        found = []
        for topic_partition, reason in self._progress.uncleanable.items():
            log = self._logs.get(topic_partition)
            if log is not None:
                directory = self._logs.directory_of(topic_partition)
                found.append(Uncleanable(topic_partition, directory, log.size, reason))
        return found

    def clock_jumped(self) -> None:
        """Look for due logs immediately, after a jump of the world's clock."""
        self._wake.set()

    # -- work

    async def run(self) -> None:
        """Clean due logs, then wait ``log.cleaner.backoff.ms``, until cancelled. Errors are logged."""
        async with trio.open_nursery() as nursery:
            while True:
                while len(self._states.all_in_progress()) < self.config.threads:
                    candidate = self._pick()
                    if candidate is None:
                        break
                    directory = self._logs.directory_of(candidate.topic_partition)  # later it may be deleted
                    self._states.begin(candidate.topic_partition)
                    nursery.start_soon(self._clean, candidate, directory)
                self._wake = trio.Event()
                with trio.move_on_after(max(self.config.backoff_ms / 1000, _SHORTEST_REST_SECONDS)):
                    await self._wake.wait()

    def _pick(self) -> _Candidate | None:
        """Select the log with the highest dirty ratio among those that are due."""
        now_ms, now = self._world.wall_ms(), self._world.now()
        best: _Candidate | None = None
        dirtiest, longest = 0.0, 0
        for topic_partition, log in self._logs.all().items():
            if (
                not log.config.compacts
                or not self._states.is_idle(topic_partition)
                or topic_partition in self._progress.uncleanable
                or self._progress.not_before.get(topic_partition, now) > now
            ):
                continue
            try:
                committed = self._committed(topic_partition, log)
                cleaned = self.cleaned_up_to(topic_partition)
                found = cleanable_range(log, cleaned, committed=committed, now_ms=now_ms)
            except (KafkaError, OSError) as error:
                self._failed(topic_partition, error)
                continue
            if found.checkpoint_was_wrong:
                # With cleanup.policy=compact,delete, retention may have deleted the cleaned part; that is normal.
                if not (log.config.deletes and cleaned is not None and cleaned < log.log_start_offset):
                    logger.warning(
                        "%s: the cleaner checkpoint is outside of the log; cleaning starts again at its beginning",
                        topic_partition,
                    )
                self._progress.start_over(topic_partition)
            dirtiest, longest = max(dirtiest, found.dirty_ratio), max(longest, found.overdue_ms)
            is_due = found.is_due(log.config.min_cleanable_dirty_ratio)
            if is_due and (best is None or found.dirty_ratio > best.range.dirty_ratio):
                best = _Candidate(topic_partition, log, found)
        self.metrics.max_dirty_ratio, self.metrics.max_compaction_delay_ms = dirtiest, longest
        return best

    def _committed(self, topic_partition: TopicPartition, log: PartitionLog) -> int:
        """The last stable offset."""
        listener, high_watermark = self._logs.listener, log.log_end_offset
        if listener is not None:
            known = listener.high_watermark_of(topic_partition)
            high_watermark = log.log_start_offset if known is None else known
        return log.last_stable_offset(high_watermark)

    async def _clean(self, candidate: _Candidate, directory: str) -> None:
        topic_partition, log = candidate.topic_partition, candidate.log
        started = self._world.now()
        stats: CleaningStats | None = None
        failure: Exception | None = None
        try:
            # Replacement segments are synced. The segments that they replace must be synced and below the recovery
            # point too.
            await self._logs.flush_sealed_of(topic_partition)
            if log.recovery_point < candidate.range.end_offset:
                raise KafkaStorageError(f"{topic_partition}: the segments to clean could not be synced")
            stats = await self._pass(candidate)
        except (_StoppedError, IllegalStateError) as error:
            logger.info("%s: cleaning aborted: %s", topic_partition, error)
        except Exception as error:
            failure = error
        finally:
            stopped = self._states.end(topic_partition)
            self._wake.set()
        if stopped or self._logs.get(topic_partition) is not log:
            return
        if failure is not None:
            self._failed(topic_partition, failure)
        elif stats is not None:
            self._progress.cleaned(topic_partition, directory, stats.end_offset)
            self.metrics.cleaned(stats, seconds=self._world.now() - started, threads=self.config.threads)
            logger.info("%s: cleaned up to offset %d: %s", topic_partition, stats.end_offset, stats.summary)
            if log.config.deletes:
                self._logs.apply_retention_to(topic_partition)

    async def _pass(self, candidate: _Candidate) -> CleaningStats:
        from triokafka.broker_stub.log.cleaner.cleaner_pass import CleanerPass, CleanerProgress, Replacement

        topic_partition, log = candidate.topic_partition, candidate.log
        self._check_wanted(candidate)
        cleaning = CleanerPass(
            self._world.storage,
            log,
            first_dirty=candidate.range.first_dirty,
            end=candidate.range.end_offset,
            now_ms=self._world.wall_ms(),
            limits=self.config.limits,
            salt=self._world.random_bytes(_SALT_BYTES),
        )
        steps = cleaning.steps()
        try:
            while (step := await self._world.run_in_thread(next, steps, None)) is not None:
                self._check_wanted(candidate)
                match step:
                    case CleanerProgress(read, written):
                        rest = self._throttle.wait_for(
                            read + written, max(self.config.io_max_bytes_per_second, 1.0), self._world.now()
                        )
                        if rest > 0:
                            await trio.sleep(rest)
                    case Replacement():
                        await self._replace(log, step)
        finally:
            with trio.CancelScope(shield=True):
                await self._world.run_in_thread(steps.close)
        logger.debug("%s is clean up to %d", topic_partition, cleaning.stats.end_offset)
        return cleaning.stats

    async def _replace(self, log: PartitionLog, replacement: Replacement) -> None:
        """Swap segments. Shielded from cancellation, since recovery would have to finish half a swap."""
        steps = log.replacing(replacement.old, [replacement.new], now_ms=self._world.wall_ms())
        with trio.CancelScope(shield=True):
            for sync in steps:
                try:
                    await self._world.run_in_thread(sync)
                except OSError as error:
                    steps.throw(error)

    def _check_wanted(self, candidate: _Candidate) -> None:
        """Raise `_StoppedError` unless the pass may continue."""
        topic_partition, log = candidate.topic_partition, candidate.log
        if self._states.is_aborted(topic_partition) or self._logs.get(topic_partition) is not log:
            raise _StoppedError("the log was truncated or deleted, or its cleaning paused")
        if not log.config.compacts:
            raise _StoppedError("its cleanup.policy no longer includes compact")

    def _failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        if isinstance(error, (OSError, KafkaStorageError)):
            logger.error("%s: cleaning failed: %s. It is retried in a minute.", topic_partition, error)
            self._progress.not_before[topic_partition] = self._world.now() + _RETRY_SECONDS
        else:
            # Not retried: the log would keep the cleaner from the others.
            logger.error(
                "%s: cleaning failed, and the log is skipped until the broker restarts: %s",
                topic_partition,
                error,
                exc_info=error,
            )
            self._progress.uncleanable[topic_partition] = str(error) or type(error).__name__
