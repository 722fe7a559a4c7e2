"""Transactions in a log: where readers of committed records stop, and which records they must skip.

There is no coordinator here: batches and markers are made by hand.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from tests.unit.broker_stub.log.builders import DIRECTORY, NOW, append, config, fill, from_producer, open_log
from triokafka.broker_stub.log import AppendInfo, PartitionLog, producer_state
from triokafka.broker_stub.log.transaction_index import AbortedTransaction
from triokafka.errors import InvalidProducerEpochError, InvalidTxnStateError, TransactionCoordinatorFencedError
from triokafka.records import decode_records, encode_batch
from triokafka.world.memory import MemoryStorage

ALICE, BOB = 1, 2


def write(log: PartitionLog, producer_id: int, sequence: int, count: int = 2) -> AppendInfo:
    """Append ``count`` records of a transaction."""
    values = [b"%d" % i for i in range(count)]
    return append(log, from_producer(*values, sequence=sequence, producer_id=producer_id, transactional=True))


def marker(
    producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 5, timestamp: int = NOW
) -> bytearray:
    """The batch with which a coordinator ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator_epoch)
    return bytearray(
        encode_batch(
            [(timestamp, key, value, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=-1,
            transactional=True,
            control=True,
        )
    )


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> int:
    """End a transaction; returns the offset of the marker."""
    return append(log, marker(producer_id, commit=commit), from_client=False).last_offset


def stable(log: PartitionLog) -> int:
    return log.last_stable_offset(log.log_end_offset)


def index_path(base: int = 0) -> str:
    return f"{DIRECTORY}/{base:020d}.txnindex"


def test_readers_of_committed_records_stop_at_the_oldest_open_transaction() -> None:
    log = open_log(MemoryStorage())
    fill(log, 3)
    assert stable(log) == 3
    write(log, ALICE, 0)
    write(log, BOB, 0)
    assert stable(log) == 3
    end(log, ALICE, commit=True)
    assert stable(log) == 5
    end(log, BOB, commit=False)
    assert stable(log) == log.log_end_offset == 9


def test_a_transaction_whose_marker_is_not_committed_is_undecided() -> None:
    """Otherwise a reader could see its records, which might be gone after a failover."""
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)
    last = end(log, ALICE, commit=True)
    assert log.last_stable_offset(last) == 0
    assert log.last_stable_offset(last + 1) == last + 1


def test_the_stable_offset_is_not_before_the_start_of_the_log() -> None:
    """A reader that continues from there would be out of range again and again."""
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)
    fill(log, 3)
    log.advance_log_start_offset(4)
    assert stable(log) == 4
    assert log.last_stable_offset(4) == 4
    end(log, ALICE, commit=True)
    assert stable(log) == log.log_end_offset


def test_an_aborted_transaction_is_written_to_the_index_in_kafkas_format() -> None:
    """Version, producer, first offset, marker, last stable offset."""
    storage = MemoryStorage()
    log = open_log(storage)
    write(log, ALICE, 0)
    write(log, BOB, 0)
    end(log, BOB, commit=False)
    log.flush()
    assert storage.read_file(index_path()) == struct.pack(">hqqqq", 0, BOB, 2, 4, 0)
    end(log, ALICE, commit=False)
    log.flush()
    assert storage.read_file(index_path())[34:] == struct.pack(">hqqqq", 0, ALICE, 0, 5, 6)


def test_where_nothing_is_aborted_there_is_no_index() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    write(log, ALICE, 0)
    end(log, ALICE, commit=True)
    log.close()
    assert not storage.exists(index_path())


def test_a_reader_learns_of_the_aborted_transactions_in_its_range() -> None:
    """Including those whose marker is in a later segment, and no others."""
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)  # 0, 1
    write(log, BOB, 0)  # 2, 3
    end(log, ALICE, commit=False)  # 4
    log.roll(now_ms=NOW)
    fill(log, 3)  # 5 to 7
    end(log, BOB, commit=False)  # 8
    log.roll(now_ms=NOW)
    write(log, ALICE, 2)  # 9, 10
    end(log, ALICE, commit=False)  # 11
    alice, bob, later = (
        AbortedTransaction(ALICE, 0, 4, 2),
        AbortedTransaction(BOB, 2, 8, 9),
        AbortedTransaction(ALICE, 9, 11, 12),
    )
    assert log.aborted_transactions(0, 12) == [alice, bob, later]
    assert log.aborted_transactions(0, 2) == [alice]
    assert log.aborted_transactions(0, 5) == [alice, bob]
    assert log.aborted_transactions(5, 9) == [bob]
    assert log.aborted_transactions(9, 12) == [later]
    assert log.aborted_transactions(12, 12) == []


def history(log: PartitionLog) -> None:
    """Transactions that are open, committed and aborted, over several segments."""
    for number in range(12):
        for producer_id in (ALICE, BOB, 3):
            write(log, producer_id, number * 2)
            if (number + producer_id) % 3 == 0:
                end(log, producer_id, commit=number % 2 == 0)


def knowledge(log: PartitionLog) -> object:
    return (
        stable(log),
        log.aborted_transactions(0, stable(log)),
        [(s.producer_id, s.epoch, s.last_sequence, s.coordinator_epoch) for s in log.producers.all()],
        [log.producers.transaction_start(s.producer_id) for s in log.producers.all()],
    )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, 30, 77])
def test_transactions_are_known_again_after_a_restart(clean: bool, recovery_point: int) -> None:
    """From the index and the newest snapshot, or from the batches after the recovery point."""
    storage = MemoryStorage()
    log = open_log(storage)
    history(log)
    known = knowledge(log)
    log.flush()
    if clean:
        log.close()
    storage.kill()
    assert knowledge(open_log(storage, clean=clean, recovery_point=recovery_point)) == known


def test_state_after_a_power_cut_agrees_with_the_batches() -> None:
    for seed in range(30):
        storage = MemoryStorage()
        storage.make_dirs("data")
        storage.sync_dir("")
        log = open_log(storage)
        history(log)
        log.flush()
        point = log.log_end_offset
        for sequence in range(24, 60, 2):
            write(log, ALICE, sequence)
            if sequence % 4:
                end(log, ALICE, commit=False)
        storage.crash(random.Random(seed))
        again = open_log(storage, recovery_point=point)
        fresh = MemoryStorage()
        model = open_log(fresh)
        while model.log_end_offset < again.log_end_offset:
            model.append_as_follower(again.read(model.log_end_offset, 10_000).records, now_ms=NOW)
        assert again.log_end_offset >= point
        assert knowledge(again) == knowledge(model)


def test_the_index_is_there_after_a_power_cut_though_its_file_came_late() -> None:
    """The index file is created last, so its name must be synced as well."""
    storage = MemoryStorage()
    storage.make_dirs("data")
    storage.sync_dir("")
    log = open_log(storage)
    write(log, ALICE, 0)
    log.flush()
    end(log, ALICE, commit=False)
    log.close()
    storage.crash(random.Random(0), tear=False)
    assert open_log(storage, clean=True).aborted_transactions(0, 3) == [AbortedTransaction(ALICE, 0, 2, 3)]


def test_a_cut_takes_markers_back() -> None:
    """The transaction is open again, and not aborted."""
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)
    at = end(log, ALICE, commit=False)
    fill(log, 2)
    log.truncate_to(at)
    assert stable(log) == 0
    assert log.aborted_transactions(0, at) == []
    end(log, ALICE, commit=False)
    assert log.aborted_transactions(0, at + 1) == [AbortedTransaction(ALICE, 0, at, at + 1)]


@pytest.mark.parametrize("content", [b"\0" * 33, b"\0\1" + b"\0" * 32, b"\0" * 68])
def test_a_damaged_index_is_rebuilt(content: bytes) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    history(log)
    known = log.aborted_transactions(0, stable(log))
    log.close()
    base = log.segments[1].base_offset
    file = storage.open(index_path(base))
    file.truncate(0)
    file.write_at(0, content)
    assert open_log(storage, clean=True).aborted_transactions(0, stable(log)) == known


def test_markers_of_the_past_are_refused() -> None:
    """An old epoch of the producer, or of the coordinator, must not end a newer transaction."""
    log = open_log(MemoryStorage())
    append(log, from_producer(b"a", sequence=0, producer_id=ALICE, epoch=3, transactional=True))
    with pytest.raises(InvalidProducerEpochError):
        append(log, marker(ALICE, commit=True, epoch=2), from_client=False)
    append(log, marker(ALICE, commit=True, epoch=3, coordinator_epoch=7), from_client=False)
    with pytest.raises(TransactionCoordinatorFencedError):
        append(log, marker(ALICE, commit=True, epoch=3, coordinator_epoch=6), from_client=False)


@pytest.mark.parametrize("rolled", [False, True])
def test_markers_count_in_look_ups_by_time(rolled: bool) -> None:
    """As in Kafka: a reader that begins at one passes over it."""
    log = open_log(MemoryStorage())
    fill(log, 3, step_ms=-1000)
    write(log, ALICE, 0)
    if rolled:
        log.roll(now_ms=NOW)
    append(log, marker(ALICE, commit=True, timestamp=NOW + 10_000), from_client=False)
    assert log.offset_of_max_timestamp() == (5, NOW + 10_000, 0)
    assert log.offset_of_max_timestamp(5) == (4, NOW + 1, 0)
    assert log.offset_of_max_timestamp(4) == (0, NOW, 0)
    assert log.offset_for_timestamp(NOW + 2) == (5, NOW + 10_000, 0)


def test_a_producer_in_a_transaction_writes_nothing_else() -> None:
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)
    with pytest.raises(InvalidTxnStateError):
        append(log, from_producer(b"x", sequence=2, producer_id=ALICE))


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)
    log.expire_producers(NOW + 10**9, 1000)
    assert stable(log) == 0
    end(log, ALICE, commit=True)
    log.expire_producers(NOW + 10**9, 1000)
    assert len(log.producers) == 0


def test_the_snapshot_between_segments_is_the_newest_alone() -> None:
    """One snapshot for each large flush would fill the folder."""
    storage = MemoryStorage(crashable=False)
    log = open_log(storage, config(segment_bytes=100 << 20, max_message_bytes=30 << 20))
    for sequence in range(3):
        append(log, from_producer(bytes(17 << 20), sequence=sequence))
        log.flush()
    assert [name for name in storage.list_dir(DIRECTORY) if name.endswith(".snapshot")] == [f"{3:020d}.snapshot"]


def test_a_leader_decodes_each_marker_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryStorage())
    write(log, ALICE, 0)
    write(log, BOB, 0)
    decoded = []

    def counted(*args: Any, **options: Any) -> list[Any]:
        decoded.append(args)
        return decode_records(*args, **options)

    monkeypatch.setattr(producer_state, "decode_records", counted)
    both = marker(ALICE, commit=True) + marker(BOB, commit=False)
    append(log, both, from_client=False)
    assert len(decoded) == 2
    assert stable(log) == log.log_end_offset
    assert [entry.producer_id for entry in log.aborted_transactions(0, log.log_end_offset)] == [BOB]
