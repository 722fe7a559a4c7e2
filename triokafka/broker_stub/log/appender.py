"""Appending to the log of a partition, and bringing what was appended to the disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.durability import Durability, FlushJob
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch
from triokafka.broker_stub.log.producer_state import read_marker
from triokafka.broker_stub.log.reader import LogReader
from triokafka.broker_stub.log.recovery import note_batch
from triokafka.broker_stub.log.segment_names import LOG_SUFFIX
from triokafka.broker_stub.log.validation import assign_offsets, prepare
from triokafka.errors import BrokerResponseError, IllegalStateError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.records import iter_batches
from triokafka.records.batch import CONTROL, BatchInfo
from triokafka.structs import Buffer
from triokafka.world import Storage

_SNAPSHOT_EVERY_BYTES: Final = 1 << 20
_SNAPSHOT_EVERY_BYTES_OF_PRODUCER: Final = 4_000  # so that snapshots, up to 180 bytes each, are little beside records


class AppendInfo(NamedTuple):
    """What an append did. ``log_append_time`` is -1 unless the topic stamps records on append.

    With ``duplicate`` nothing was appended: the offsets are those of the same batch, appended before.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class LogAppender(LogReader):
    """What `PartitionLog` has for writers and flushers."""

    config: LogConfig
    leader_epochs: LeaderEpochs
    settled_offset: int
    _durability: Durability
    _request_flush: Callable[[], bool] | None
    _bytes_since_snapshot: int
    _last_time_ms: int
    _storage: Storage

    def update_config(self, config: LogConfig) -> None:
        """Work with another configuration from now on."""
        self.config = config
        self._segments.update_config(config)
        self._settle()

    # -- writing

    def append_as_leader(
        self, batches: Buffer | PrevalidatedBatch, *, leader_epoch: int, now_ms: int, from_client: bool = True
    ) -> AppendInfo:
        """Check batches, give them the next offsets, and append them.

        Args:
            batches: v2 batches, one when ``from_client``. Patched in place when the buffer is writable. A client's may
                have been looked at already.
            from_client: False for the broker's own records, which may be several batches and control records.

        Raises:
            BrokerResponseError: refused; see `prepare` and `ProducerStates.check`.
            KafkaStorageError: the disk failed. Nothing was appended, unless it was the sync that ``flush.messages``
                asks for.
        """
        self._guard.check()
        if isinstance(batches, PrevalidatedBatch) and batches.config is self.config:
            if isinstance(batches.result, BrokerResponseError):
                raise batches.result.fresh_copy()
            buffer, infos = batches.result
        else:
            data = batches.data if isinstance(batches, PrevalidatedBatch) else batches
            buffer, infos = prepare(data, self.topic_partition, self.config, now_ms=now_ms, from_client=from_client)
        if not infos:
            return AppendInfo(-1, -1, -1, -1, self.log_start_offset)
        for info in infos:
            if info.producer_id >= 0 and from_client:
                known = self.producers.duplicate_of(info)
                if known is not None:
                    stamped = known.timestamp if self.config.stamps_on_append else -1
                    return AppendInfo(
                        known.first_offset, known.last_offset, known.timestamp, stamped, self.log_start_offset, True
                    )
                self.producers.check(info)
            elif info.producer_id >= 0 and info.is_control:
                marker = read_marker(memoryview(buffer)[info.position : info.end])
                if marker is not None:
                    self.producers.check_marker(info, marker)
        append_time = now_ms if self.config.stamps_on_append else -1
        infos = assign_offsets(buffer, infos, self.log_end_offset, leader_epoch=leader_epoch, append_time=append_time)
        newest = self._append(infos, buffer, self._time(now_ms))
        last_offset = self._segments.end_offset - 1
        return AppendInfo(infos[0].base_offset, last_offset, newest, append_time, self.log_start_offset)

    def append_as_follower(self, batches: Buffer, *, now_ms: int | None = None) -> AppendInfo:
        """Append batches as the leader has them, offsets and epochs included. A partial last one is ignored.

        Raises:
            CorruptRecordError: a checksum does not match.
            IllegalStateError: the offsets do not follow the log's end.
            KafkaStorageError: the disk failed. Nothing was appended.
        """
        self._guard.check()
        infos = list(iter_batches(batches, check_crc=True))
        if not infos:
            return AppendInfo(-1, -1, -1, -1, self.log_start_offset)
        expected = self.log_end_offset
        for info in infos:
            if info.base_offset < expected:
                raise IllegalStateError(
                    f"{self.topic_partition}: a batch at offset {info.base_offset} cannot follow {expected - 1}"
                )
            expected = info.next_offset
        newest = self._append(infos, memoryview(batches)[: infos[-1].end], self._time(now_ms))
        return AppendInfo(infos[0].base_offset, expected - 1, newest, -1, self.log_start_offset)

    def _append(self, infos: list[BatchInfo], data: Buffer, now_ms: int) -> int:
        """Add batches that have their offsets; returns the newest timestamp."""
        segments = self._segments
        first, last = infos[0], infos[-1]
        newest = first.max_timestamp if first is last else max(info.max_timestamp for info in infos)
        try:
            if segments.active.should_roll(
                incoming_bytes=len(data), max_timestamp=newest, last_offset=last.last_offset, now_ms=now_ms
            ):
                self._roll(first.base_offset, now_ms)
            if first.attributes & CONTROL or (first is not last and any(info.is_control for info in infos)):
                self._load_transaction_index(segments.active)  # now: once the marker is written, nothing may fail
            segments.append(infos, data)
        except OSError as error:
            raise self._guard.error("append", error) from error
        for info in infos:
            self.leader_epochs.assign(info.partition_leader_epoch, info.base_offset)
            if info.producer_id >= 0:
                content = memoryview(data)[info.position : info.end] if info.is_control else b""
                note_batch(self.producers, segments.active, info, content)
        self._bytes_since_snapshot += len(data)
        self._durability.appended(now_ms)
        end = segments.end_offset
        if end - self._durability.recovery_point < self.config.flush_messages:
            self.settled_offset = end
        elif self._request_flush is None or not self._request_flush():
            self.flush()
        return newest

    def roll(self, *, now_ms: int) -> None:
        """Start a new segment at the end of the log. Does nothing while the active one is empty.

        Raises:
            KafkaStorageError: the disk failed; the log goes on in the old segment.
        """
        self._guard.check()
        with self._guard.during("roll"):
            self._roll(self.log_end_offset, now_ms)

    def skip_to(self, offset: int, *, now_ms: int) -> None:
        """Go on at ``offset``, after the log's end: there are no records in between.

        Raises:
            KafkaStorageError: the disk failed; the log ends where it did.
        """
        self._guard.check()
        with self._guard.during("roll"):
            self._roll(offset, now_ms)
            self._segments.end_offset = offset
        self._settle()

    def _roll(self, base_offset: int, now_ms: int) -> None:
        if base_offset != self.active_segment.base_offset:
            self._take_snapshot()
            self._segments.roll(base_offset, now_ms)
            self._durability.names_unsynced = True

    def _take_snapshot(self) -> None:
        if self._snapshots.newest != self.log_end_offset:
            self._snapshots.take(self.producers, self.log_end_offset)
        self._bytes_since_snapshot = 0

    # -- durability

    def check_files(self) -> None:
        """Check that the segment that is written to is still in its folder; otherwise the log is offline from now on.

        A file that somebody removes stays writable as long as it is open, and its records are lost afterwards.

        Raises:
            KafkaStorageError: the file is missing, or the log is closed or offline already.
        """
        self._guard.check()
        path = self.active_segment.path(LOG_SUFFIX)
        if not self._storage.exists(path):
            error = FileNotFoundError(
                errno.ENOENT,
                f"the segment was removed while the broker was running, with offsets "
                f"{self.active_segment.base_offset} to {self.log_end_offset - 1}",
                path,
            )
            self._guard.failure = error
            raise KafkaStorageError(f"the log of {self.topic_partition} is offline: {error}") from error

    def flush(self) -> None:
        """Return once everything appended so far is on disk, and move ``recovery_point`` there.

        Raises:
            KafkaStorageError: the disk failed; the recovery point stays.
        """
        self._finish(self.begin_flush(), "flush")

    def _finish(self, job: FlushJob | None, action: str) -> None:
        if job is not None:
            with self._guard.during(action):
                job.run()
            self.flushed(job)

    def begin_flush(self, *, sealed_only: bool = False) -> FlushJob | None:
        """Prepare a flush whose slow part may run in a thread, while appends go on; None when all is on disk.

        Args:
            sealed_only: leave out the segment that is written to.

        Raises:
            KafkaStorageError: the disk failed.
        """
        self.check_files()
        end = self.active_segment.base_offset if sealed_only else self.log_end_offset
        if self.recovery_point >= end:
            return None
        with self._guard.during("flush"):
            if not sealed_only and self._bytes_since_snapshot > max(
                _SNAPSHOT_EVERY_BYTES, _SNAPSHOT_EVERY_BYTES_OF_PRODUCER * len(self.producers)
            ):
                self._take_snapshot()  # so that after a crash no more need be read than was not flushed
                self._snapshots.remove_strays({segment.base_offset for segment in self._segments})
            return self._durability.begin(end, self._segments, self.leader_epochs, sealed_only=sealed_only)

    def flushed(self, job: FlushJob) -> None:
        """``job.run()`` has succeeded."""
        self._durability.finished(job)
        self._settle()

    def put_off(self, job: FlushJob) -> None:
        """``job.run()`` has failed for want of files: the next flush does it."""
        self._durability.put_off(job)

    def flush_due(self, now_ms: int) -> bool:
        """Whether the oldest record that is not on disk has waited for ``flush.ms``."""
        return self._durability.due(now_ms, self.config.flush_ms)

    @property
    def recovery_point(self) -> int:
        """Everything below it is on disk."""
        return self._durability.recovery_point

    @property
    def cuts(self) -> int:
        """How often it was cut at its end, after which offsets may have other records."""
        return self._durability.cuts

    @property
    def flush_wanted(self) -> bool:
        """Whether as many records as ``flush.messages`` are not on disk, and the newest wait for it."""
        return self._segments.end_offset - self._durability.recovery_point >= self.config.flush_messages

    def _settle(self) -> None:
        if not self.flush_wanted:
            self.settled_offset = self._segments.end_offset
        else:
            self.settled_offset = min(max(self.settled_offset, self.recovery_point), self._segments.end_offset)

    def _time(self, now_ms: int | None) -> int:
        """The time that a caller gave, or else the last one that any did."""
        if now_ms is not None:
            self._last_time_ms = now_ms
        return self._last_time_ms
