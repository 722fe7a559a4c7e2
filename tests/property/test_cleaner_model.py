"""A cleaned log against a plain list of all records that were ever appended."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.broker_stub.log import LogConfig, PartitionLog
from triokafka.broker_stub.log.cleaner.cleanable_range import cleanable_range
from triokafka.broker_stub.log.cleaner.cleaner_pass import CleanerLimits, CleanerPass, CleaningStats, Replacement
from triokafka.broker_stub.log.producer_snapshots import SNAPSHOT_SUFFIX
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.records.batch import DELETE_HORIZON
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage

TP = TopicPartition("orders", 0)
DIRECTORY = "data/orders-0"
NOW = 1_700_000_000_000
RETENTION = 10_000
CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, cleanup_policy=("compact",), delete_retention_ms=RETENTION
)
NO_BROKER, IDEMPOTENT, TRANSACTIONAL = -1, 7, (30, 31)
ENTRY = 24


@dataclass
class Record:
    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    producer: int
    aborted: bool | None = False  # None: its transaction is open


@dataclass
class Model:
    log: PartitionLog
    storage: MemoryStorage
    now: int = NOW
    records: list[Record] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    cleaned_up_to: int = 0
    horizons: dict[int, int] = field(default_factory=dict)  # of tombstones, by offset, as first seen

    def append(self, producer: int, items: list[tuple[bytes, bytes | None]], codec: str) -> None:
        sequence = -1 if producer == NO_BROKER else self.sequences.get(producer, 0)
        transactional = producer in TRANSACTIONAL
        data = encode_batch(
            [(self.now + i, key, value, (("h", key),)) for i, (key, value) in enumerate(items)],
            compression=codec,
            producer_id=producer,
            producer_epoch=-1 if producer == NO_BROKER else 0,
            base_sequence=sequence,
            transactional=transactional,
        )
        first = self.log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=self.now).first_offset
        if producer != NO_BROKER:
            self.sequences[producer] = sequence + len(items)
        for i, (key, value) in enumerate(items):
            state = None if transactional else False
            self.records.append(Record(first + i, self.now + i, key, value, producer, state))

    def end_transaction(self, producer: int, commit: bool) -> None:
        key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 5)
        data = encode_batch(
            [(self.now, key, value, ())], producer_id=producer, producer_epoch=0, transactional=True, control=True
        )
        self.log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=self.now, from_client=False)
        for record in self.records:
            if record.producer == producer and record.aborted is None:
                record.aborted = not commit

    def clean(self, keys: int, roll: bool) -> CleaningStats | None:
        if roll:
            self.log.roll(now_ms=self.now)
        self.log.flush()
        stable = self.log.last_stable_offset(self.log.log_end_offset)
        found = cleanable_range(self.log, self.cleaned_up_to, committed=stable, now_ms=self.now)
        assert found.first_dirty == self.cleaned_up_to
        if found.end_offset <= found.first_dirty:
            return None
        limits = CleanerLimits(map_bytes=keys * ENTRY, load_factor=0.9, step_bytes=200)
        cleaning = CleanerPass(
            self.storage, self.log, first_dirty=found.first_dirty, end=found.end_offset, now_ms=self.now, limits=limits
        )
        for step in cleaning.steps():
            if isinstance(step, Replacement):
                self.log.replace_segments(step.old, [step.new], now_ms=self.now)
        assert found.first_dirty < cleaning.stats.end_offset <= found.end_offset
        self.cleaned_up_to = cleaning.stats.end_offset
        return cleaning.stats

    def reopen(self, *, forget_producers: bool) -> None:
        point = self.log.recovery_point
        self.log.abandon()
        self.storage.kill()
        if forget_producers:
            for name in self.storage.list_dir(DIRECTORY):
                if name.endswith(SNAPSHOT_SUFFIX):
                    self.storage.remove(f"{DIRECTORY}/{name}")
        self.log = PartitionLog.open(self.storage, DIRECTORY, TP, CONFIG, now_ms=self.now, recovery_point=point)

    # Invariants

    def stored(self, start: int = 0) -> Iterator[tuple[Record, int | None]]:
        """Yield all records in the log except markers, with the delete horizon of their batch; as a reader from
        ``start`` on.
        """
        known = {record.offset: record for record in self.records}
        offset = start
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 300).records
            if not data:
                return
            for info in iter_batches(data, check_crc=True):
                batch = memoryview(data)[info.position : info.end]
                horizon = info.base_timestamp if info.attributes & DELETE_HORIZON else None
                for record in decode_records(batch, from_offset=offset):
                    original = known[record.offset]
                    assert (record.timestamp, record.key, record.value, record.headers) == (
                        original.timestamp,
                        original.key,
                        original.value,
                        (("h", original.key),),
                    )
                    yield original, horizon
                offset = info.next_offset

    def check(self) -> None:
        stored = list(self.stored())
        offsets = [record.offset for record, _ in stored]
        assert offsets == sorted(set(offsets))
        # Except for aborted records, which may be removed anywhere.
        dirty = [record.offset for record in self.records if record.offset >= self.cleaned_up_to and not record.aborted]
        left = [r.offset for r, _ in stored if r.offset >= self.cleaned_up_to and not r.aborted]
        assert left == dirty, "the dirty part was changed"
        last: dict[bytes, Record] = {r.key: r for r in self.records if r.aborted is False}
        found: dict[bytes, Record] = {r.key: r for r, _ in stored if r.aborted is False}
        for key, record in last.items():
            if record.value is not None:
                assert found[key] is record, "the last value of a key is lost"
            elif key in found:
                assert found[key] is record, "a deleted key reappeared"
            else:
                assert self.horizons[record.offset] <= self.now, "a tombstone was removed too early"
        clean = [(record, horizon) for record, horizon in stored if record.offset < self.cleaned_up_to]
        keys = [record.key for record, _ in clean]
        assert len(set(keys)) == len(keys), "the clean part has a key twice"
        assert not any(record.aborted for record, _ in clean), "the clean part has a record of an aborted transaction"
        for record, horizon in stored:
            if record.value is None and horizon is not None:
                assert self.horizons.setdefault(record.offset, horizon) == horizon, "a horizon was moved"

    def check_reading_from_anywhere(self) -> None:
        everything = [record for record, _ in self.stored()]
        for start in range(0, self.log.log_end_offset + 1):
            seen = [record for record, _ in self.stored(start)]
            assert seen == [record for record in everything if record.offset >= start]

    def check_producers(self) -> None:
        for producer, sequence in self.sequences.items():
            state = self.log.producers.get(producer)
            assert state is not None
            assert state.last_sequence == sequence - 1


KEYS = st.sampled_from([b"a", b"b", b"c", b"dd", b"", b"f" * 20])
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.just(b"v" * 40))
OPERATIONS = st.one_of(
    st.tuples(
        st.just("append"),
        st.sampled_from([NO_BROKER, NO_BROKER, IDEMPOTENT, *TRANSACTIONAL]),
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4),
        st.sampled_from(["none", "none", "gzip", "zstd"]),
    ),
    st.tuples(st.just("end"), st.sampled_from(TRANSACTIONAL), st.booleans()),
    st.tuples(st.just("clean"), st.sampled_from([3, 5, 1000]), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1, RETENTION])),
    st.tuples(st.just("reopen"), st.booleans()),
)


PLANS = st.lists(OPERATIONS, min_size=20, max_size=60)


@settings(max_examples=80, deadline=None)
@given(PLANS)
def test_compaction_retains_the_last_record_of_every_key_and_all_offsets(operations: list[tuple[object, ...]]) -> None:
    """Checks offsets and order, the dirty part, tombstones until their horizon, producers, readers at any offset."""
    run(operations)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=5_000, deadline=None)
@given(PLANS)
def test_compaction_retains_the_last_record_of_every_key_in_long_runs(operations: list[tuple[object, ...]]) -> None:
    run(operations)


def run(operations: list[tuple[object, ...]]) -> None:
    """Run a plan, and compare after every pass and at the end."""
    storage = MemoryStorage()
    storage.make_dirs("data")
    log = PartitionLog.open(storage, DIRECTORY, TP, CONFIG, now_ms=NOW)
    model = Model(log, storage)
    for name, *arguments in operations:
        if name == "append":
            model.append(*arguments)  # type: ignore[arg-type]
        elif name == "end":
            model.end_transaction(*arguments)  # type: ignore[arg-type]
        elif name == "clean":
            model.clean(*arguments)  # type: ignore[arg-type]
            model.check()
        elif name == "wait":
            model.now += arguments[0]  # type: ignore[operator]
        else:
            model.reopen(forget_producers=arguments[0])  # type: ignore[arg-type]
            model.check_producers()
    # All transactions have ended, the log is rolled, and time passes: the log is now as small as possible.
    for producer in TRANSACTIONAL:
        model.end_transaction(producer, commit=True)
    model.check()
    for _ in range(3):
        model.append(NO_BROKER, [(b"last", b"x")], "none")
        model.cleaned_up_to = 0
        model.clean(1000, roll=True)
        model.check()
        model.now += RETENTION
    model.check_reading_from_anywhere()
    assert all(record.value is not None for record, _ in model.stored() if record.offset < model.cleaned_up_to)
    model.reopen(forget_producers=True)
    model.check()
    model.check_producers()
