"""Returning records: they leave the buffer, are deserialized, and positions advance. No step waits.

A plain object. In ``async for`` it knows the record that the user is processing, which is not finished.
"""

from __future__ import annotations

import logging
import operator
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from triokafka import errors
from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.batches import FetchedBatch
from triokafka.client.consumer.completed_fetch import CompletedFetch, end_of
from triokafka.client.consumer.deserialization import record_converter
from triokafka.client.consumer.fetcher import Fetcher
from triokafka.client.consumer.interceptors import Records, intercept_records
from triokafka.client.consumer.subscription_state import SubscriptionState
from triokafka.records import ConsumerRecord
from triokafka.records.cursor import RecordCursor
from triokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from triokafka.records.arrow import ArrowBuilder

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NOTHING: Final[list[ConsumerRecord]] = []


class _RecordRun(NamedTuple):
    """Consecutive records of one partition from one piece of data, and the positions around them."""

    partition: TopicPartition
    records: list[ConsumerRecord]
    data: CompletedFetch
    start: int
    end: int


class FetchCollector:
    """Returns records to the user, and knows which of them are finished.

    ``cursor`` has the rest of the run that ``async for`` is in; pulling from it needs no call here.
    """

    def __init__(self, options: ConsumerOptions, subscription: SubscriptionState, fetcher: Fetcher) -> None:
        self.cursor = RecordCursor()
        self.asked = 0
        """Number of calls for records."""
        self.delivered = 0
        """Number of returned records; those that the present ``async for`` has taken included."""
        self._interceptors = options.interceptors
        self._subscription = subscription
        self._fetcher = fetcher
        self._buffer = fetcher.buffer
        self._log = fetcher.fetch_log
        self.skipped = 0
        """Number of records skipped because a deserializer failed."""
        self.batches_skipped = 0
        """Number of skipped damaged batches."""
        self._skips = options.deserialization_error_policy == "skip"
        self._skips_damage = options.corrupt_batch_policy == "skip"
        self._convert = record_converter(
            options.key_deserializer, options.value_deserializer, raw=options.deserialization_error_policy == "raw"
        )
        self._max_bytes = options.max_poll_bytes
        self._bytes_left = 0
        self.pieces: list[tuple[TopicPartition, int, int]] = []
        """Parts that the last call took: partition, first offset, and the size of the fetched data that begins there; 0
        for the rest of data that an earlier call began."""
        self._sized: CompletedFetch | None = None
        self._opened: CompletedFetch | None = None
        self.waiting: CompletedFetch | None = None
        """Data whose next batch is too large for the last call to decompress."""
        self._runs: deque[_RecordRun] = deque()  # the first one is being iterated over

    @property
    def progress(self) -> int:
        """A number that changes with every returned record and every call."""
        return (self.asked << 32) - operator.length_hint(self.cursor.iterator)

    # ---------------------------------------------------------------- taking

    def take(self, limit: int) -> Records:
        """Return records of one or more partitions, at most ``limit`` in all, and move their positions.

        Raises:
            KafkaError: an error is next in the buffer. If records precede it, this call returns them, and the next one
                raises.
        """
        records: Records = {}
        for run in self._take(limit):
            known = records.get(run.partition)
            records[run.partition] = run.records if known is None else known + run.records
        if records and self._interceptors:
            records = intercept_records(self._interceptors, records)
        return records

    def _take(self, limit: int) -> list[_RecordRun]:
        taken: list[_RecordRun] = []
        self.waiting = None
        self.pieces = []
        self._bytes_left = self._max_bytes
        for data, state in self._buffer.current():
            if limit <= 0 or self._bytes_left <= 0:
                break
            if data.error is not None:
                if taken:
                    break
                self._fetcher.handle_error(data)
                continue
            self._open(data)
            before = data.position
            got = len(taken)
            try:
                limit -= self._take_from(data, limit, taken)
            except (errors.CorruptRecordError, errors.RecordDeserializationError, errors.UnsupportedCodecError):
                if not taken:
                    raise
                limit = 0
            self._advance(data, nothing_in_hand=state.finished == before and len(taken) == got)
            if self.waiting is not None:
                break
        return taken

    def _open(self, data: CompletedFetch) -> None:
        """Keep at most one decompressed batch: a pause or a seek may have left others half read."""
        if self._opened is not data:
            if self._opened is not None:
                self._opened.release()
            self._opened = data

    def take_columns(self, builder: ArrowBuilder, limit: int) -> int:
        """Add records of one or more partitions to an Arrow batch, at most ``limit``; return how many.

        Errors as in `take`. Deserializers and interceptors do not apply.
        """
        total = 0
        self.waiting = None
        for data, state in self._buffer.current():
            if total >= limit or builder.is_full:
                break
            if data.error is not None:
                if total:
                    break
                self._fetcher.handle_error(data)
                continue
            self._open(data)
            before = data.position
            try:
                rows = self._undamaged(data, partial(data.take_columns, builder, limit - total))
            except (errors.CorruptRecordError, errors.UnsupportedCodecError):
                if total:
                    break
                raise
            total += rows
            self._log.records.append((data.partition.topic, rows))
            self._advance(data, nothing_in_hand=state.finished == before and not rows)
            if data.is_waiting:
                self.waiting = data
            if not data.exhausted:
                break  # the limit, corrupt bytes, or a full column
        self.delivered += total
        return total

    def take_batch(self) -> FetchedBatch | None:
        """Return the next piece of fetched data undecoded, with checksums verified. Errors as in `take`."""
        self.waiting = None
        for data, _ in self._buffer.current():
            if data.error is not None:
                self._fetcher.handle_error(data)
                continue
            size = self._undamaged(data, data.check)
            if data.end is None:
                # It contains no valid batch; the decoder raises the reason.
                data.take(1)
                data.end = data.position
            end = data.end if size == data.size else end_of(memoryview(data.records)[:size])
            assert end is not None
            if size == data.size:
                data.leader_epoch = data.last_epoch
            batch = FetchedBatch(data, end, size, data.leader_epoch)
            data.position = end
            self._advance(data, nothing_in_hand=False)
            return batch
        return None

    def _undamaged(self, data: CompletedFetch, read: Callable[[], T]) -> T:
        """Return the result of ``read``; with ``corrupt_batch_policy="skip"`` pass over damaged batches."""
        while True:
            try:
                return read()
            except errors.CorruptRecordError as error:
                behind = data.behind_damage()
                if behind is None or not self._skips_damage or isinstance(error, errors.DecompressedSizeError):
                    what = (
                        str(error)
                        if behind is None
                        else f"{error}; the position stays there, seek to {behind} to skip it"
                    )
                    located = type(error)(what)
                    located.next_offset = behind
                    raise located from None
                self.batches_skipped += 1
                logger.warning("skipped offsets %d to %d of %s: %s", data.position, behind - 1, data.partition, error)
                data.rewind(behind)

    def _advance(self, data: CompletedFetch, *, nothing_in_hand: bool) -> None:
        self._subscription.hand_out(data.partition, data.position, data.leader_epoch)
        if nothing_in_hand:
            # Only gaps and control batches were skipped: the user has nothing to finish.
            self._subscription.finish(data.partition, data.position)
        if data.exhausted:
            self._buffer.remove(data)
            if self._opened is data:
                self._opened = None
            if self._sized is data:
                self._sized = None

    def _take_from(self, data: CompletedFetch, limit: int, taken: list[_RecordRun]) -> int:
        count = 0
        while count < limit and self._bytes_left > 0:
            start = data.position
            unpacked = data.unpacked_bytes
            records = self._undamaged(data, partial(data.take, limit - count, self._bytes_left))
            if data.is_waiting and not records:
                self.waiting = data
                break
            self._bytes_left -= max(0, data.unpacked_bytes - unpacked)
            if not records:
                # At the end, which may only be known after decoding.
                data.end = data.position
                break
            if self._convert is not None:
                records = self._deserialize(records, data, start)
                if not records:
                    continue
            count += len(records)
            self.delivered += len(records)
            self._log.records.append((data.partition.topic, len(records)))
            taken.append(_RecordRun(data.partition, records, data, start, data.position))
            self.pieces.append((data.partition, records[0].offset, 0 if self._sized is data else data.size))
            self._sized = data
        return count

    def _deserialize(self, records: list[ConsumerRecord], data: CompletedFetch, start: int) -> list[ConsumerRecord]:
        """Convert keys and values. The next call begins at a record that cannot be converted."""
        assert self._convert is not None
        converted: list[ConsumerRecord] = []
        for record in records:
            try:
                converted.append(self._convert(record))
            except Exception as error:
                if self._skips:
                    self.skipped += 1
                    logger.warning(
                        "skipped the record at offset %d of %s, which the deserializer cannot read: %r",
                        record.offset,
                        data.partition,
                        error,
                    )
                    continue
                data.rewind(record.offset if converted else start)
                if converted:
                    return converted
                raise errors.RecordDeserializationError(
                    f"the deserializer failed on the record at offset {record.offset} of {data.partition}: {error!r};"
                    f" the position stays there, seek to {record.offset + 1} to skip it"
                ) from error
        return converted

    # ---------------------------------------------------------------- async for

    def next_run(self) -> bool:
        """Finish the present run and go to the next one taken. Return False if there is none."""
        if self._runs:
            done = self._runs.popleft()
            self._subscription.finish(done.partition, done.end)
        return self._start_run()

    def take_runs(self, limit: int) -> bool:
        """Take runs of at most ``limit`` records in all, and begin with the first. Errors as in `take`."""
        self._runs.extend(self._take(limit))
        if self._interceptors:
            self._runs = deque(self._intercepted(run) for run in self._runs)
        return self._start_run()

    def _start_run(self) -> bool:
        self.cursor.iterator = iter(self._runs[0].records if self._runs else _NOTHING)
        return bool(self._runs)

    def _intercepted(self, run: _RecordRun) -> _RecordRun:
        changed = intercept_records(self._interceptors, {run.partition: run.records})
        return run._replace(records=changed.get(run.partition, []))

    def _in_hand(self, run: _RecordRun) -> ConsumerRecord | None:
        """Return the last returned record of the present run, None before the first."""
        given = len(run.records) - operator.length_hint(self.cursor.iterator)
        return run.records[given - 1] if given else None

    def put_back(self) -> None:
        """Put records that ``async for`` has taken but not returned back into the buffer, for other calls."""
        if not self._runs:
            return
        runs = list(self._runs)
        record = self._in_hand(runs[0])
        for run in reversed(runs[1:]):
            self._return(run, run.start)
        first = runs[0]
        if operator.length_hint(self.cursor.iterator):
            if record is None:
                self._return(first, first.start)
            else:
                self._return(first, record.offset + 1, record.leader_epoch)
        if record is not None:
            self._subscription.finish(first.partition, record.offset)
        self._runs.clear()
        self.cursor.iterator = iter(_NOTHING)

    def _return(self, run: _RecordRun, position: int, leader_epoch: int = -1) -> None:
        state = self._subscription.get(run.partition)
        if state is not None and state.version == run.data.version:
            self._buffer.restore(run.data, position)
            self._subscription.take_back(run.partition, position, leader_epoch)

    # ---------------------------------------------------------------- offsets to commit

    def _adjusted(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return position and finished offset of the partitions in the present ``async for``."""
        found: dict[TopicPartition, tuple[int, int]] = {}
        for index, run in enumerate(self._runs):
            if run.partition in found:
                continue
            record = self._in_hand(run) if index == 0 else None
            if record is None:
                found[run.partition] = (run.start, run.start)
            elif not operator.length_hint(self.cursor.iterator):
                found[run.partition] = (run.end, record.offset)
            else:
                found[run.partition] = (record.offset + 1, record.offset)
        return found

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record for the user, None while unknown."""
        state = self._subscription.state(partition)
        adjusted = self._adjusted().get(partition)
        return state.position if adjusted is None else adjusted[0]

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after all returned records, the last one included: for the user's own commits."""
        offsets = self._subscription.consumed()
        for partition, (position, _) in self._adjusted().items():
            if partition in offsets and position != offsets[partition].offset:
                offsets[partition] = OffsetAndMetadata(position)
        return offsets

    def finished(self, committed: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that auto-commit may send, where they differ from ``committed``."""
        offsets = self._subscription.finished(committed)
        for partition, (_, finished) in self._adjusted().items():
            if partition not in self._subscription:
                continue
            if committed.get(partition) == finished:
                offsets.pop(partition, None)
            else:
                offsets[partition] = OffsetAndMetadata(finished)
        return offsets
