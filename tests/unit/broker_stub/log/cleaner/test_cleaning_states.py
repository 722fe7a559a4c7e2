"""Which partitions are being cleaned, and which must not be."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.log.cleaner.cleaning_states import CleaningStates
from triokafka.broker_stub.log.io_throttle import Throttle
from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition

TP = TopicPartition("orders", 0)


def test_pass_begins_and_ends() -> None:
    states = CleaningStates()
    states.begin(TP)
    assert states.in_progress(TP)
    assert not states.is_idle(TP)
    assert states.all_in_progress() == [TP]
    assert states.end(TP) is False
    assert states.is_idle(TP)


def test_aborted_pass_is_in_progress_until_it_has_noticed() -> None:
    states = CleaningStates()
    states.begin(TP)
    states.abort(TP)
    assert states.is_aborted(TP)
    assert states.in_progress(TP)
    with pytest.raises(IllegalStateError):
        states.begin(TP)
    assert states.end(TP) is True
    states.begin(TP)
    assert not states.is_aborted(TP)


def test_aborting_an_idle_partition_does_nothing() -> None:
    states = CleaningStates()
    states.abort(TP)
    assert states.is_idle(TP)


def test_paused_partition_is_not_cleaned_until_it_was_resumed_as_often() -> None:
    states = CleaningStates()
    states.begin(TP)
    states.pause(TP)
    states.pause(TP)
    assert states.end(TP) is True
    assert states.is_paused(TP)
    states.resume(TP)
    with pytest.raises(IllegalStateError, match="cannot be cleaned now"):
        states.begin(TP)
    states.resume(TP)
    assert states.is_idle(TP)


def test_only_begun_or_paused_cleaning_can_be_ended_or_resumed() -> None:
    states = CleaningStates()
    with pytest.raises(IllegalStateError):
        states.end(TP)
    with pytest.raises(IllegalStateError):
        states.resume(TP)


def test_throttle_spreads_the_bytes_of_all_threads_over_time() -> None:
    throttle = Throttle()
    assert throttle.wait_for(500, 1000, now=10.0) == 0.5
    assert throttle.wait_for(500, 1000, now=10.0) == 1.0
    assert throttle.wait_for(500, 1000, now=20.0) == 0.5
    assert throttle.wait_for(500, float("inf"), now=30.0) == 0.0
