"""Verification of transactional appends (KIP-890, part 1)."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.log.producer_state import Marker, ProducerStates
from triokafka.broker_stub.log.verification_guard import UNVERIFIED_ALLOWED
from triokafka.errors import InvalidTxnStateError, OutOfOrderSequenceNumberError
from triokafka.records.batch import CONTROL, TRANSACTIONAL, BatchInfo


def header(epoch: int = 0, *, sequence: int = 0, offset: int = 0, control: bool = False) -> BatchInfo:
    attributes = TRANSACTIONAL | (CONTROL if control else 0)
    return BatchInfo(0, offset, 60, 0, 2, 0, attributes, 0, 0, 0, 7, epoch, -1 if control else sequence, 1)


def begin(states: ProducerStates, epoch: int = 0, sequence: int = 0, *, bumps: bool = True) -> object:
    return states.begin_verification(7, epoch, sequence, bumps_epochs=bumps, now_ms=0)


def test_batch_with_the_guard_begins_the_transaction_and_later_ones_need_none() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 0, bumps_epochs=True, now_ms=0)
    states.check_verified(header(), guard)
    states.replay(header())
    assert begin(states) is None
    states.check_verified(header(sequence=1, offset=1), None)


def test_batch_without_a_guard_or_with_an_old_one_is_refused() -> None:
    states = ProducerStates()
    with pytest.raises(InvalidTxnStateError):
        states.check_verified(header(), None)
    old = states.begin_verification(7, 0, 0, bumps_epochs=False, now_ms=0)
    states._end_transaction(header(offset=0, control=True), Marker(True, 0))
    with pytest.raises(InvalidTxnStateError):
        states.check_verified(header(), old)
    states.check_verified(header(), UNVERIFIED_ALLOWED)


def test_waiting_requests_share_a_guard_and_the_lowest_sequence_comes_first() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 5, bumps_epochs=False, now_ms=0)
    assert states.begin_verification(7, 0, 3, bumps_epochs=False, now_ms=0) is guard
    with pytest.raises(OutOfOrderSequenceNumberError):
        states.check_verified(header(sequence=5), guard)
    states.check_verified(header(sequence=3), guard)


def test_unknown_producer_begins_with_sequence_0_under_version_2() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 4, bumps_epochs=True, now_ms=0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        states.check_verified(header(sequence=4), guard)
    older = ProducerStates()
    guard = older.begin_verification(7, 0, 4, bumps_epochs=False, now_ms=0)
    older.check_verified(header(sequence=4), guard)


def test_verification_of_a_new_epoch_is_needed_while_an_older_transaction_is_open() -> None:
    states = ProducerStates()
    states.replay(header())
    assert begin(states, 0) is None
    assert begin(states, 1) is not None


def test_verifications_expire() -> None:
    states = ProducerStates()
    guard = states.begin_verification(7, 0, 0, bumps_epochs=True, now_ms=0)
    states.expire(1_000, 1_000)
    with pytest.raises(InvalidTxnStateError):
        states.check_verified(header(), guard)


def test_transaction_is_open_for_its_own_epoch_until_its_marker() -> None:
    states = ProducerStates()
    assert not states.is_open(7, 1)
    states.replay(header(1))
    assert states.is_open(7, 1)
    assert not states.is_open(7, 0)
    assert not states.is_open(7, 2)
    assert not states.is_open(8, 1)
    states._end_transaction(header(1, offset=1, control=True), Marker(True, 0))
    assert not states.is_open(7, 1)
