"""The log of a partition against a plain list, over a disk that forgets and tears what was not synced."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from triokafka.broker_stub.log import LogConfig, PartitionLog
from triokafka.errors import KafkaStorageError, OffsetOutOfRangeError, OutOfOrderSequenceNumberError
from triokafka.records import decode_records, encode_batch
from triokafka.structs import TopicPartition
from triokafka.world_memory import MemoryStorage

TP = TopicPartition("orders", 0)
DIRECTORY = "data/orders-0"
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=60, retention_bytes=1500, retention_ms=5_000)
NOW = 1_700_000_000_000


@dataclass
class Batch:
    base_offset: int
    records: list[tuple[int, bytes]]  # timestamp and value
    producer_id: int = -1
    first_sequence: int = -1

    @property
    def end(self) -> int:
        return self.base_offset + len(self.records)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryStorage()
        self.storage.make_dirs("data")
        self.storage.sync_dir("")
        self.batches: list[Batch] = []  # whatever was ever appended and not truncated, also what retention dropped
        self.start = 0
        self.synced_end = 0
        self.recovery_point = 0  # as checkpointed
        self.start_checkpoint = 0
        self.now = NOW
        self.log = self.open()

    def open(self, *, clean: bool = False) -> PartitionLog:
        return PartitionLog.open(
            self.storage,
            DIRECTORY,
            TP,
            CONFIG,
            now_ms=self.now,
            recovery_point=self.recovery_point,
            log_start_offset=self.start_checkpoint,
            clean=clean,
            before_cut=self.before_cut,
        )

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.origin

    origin = 0

    def records(self) -> list[tuple[int, int, bytes]]:
        """Offset, timestamp and value of all that is readable."""
        return [
            (batch.base_offset + i, timestamp, value)
            for batch in self.batches
            for i, (timestamp, value) in enumerate(batch.records)
            if batch.base_offset + i >= self.start
        ]

    def last_of(self, producer_id: int) -> Batch | None:
        found = [batch for batch in self.batches if batch.producer_id == producer_id]
        return found[-1] if found else None

    # What a broker does

    @rule(
        values=st.lists(st.tuples(st.integers(-3000, 3000), st.binary(max_size=30)), min_size=1, max_size=5),
        producer=st.sampled_from([-1, -1, 7, 8]),
        compression=st.sampled_from(["none", "none", "gzip"]),
    )
    def append(self, values: list[tuple[int, bytes]], producer: int, compression: str) -> None:
        records = [(self.now + delta, value) for delta, value in values]
        sequence = self.next_sequence(producer)
        info = self.log.append_as_leader(self.encode(records, compression, producer, sequence), **self.leader())
        assert (info.first_offset, info.last_offset) == (self.end, self.end + len(records) - 1)
        assert not info.duplicate
        self.batches.append(Batch(self.end, records, producer, sequence))

    def next_sequence(self, producer: int) -> int:
        """By the log's own knowledge: of batches that are not in the log any more it may have an older picture."""
        if producer < 0:
            return -1
        state = self.log.producers.get(producer)
        return state.last_sequence + 1 if state is not None else 0

    def leader(self) -> dict[str, int]:
        return {"leader_epoch": 4, "now_ms": self.now}

    @staticmethod
    def encode(records: list[tuple[int, bytes]], compression: str, producer: int, sequence: int) -> bytes:
        return encode_batch(
            [(timestamp, None, value, ()) for timestamp, value in records],
            compression=compression,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )

    @rule(producer=st.sampled_from([7, 8]))
    def append_again(self, producer: int) -> None:
        last = self.last_of(producer)
        if last is None or last.base_offset < self.start:
            return
        before = self.log.log_end_offset
        info = self.log.append_as_leader(
            self.encode(last.records, "none", producer, last.first_sequence), **self.leader()
        )
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (last.base_offset, last.end - 1)
        assert self.log.log_end_offset == before

    @rule(producer=st.sampled_from([7, 8]))
    def append_with_a_gap(self, producer: int) -> None:
        state = self.log.producers.get(producer)
        if state is None or not state.batches:
            return
        try:
            self.log.append_as_leader(
                self.encode([(self.now, b"")], "none", producer, state.last_sequence + 2), **self.leader()
            )
        except OutOfOrderSequenceNumberError:
            return
        raise AssertionError("a gap in the sequence numbers was accepted")

    @rule()
    def roll(self) -> None:
        self.log.roll(now_ms=self.now)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.synced_end = self.log.log_end_offset
        assert self.log.recovery_point == self.synced_end

    def before_cut(self) -> None:
        self.recovery_point = self.log.recovery_point
        self.start_checkpoint = min(self.start_checkpoint, self.log.log_start_offset)

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.recovery_point

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + round((self.end - self.start) * share)
        self.log.truncate_to(offset, now_ms=self.now)
        self.batches = [batch for batch in self.batches if batch.end <= offset]
        if not self.batches:
            self.origin = self.log.log_end_offset
        assert self.log.log_end_offset == self.end <= offset
        self.start = self.log.log_start_offset
        assert self.start <= self.end
        self.synced_end = min(self.synced_end, self.end)

    @rule(ahead=st.integers(0, 20))
    def start_afresh(self, ahead: int) -> None:
        if ahead % 4:
            return  # not often: it makes the log short
        offset = self.end + ahead
        self.log.truncate_fully_and_start_at(offset, now_ms=self.now)
        self.batches = []
        self.start = self.start_checkpoint = self.origin = offset
        self.synced_end = offset

    @rule(share=st.floats(0, 1), checkpointed=st.booleans())
    def delete_records(self, share: float, checkpointed: bool) -> None:
        offset = self.start + round((self.end - self.start) * share)
        self.log.advance_log_start_offset(offset)
        self.start = offset
        if checkpointed:
            self.start_checkpoint = offset

    @rule(passed=st.integers(0, 4_000))
    def retain(self, passed: int) -> None:
        self.now += passed
        self.log.apply_retention(self.now)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset
        oldest = self.log.segments[0]  # it alone: retention stops at the first segment that stays
        assert oldest is self.log.active_segment or oldest.max_timestamp >= self.now - CONFIG.retention_ms
        assert self.log.size - self.log.segments[0].size < CONFIG.retention_bytes

    # What happens to brokers

    @rule(
        passed=st.integers(0, 12),
        action=st.sampled_from(["append", "append", "roll", "flush", "retain", "truncate", "start afresh"]),
        share=st.floats(0, 1),
    )
    def fail(self, passed: int, action: str, share: float) -> None:
        """The disk fails at some operation within an action, and works again afterwards."""
        left = [passed]

        def before(operation: str, path: str, size: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, "the disk failed")

        target = self.start + round((self.end - self.start) * share)
        old_end = self.end
        self.storage.before_operation = before
        try:
            match action:
                case "append":
                    self.append([(0, b"x" * 300)], 7, "none")
                case "roll":
                    self.roll()
                case "flush":
                    self.flush()
                case "retain":
                    self.log.apply_retention(self.now)
                case "truncate":
                    self.truncate(share)
                case "start afresh":
                    self.start_afresh(0)
        except KafkaStorageError:
            pass
        finally:
            self.storage.before_operation = None
        if action in ("truncate", "start afresh") and left[0] < 0:
            self.storage.kill()
            self.log = self.open()
            for segment in self.log.segments:
                segment.sync()
            self.storage.sync_dir(DIRECTORY)  # how far the failed cut came is settled here
            end = self.log.log_end_offset
            lowest = max([0, *(b.base_offset for b in self.batches if b.base_offset <= target)])
            assert end <= old_end
            assert end >= lowest or action == "start afresh" or self.log.size == 0
            self.synced_end = min(self.synced_end, end)
            self.forget_after(end)
        elif action == "flush" and left[0] < 0:
            self.storage.kill()
            self.log = self.open()  # what a failed sync has lost, the next one would not find out
            assert self.log.log_end_offset == old_end
        self.start = self.log.log_start_offset
        self.compare_all()

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.recovery_point = self.log.recovery_point
        self.start_checkpoint = self.start
        self.log = self.open(clean=True)
        self.synced_end = self.end
        self.compare_after_reopening(lossless=True)

    @rule()
    def kill(self) -> None:
        self.storage.kill()
        self.log = self.open()
        self.compare_after_reopening(lossless=True)

    @rule(seed=st.integers(0, 2**32), tear=st.booleans())
    def crash(self, seed: int, tear: bool) -> None:
        self.storage.crash(random.Random(seed), tear=tear)
        self.log = self.open()
        self.compare_after_reopening(lossless=False)

    def compare_after_reopening(self, *, lossless: bool) -> None:
        end = self.log.log_end_offset
        if lossless:
            assert end == self.end
        assert self.synced_end <= end <= max(self.end, self.start_checkpoint)
        assert self.start_checkpoint <= self.log.log_start_offset
        # Segments that retention dropped, and starts that were not checkpointed, may be back; the name of the first
        # segment may be lost with all that was not synced in it.
        assert (
            self.log.log_start_offset <= max(self.start, self.start_checkpoint)
            or self.synced_end <= self.log.log_start_offset
        )
        self.start = self.log.log_start_offset
        self.forget_after(end)
        assert self.log.recovery_point <= end
        for producer in (7, 8):
            last = self.last_of(producer)
            if last is not None and last.base_offset >= self.start:
                state = self.log.producers.get(producer)
                assert state is not None
                assert state.last_sequence == last.first_sequence + len(last.records) - 1
        self.compare_all()

    def forget_after(self, end: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= end]
        if not self.batches or self.batches[-1].end < end:
            assert end == self.log.log_start_offset  # begins anew where a promise was made
            self.batches = []
            self.origin = end

    # What readers see

    @precondition(lambda self: self.start < self.end)
    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 2000), bound=st.floats(0, 1), first=st.booleans())
    def read(self, share: float, max_bytes: int, bound: float, first: bool) -> None:
        offset = self.start + round((self.end - self.start) * share)
        up_to = round(self.end * bound)
        result = self.log.read(offset, max_bytes, up_to_offset=up_to, min_one_batch=first)
        got = [(r.offset, r.timestamp, r.value) for r in decode_records(result.records, from_offset=offset)]
        containing = [batch for batch in self.batches if batch.base_offset <= offset < batch.end]
        complete = containing and containing[0].end <= up_to
        if not complete:
            assert not len(result.records)
            return
        if first:
            assert got
        assert got == [r for r in self.records() if offset <= r[0]][: len(got)]
        assert not got or got[-1][0] < up_to
        if not first:
            assert len(result.records) <= max_bytes

    @rule(delta=st.integers(-4_000, 4_000), bound=st.floats(0, 1))
    def look_up_by_time(self, delta: int, bound: float) -> None:
        timestamp = self.now + delta
        up_to = round(self.end * bound)
        found = self.log.offset_for_timestamp(timestamp, up_to)
        expected = next((r for r in self.records() if r[1] >= timestamp and r[0] < up_to), None)
        assert (found[:2] if found else None) == (expected[:2] if expected else None)

    @rule(bound=st.floats(0, 1))
    def look_up_largest_time(self, bound: float) -> None:
        up_to = round(self.end * bound)
        found = self.log.offset_of_max_timestamp(up_to)
        readable = [r for r in self.records() if r[0] < up_to]
        expected = max(readable, key=lambda r: (r[1], -r[0]), default=None)
        assert (found[:2] if found else None) == (expected[:2] if expected else None)

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            try:
                self.log.read(offset, 100)
            except OffsetOutOfRangeError:
                continue
            raise AssertionError(f"offset {offset} is not in {self.log}")

    @rule()
    def compare_all(self) -> None:
        got: list[tuple[int, int, bytes]] = []
        offset = self.start
        while offset < self.log.log_end_offset:
            records = decode_records(self.log.read(offset, 200).records, from_offset=offset)
            got += [(r.offset, r.timestamp, r.value or b"") for r in records]
            offset = got[-1][0] + 1
        assert got == self.records()

    @invariant()
    def bounds_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.recovery_point <= self.end


LogMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogMatchesItsModel = LogMachine.TestCase
TestLogMatchesItsModel.__doc__ = (
    "Fetch equals the model, look-ups equal a scan, nothing synced is lost (reliability T1)."
)
