"""Subscription, assignment and positions, without a consumer."""

from __future__ import annotations

import pytest

from triokafka.client.consumer.subscription_state import EARLIEST, LATEST, Mode, SubscriptionState
from triokafka.errors import IllegalStateError
from triokafka.structs import OffsetAndMetadata, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def assigned(*partitions: TopicPartition) -> SubscriptionState:
    state = SubscriptionState()
    state.assign(partitions)
    return state


def test_one_mode_excludes_the_others_until_unsubscribed() -> None:
    state = SubscriptionState()
    assert state.subscribe(["t"])
    assert not state.subscribe(["t"])
    assert state.subscribe(["u", "t"])
    for other in (lambda: state.assign([T0]), lambda: state.subscribe_pattern("t.*")):
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            other()
    state.unsubscribe()
    assert state.mode is Mode.NONE
    state.assign([T0])
    with pytest.raises(IllegalStateError, match="assigned by hand"):
        state.subscribe(["t"])


def test_subscribing_to_no_topics_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one topic"):
        SubscriptionState().subscribe([])


def test_a_new_subscription_keeps_the_assignment_until_the_group_changes_it() -> None:
    state = SubscriptionState()
    state.subscribe(["t"])
    state.assign_from_group([T0, T1], keep=False)
    state.subscribe(["u"])
    assert state.assignment == (T0, T1)


def test_patterns_match_whole_names_and_skip_internal_topics() -> None:
    state = SubscriptionState()
    state.subscribe_pattern("t.*|__.*")
    assert state.match(["t1", "at1", "__consumer_offsets", "__mine"])
    assert state.topics == ("__mine", "t1")
    assert not state.match(["__mine", "t1", "x"])
    everything = SubscriptionState(exclude_internal_topics=False)
    everything.subscribe_pattern(".*")
    everything.match(["__consumer_offsets"])
    assert everything.topics == ("__consumer_offsets",)


def test_assigning_by_hand_keeps_the_state_of_partitions_in_both() -> None:
    state = assigned(T0, T1)
    state.seek(T0, 5)
    state.seek(T1, 7)
    state.assign([T1, U0])
    assert state.assignment == (T1, U0)
    assert (state.state(T1).position, state.state(U0).position) == (7, None)


def test_an_eager_assignment_resets_state_and_a_cooperative_one_retains_it() -> None:
    state = SubscriptionState()
    state.subscribe(["t"])
    state.assign_from_group([T0], keep=False)
    state.seek(T0, 5)
    state.pause([T0])
    state.assign_from_group([T0, T1], keep=True)
    assert (state.state(T0).position, state.paused) == (5, (T0,))
    state.assign_from_group([T0, T1], keep=False)
    assert (state.state(T0).position, state.paused) == (None, ())


def test_group_cannot_assign_unsubscribed_topics() -> None:
    state = SubscriptionState()
    state.subscribe(["t"])
    state.assign_from_group([T0], keep=False)
    with pytest.raises(IllegalStateError, match="'u'"):
        state.assign_from_group([T0, U0], keep=False)
    assert state.assignment == (T0,)


def test_a_reset_clears_the_position_and_a_seek_ends_the_reset() -> None:
    state = assigned(T0)
    assert state.without_position() == [(T0, state.state(T0).version)]
    assert not state.state(T0).fetchable
    state.seek(T0, 5)
    assert state.state(T0).fetchable
    state.request_reset(T0, EARLIEST)
    assert (state.state(T0).position, state.without_position()) == (None, [])
    [(partition, _, to)] = state.awaiting_reset()
    assert (partition, to) == (T0, EARLIEST)
    state.seek(T0, 6)
    assert state.awaiting_reset() == []


def test_an_outdated_lookup_changes_nothing() -> None:
    state = assigned(T0)
    state.request_reset(T0, LATEST)
    [(_, version, _)] = state.awaiting_reset()
    state.seek(T0, 3)
    assert not state.resolve(T0, version, 99)
    assert state.state(T0).position == 3
    state.assign([])
    assert not state.resolve(T0, version, 99)


def test_returned_records_are_consumed_but_not_finished() -> None:
    state = assigned(T0, T1)
    state.seek(T0, 0)
    state.hand_out(T0, 10, 4)
    assert state.consumed() == {T0: OffsetAndMetadata(10, "", 4)}
    assert state.finished({}) == {T0: OffsetAndMetadata(0)}
    state.finish_all()
    assert state.finished({}) == {T0: OffsetAndMetadata(10, "", 4)}
    assert state.finished({T0: 10}) == {}


def test_pausing_needs_all_partitions_to_be_assigned() -> None:
    state = assigned(T0)
    state.seek(T0, 0)
    with pytest.raises(IllegalStateError, match="t-1"):
        state.pause([T0, T1])
    assert state.state(T0).fetchable
    state.pause([T0])
    assert not state.state(T0).fetchable
    state.resume([T0])
    assert state.state(T0).fetchable


def test_a_newer_leader_epoch_requests_validation_once() -> None:
    state = assigned(T0)
    state.seek(T0, 5, 2)
    state.check_epochs(lambda _: 2)
    assert state.state(T0).fetchable
    state.check_epochs(lambda _: 3)
    assert not state.state(T0).fetchable
    [(partition, version, epoch)] = state.awaiting_validation()
    assert (partition, epoch) == (T0, 2)
    state.validated(T0, version, 3)
    state.check_epochs(lambda _: 3)
    assert state.state(T0).fetchable


def test_no_record_of_a_wholly_truncated_epoch_is_valid() -> None:
    """Its start is known only as far as records of it were read."""
    state = assigned(T0)
    state.seek(T0, 0)
    state.hand_out(T0, 4, 1)
    state.hand_out(T0, 7, 2)
    state.hand_out(T0, 9, 2)
    assert state.same_until(T0, 2, 8) == OffsetAndMetadata(8, "", 2)
    assert state.same_until(T0, 1, 20) == OffsetAndMetadata(4, "", 1)
    assert state.same_until(T0, 1, 3) == OffsetAndMetadata(3, "", 1)
    assert state.same_until(T0, 0, 20) == OffsetAndMetadata(4, "", 0), "and the position is validated again"
    assert state.same_until(T0, -1, 20) is None
    assert state.same_until(T0, -1, -1) is None


def test_take_back_restores_the_epoch() -> None:
    state = assigned(T0)
    state.seek(T0, 0, 1)
    state.hand_out(T0, 4, 1)
    state.hand_out(T0, 9, 3)
    state.take_back(T0, 8, 3)
    assert state.same_until(T0, 1, 20) == OffsetAndMetadata(4, "", 1)
    state.take_back(T0, 7, 2)
    assert (state.state(T0).position, state.state(T0).position_epoch) == (7, 2)
    assert state.same_until(T0, 1, 20) == OffsetAndMetadata(20, "", 1), "the start of epoch 2 is unknown"
    state.hand_out(T0, 9, 3)
    state.take_back(T0, 7)
    assert (state.state(T0).position, state.state(T0).position_epoch) == (7, 2)


def test_only_data_of_a_former_leader_is_fetched_again_and_the_position_stays() -> None:
    state = assigned(T0, T1)
    for partition, epoch in ((T0, 1), (T1, 2)):
        state.seek(partition, 5)
        state.state(partition).fetched_epoch = epoch
    assert state.with_new_leader(lambda _: 2) == [T0]
    before = state.state(T0).version
    state.fetch_again(T0)
    assert state.with_new_leader(lambda _: 2) == []
    assert state.state(T0).version != before
    assert (state.state(T0).position, state.state(T0).finished) == (5, 5)
