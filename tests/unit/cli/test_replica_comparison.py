"""Replicas are compared batch by batch, or record by record if each compacts for itself."""

from __future__ import annotations

import pytest

from triokafka.cli.replica_comparison import Difference, ReplicaComparison, ReplicaEntries
from triokafka.errors import CorruptRecordError
from triokafka.records import encode_batch


def batch(offset: int, *values: bytes, epoch: int = 0) -> bytes:
    records = [(1_000, b"k", value, ()) for value in values]
    return encode_batch(records, base_offset=offset, leader_epoch=epoch)


def compared(logs: dict[int, bytes], *, start: int = 0, end: int = 10, by_record: bool = False) -> Difference | int:
    """The first difference, or the number of equal entries."""
    replicas = {broker: ReplicaEntries(start, end, by_record=by_record) for broker in logs}
    comparison = ReplicaComparison(replicas, by_record=by_record)
    for broker, log in logs.items():
        replicas[broker].feed(log)
    while True:
        outcome = comparison.step()
        if isinstance(outcome, Difference):
            return outcome
        if not outcome:
            return comparison.compared


LOG = batch(0, b"a", b"b") + batch(2, b"c") + batch(3, b"d")


def test_equal_logs_are_equal() -> None:
    assert compared({1: LOG, 2: LOG, 3: LOG}) == 3


def test_batch_with_other_content_is_the_first_difference() -> None:
    found = compared({1: LOG, 2: batch(0, b"a", b"b") + batch(2, b"x") + batch(3, b"d")})
    assert isinstance(found, Difference)
    assert found.offset == 2
    assert [entry is not None and entry.offset for entry in found.entries.values()] == [2, 2]


def test_missing_batch_is_a_difference() -> None:
    found = compared({1: LOG, 2: batch(0, b"a", b"b") + batch(3, b"d")})
    assert isinstance(found, Difference) and found.offset == 2
    found = compared({1: LOG, 2: batch(0, b"a", b"b")})
    assert isinstance(found, Difference) and found.entries[2] is None


def test_other_leader_epoch_is_a_difference() -> None:
    found = compared({1: batch(0, b"a", epoch=1), 2: batch(0, b"a", epoch=2)})
    assert isinstance(found, Difference) and found.offset == 0


def test_batches_behind_the_end_do_not_count() -> None:
    assert compared({1: LOG, 2: LOG + batch(4, b"new")}, end=4) == 3


def test_compacted_logs_may_lack_records_but_not_differ_in_one() -> None:
    short = batch(2, b"c") + batch(3, b"d")
    assert compared({1: LOG, 2: short}, by_record=True) == 4
    assert compared({1: LOG, 2: batch(0, b"a") + batch(3, b"d")}, by_record=True) == 4
    found = compared({1: LOG, 2: batch(0, b"a") + batch(3, b"x")}, by_record=True)
    assert isinstance(found, Difference) and found.offset == 3


def test_reading_continues_behind_the_last_complete_batch() -> None:
    replica = ReplicaEntries(0, 4, by_record=False)
    assert replica.must_read
    assert not replica.feed(LOG[:40])
    assert replica.feed(LOG[:-5])
    assert replica.next_offset == 3 and not replica.must_read
    for _ in range(2):
        replica.take()
    assert replica.must_read
    assert replica.feed(batch(2, b"c") + batch(3, b"d"))
    assert replica.first is not None and replica.first.offset == 3


def test_damaged_batch_is_an_error() -> None:
    damaged = bytearray(LOG)
    damaged[70] ^= 1
    with pytest.raises(CorruptRecordError):
        compared({1: bytes(damaged)})
