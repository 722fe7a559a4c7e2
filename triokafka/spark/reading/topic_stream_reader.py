"""One streaming query: the driver resolves offsets and plans batches; tasks read them as in a batch read.

Spark keeps one reader for the offsets in a process next to the driver, and pickles another one for the tasks. The two
share nothing except the task's arguments. Spark never reports that a query has stopped, so nothing here needs closing.

That process is started for every query, and the query waits for its imports: modules that only tasks need are imported
where they are used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.admission import Admission
from triokafka.spark.planning.bounds import AtGroup, AtOffsets, Offsets, names
from triokafka.spark.planning.brokers import Brokers, ask_brokers
from triokafka.spark.planning.data_loss import report_loss
from triokafka.spark.planning.initial_offsets_file import load_initial_offsets, store_initial_offsets
from triokafka.spark.planning.micro_batch_plan import AvailableNowTarget, batch_ranges, went_back
from triokafka.spark.planning.offset_resolution import resolve, settle
from triokafka.spark.planning.offsets_json import format_offsets, offsets_json, parse_offsets
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import tasks
from triokafka.spark.reading.topic_reader import RangePartition
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which runs Trigger.AvailableNow as one batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A stand-in for Spark's class of that name."""


_log: Final = logging.getLogger("triokafka.spark")

COMMIT_TIMEOUT_MS: Final = 5_000
"""The maximum delay of a batch by the commit of the previous one to ``commitGroupId``."""
_NO_OFFSETS: Final = "the query's checkpoint is damaged, or belongs to another source:"


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc] # no types
    """Reads the topics of ``options``, batch by batch.

    Every call queries the brokers within ``default.api.timeout.ms`` and is tried ``fetchOffset.numRetries`` times. An
    error ends the query; when it is started again, Spark continues from its checkpoint.

    Args:
        options: the options of a streaming query.
        now_ms: a clock for ``maxTriggerDelay``.
    """

    def __init__(self, options: ReadOptions, *, now_ms: Callable[[], float] | None = None) -> None:
        self.options = options
        self._now_ms = now_ms if now_ms is not None else _monotonic_ms
        self._admission = Admission(
            max_offsets=options.max_offsets_per_trigger,
            min_offsets=options.min_offsets_per_trigger,
            max_delay_ms=options.max_trigger_delay_ms,
            max_bytes=options.max_bytes_per_trigger,
            max_partition_bytes=options.max_bytes_per_partition,
        )
        self._initial: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._target: AvailableNowTarget | None = None
        # The last offset received from or returned to Spark, which does not pass it before 4.2.
        self._reached: dict[TopicPartition, int] | None = None
        self._has_admitted = False
        self._topic_ids: dict[str, UUID] = {}
        self._has_asked_for_ids = False
        self._sizes: dict[TopicPartition, float] = {}  # bytes per offset, latest samples

    # --- offsets ---

    def initialOffset(self) -> dict[str, dict[str, int]]:
        """Return where a new query starts. Resolved once: Spark asks twice, and "latest" must mean the same.

        With ``initialOffsetsPath`` the offsets are stored in that file, so that a query whose first batch failed starts
        at the same offsets again.

        Raises:
            UnknownTopicOrPartitionError: a named topic or partition does not exist.
            ConfigurationError: the given offsets or timestamps do not match the partitions.
            KafkaTimeoutError: no broker answered in time.
        """
        if self._initial is None:
            path = self.options.initial_offsets_path
            found = load_initial_offsets(path) if path is not None else None
            if found is None:
                found = self._resolve_start()
                if path is not None:
                    store_initial_offsets(path, found)
            self._initial = found
        self._reached = self._reached or self._initial
        return offsets_json(self._initial)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, dict[str, int]]:
        """Return where the next batch ends; ``start`` if there is nothing to read, or not enough yet.

        Spark before 4.2 passes no arguments; the batch then starts where the last one ended. It asks once for a whole
        run of ``Trigger.AvailableNow`` or ``Once`` and does not identify such a run, so the first answer of a query
        started there is unlimited.

        Raises:
            KafkaDataLossError: all topics are gone, and ``failOnDataLoss`` is true.
            KafkaTimeoutError: no broker answered in time.
        """
        begin = _kept_offsets(start) if start is not None else self._reached
        if self._target is not None and not self._has_admitted and _is_behind(self._target.offsets, begin or {}):
            # The target was set without knowing the query's position; a new leader may have lagged behind then.
            self._target = AvailableNowTarget(self._latest_since(begin or {}, missing_ok=True))
        self._latest = (
            self._latest_since(begin or {}, missing_ok=bool(begin))
            if self._target is None
            else dict(self._target.offsets)
        )
        is_first = start is None and not self._has_admitted
        if begin is None or is_first or type(limit).__name__ == "ReadAllAvailable":
            end = self._latest
            self._admission.note_batch(self._now_ms())
        else:
            end = self._admit(begin)
        if begin and not end:
            # An empty offset would make the query read returning partitions as new ones (SPARK-41375).
            sentence = f"Partitions {names(begin)} have been deleted, and there are no others."
            report_loss(self.options.fail_on_data_loss, "PARTITIONS_DELETED", sentence)
            end = dict(begin)
        self._has_admitted = True
        self._reached = end
        return offsets_json(end)

    def getDefaultReadLimit(self) -> Any:
        """Return the options' limit of a batch, in a form that Spark passes back to `latestOffset` (Spark 4.2)."""
        from pyspark.sql.streaming import datasource

        options = self.options
        if options.max_offsets_per_trigger is not None:
            return datasource.ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return datasource.ReadMinRows(options.min_offsets_per_trigger)
        if self._admission.limits_bytes:
            return datasource.ReadMaxBytes(options.max_bytes_per_trigger or options.max_bytes_per_partition)
        return datasource.ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Return the end offsets when the last batch was planned: ``latestOffset`` in the query's progress."""
        return offsets_json(self._latest) or None

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the present end offsets, at which the query stops."""
        # A deleted topic is missing in the target; planning the batch reports it.
        self._target = AvailableNowTarget(self._latest_since({}, missing_ok=True))

    # --- batches ---

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of one batch.

        Raises:
            KafkaDataLossError: records between the two no longer exist, and ``failOnDataLoss`` is true.
            ChangedTargetError: under ``Trigger.AvailableNow``, see `AvailableNowTarget.check`.
            KafkaTimeoutError: no broker answered in time.
        """
        first, until = _kept_offsets(start), _kept_offsets(end)
        if not self._has_admitted and first == self._initial:
            # An earlier run planned the first batch, and this run resolved the start just now. Partitions created in
            # between are new, not lost.
            first = {one: offset for one, offset in first.items() if one in until}
        new = until.keys() - first.keys()

        async def look(
            brokers: Brokers,
        ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[str, UUID]]:
            present = set(await brokers.partitions(missing_ok=True))
            return (
                await brokers.earliest(sorted(new & present)),
                await brokers.latest(sorted(present)) if self._target is not None else {},
                brokers.topic_ids,
            )

        asked = new or self._target is not None or not self._has_asked_for_ids
        earliest, latest, topic_ids = ask_brokers(self.options, look) if asked else ({}, {}, {})
        if self._target is not None:
            self._target.check(until, latest, replayed=not self._has_admitted)
        # The end of the batch was resolved earlier, for the topics that existed then.
        self._check_topics({**first, **until}, topic_ids)
        found = batch_ranges(first, until, earliest)
        for kind, sentence in found.losses:
            report_loss(self.options.fail_on_data_loss, kind, sentence)
        self._reached = until
        # A topic that is recreated before the tasks run is another topic, whatever its offsets.
        ranges = [one._replace(topic_id=self._topic_ids.get(one.topic)) for one in found.ranges]
        return [RangePartition(task) for task in tasks(self.options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; raises as `read_task` does."""
        if isinstance(partition, RangePartition):
            from triokafka.spark.reading.task_reader import read_task

            yield from read_task(self.options, partition.ranges)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a completed batch to ``commitGroupId``. Errors are only logged.

        Spark calls this when it plans the next batch, and not after the last one: see `OffsetCommitListener`.
        """
        group = self.options.commit_group_id
        if group is not None:
            from triokafka.spark.listener.offset_commit_listener import commit_to_group

            try:
                commit_to_group(self.options.client.connection(), group, parse_offsets(end), COMMIT_TIMEOUT_MS)
            except Exception:
                _log.exception("group %r: the end of a batch was not committed", group)

    # --- parts ---

    def _resolve_start(self) -> dict[TopicPartition, int]:
        async def look(brokers: Brokers) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
            partitions = await brokers.partitions()
            wanted = await resolve(brokers, self.options, self.options.starting, partitions, side="start")
            return wanted, await settle(brokers, wanted)

        wanted, found = ask_brokers(self.options, look)
        if self._target is not None:
            # The target was set before: later records ("latest", timestamps) are not part of the run. A named offset
            # stays; if it is beyond the end, planning the batch reports it.
            ends = self._target.offsets
            named = {one for one, offset in wanted.items() if offset >= 0} if self._starts_at_offsets() else set()
            found = {
                one: offset if one in named else min(offset, ends[one]) for one, offset in found.items() if one in ends
            }
        return found

    def _starts_at_offsets(self) -> bool:
        return isinstance(self.options.starting, AtOffsets | AtGroup)

    def _latest_since(self, known: Offsets, *, missing_ok: bool) -> dict[TopicPartition, int]:
        """Return the end offsets. Asks again when one is before its ``known`` offset (SPARK-26267)."""
        patience_ms = self.options.latest_offset_regression_ms or 0
        interval_ms = self.options.fetch_offset_retry_interval_ms
        tries, waited_ms = 1, 0

        async def ends(brokers: Brokers) -> tuple[dict[TopicPartition, int], dict[str, UUID]]:
            return await brokers.latest(await brokers.partitions(missing_ok=missing_ok)), brokers.topic_ids

        while True:
            latest, topic_ids = ask_brokers(self.options, ends)
            odd = {**went_back(known, latest), **dict.fromkeys(known.keys() - latest.keys(), "gone")}
            if not odd:
                self._check_topics(known, topic_ids)
                return latest
            if tries >= self.options.fetch_offset_retries and waited_ms >= patience_ms:
                _log.warning("partitions ended before the query's position, or were gone, %d times: %s", tries, odd)
                return latest
            # At least 10 ms, so that the waiting time does not consist of requests alone.
            pause_ms = max(interval_ms, 10)
            time.sleep(pause_ms / 1000)
            tries, waited_ms = tries + 1, waited_ms + pause_ms

    def _check_topics(self, known: Offsets, topic_ids: Mapping[str, UUID]) -> None:
        """Report topics that were deleted and recreated during the query, where their offsets do not show it."""
        recreated = {topic for topic, now in topic_ids.items() if self._topic_ids.get(topic, now) != now}
        if lost := [one for one in known if one.topic in recreated and known[one] > 0]:
            report_loss(
                self.options.fail_on_data_loss,
                "PARTITIONS_DELETED",
                f"Partitions {names(lost)} have been deleted and recreated. Records before the old offsets are not"
                " read.",
            )
        self._topic_ids.update(topic_ids)
        self._has_asked_for_ids = True

    def _admit(self, begin: Offsets) -> dict[TopicPartition, int]:
        new = self._latest.keys() - begin.keys()
        limited = self._admission.max_offsets is not None or self._admission.limits_bytes

        async def earliest(brokers: Brokers) -> dict[TopicPartition, int]:
            present = set(await brokers.partitions(missing_ok=True))
            return await brokers.earliest(sorted(new & present))

        firsts = ask_brokers(self.options, earliest) if limited and new else {}
        start = {**firsts, **begin}
        if self._admission.limits_bytes:
            from triokafka.spark.planning.size_estimates import bytes_per_offset

            self._sizes.update(bytes_per_offset(self.options, start, self._latest))
        end = self._admission.admit(start, self._latest, now_ms=self._now_ms(), bytes_per_offset=self._sizes)
        # Spark compares offsets as text, so an added partition without records would start an empty batch.
        return dict(begin) if end == start else end


def _kept_offsets(given: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Parse offsets from the query's checkpoint, which may be damaged or belong to another source."""
    try:
        found = parse_offsets(given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{_NO_OFFSETS} {error}") from None
    if below := {one: offset for one, offset in found.items() if offset < 0}:
        # As options, -2 and -1 mean the beginning and the end; here they would read the whole log again.
        raise ConfigurationError(f"{_NO_OFFSETS} it has {format_offsets(below)}")
    return found


def _is_behind(ends: Offsets, known: Offsets) -> bool:
    return bool(went_back(known, ends) or known.keys() - ends.keys())


def _monotonic_ms() -> float:
    return time.monotonic() * 1000
