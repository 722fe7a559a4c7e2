"""A member under the consumer protocol (KIP-848) as a state machine: its reactions to the coordinator's responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from triokafka.backoff import Backoff
from triokafka.client.consumer.membership.consumer_protocol_member import (
    NO_EPOCH,
    ConsumerGroupConfig,
    ConsumerProtocolMember,
    MemberState,
    Partitions,
    SubscribedTo,
)
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

X, Y = UUID(int=1), UUID(int=2)
INTERVAL = 5.0
BACKOFF = Backoff(1.0, 8.0)
NO_JITTER = 0.5


class Rig:
    """A member and its clock; each method is one event at `now`."""

    def __init__(self, **config: Any) -> None:
        self.now = 100.0
        clock = HeartbeatClock(interval=9.0, session_timeout=float("inf"), now=self.now)
        settings = ConsumerGroupConfig(group_id="g", rebalance_timeout_ms=300_000, **config)
        self.member = ConsumerProtocolMember(settings, "me", clock, BACKOFF)
        self.member.subscribe(SubscribedTo(("t",)))
        self.sent_as = 0

    def beat(self) -> ConsumerGroupHeartbeatRequest:
        heartbeat = self.member.heartbeat(self.now)
        self.sent_as = heartbeat.sent_as
        return heartbeat.request

    def answer(self, epoch: int = 1, target: Partitions | None = None, **more: Any) -> KafkaError | None:
        assignment = None
        if target is not None:
            topics = [TopicPartitions(topic_id=topic, partitions=list(numbers)) for topic, numbers in target.items()]
            assignment = Assignment(topic_partitions=topics)
        response = ConsumerGroupHeartbeatResponse(
            member_id="me",
            member_epoch=epoch,
            heartbeat_interval_ms=int(INTERVAL * 1000),
            assignment=assignment,
            **more,
        )
        return self.member.answered(response, self.sent_as, now=self.now, chance=NO_JITTER)

    def refuse(self, error: type[BrokerResponseError], message: str | None = None) -> KafkaError | None:
        response = ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
        )
        return self.member.answered(response, self.sent_as, now=self.now, chance=NO_JITTER)

    def join(self) -> None:
        self.member.join()
        self.beat()

    def stable(self, owned: Partitions | None = None) -> Rig:
        self.join()
        owned = {X: frozenset({0, 1})} if owned is None else owned
        self.answer(1, owned)
        self.member.settle(owned, complete=True)
        self.beat()
        self.answer(1)
        assert (self.member.state, self.waits) == (MemberState.STABLE, INTERVAL)
        return self

    @property
    def waits(self) -> float:
        """Return the seconds until the next heartbeat; 0 if it is due now."""
        return max(0.0, self.member.due_at - self.now)


def owned_in(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, list[int]] | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: list(topic.partitions) for topic in request.topic_partitions}


# ---------------------------------------------------------------- joining


def test_the_first_heartbeat_is_complete() -> None:
    rig = Rig(group_instance_id="i", rack_id="r", server_assignor="range")
    rig.member.join()
    assert (rig.member.state, rig.waits) == (MemberState.JOINING, 0)
    request = rig.beat()
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "me", 0)
    assert (request.instance_id, request.rack_id, request.server_assignor) == ("i", "r", "range")
    assert (request.rebalance_timeout_ms, list(request.subscribed_topic_names or ())) == (300_000, ["t"])
    assert owned_in(request) == {}
    assert request.subscribed_topic_regex is None


def test_heartbeat_response_sets_epoch_interval_and_target() -> None:
    rig = Rig()
    rig.join()
    assert rig.answer(3, {X: frozenset({0, 1})}) is None
    assert (rig.member.state, rig.member.epoch, rig.member.clock.interval) == (
        MemberState.RECONCILING,
        3,
        INTERVAL,
    )
    assert rig.member.target == {X: frozenset({0, 1})}
    assert rig.waits == INTERVAL


def test_owned_partitions_are_reported_at_once_and_only_once() -> None:
    rig = Rig()
    rig.join()
    rig.answer(3, {X: frozenset({0, 1})})
    rig.member.settle({X: frozenset({0, 1})}, complete=True)
    assert (rig.member.state, rig.waits) == (MemberState.STABLE, 0)
    assert owned_in(rig.beat()) == {X: [0, 1]}
    rig.answer(3)
    assert rig.waits == INTERVAL
    rig.now += INTERVAL
    assert rig.waits == 0
    request = rig.beat()
    assert (request.member_epoch, request.rebalance_timeout_ms) == (3, -1)
    assert (owned_in(request), request.subscribed_topic_names, request.server_assignor) == (None, None, None)


def test_no_partitions_are_acknowledged_too() -> None:
    """The group may have more members than partitions."""
    rig = Rig()
    rig.join()
    rig.answer(1, {})
    assert rig.member.state is MemberState.RECONCILING
    rig.member.settle({}, complete=True)
    assert owned_in(rig.beat()) == {}


def test_a_lost_response_to_the_first_heartbeat_creates_no_second_member() -> None:
    """The member chooses its own id (KIP-1082)."""
    rig = Rig()
    rig.join()
    rig.member.unanswered(rig.now, NO_JITTER)
    assert (rig.member.state, rig.waits) == (MemberState.JOINING, 1.0)
    request = rig.beat()
    assert (request.member_id, request.member_epoch, owned_in(request)) == ("me", 0, {})


def test_an_id_assigned_by_an_older_coordinator_is_adopted() -> None:
    rig = Rig()
    rig.join()
    response = ConsumerGroupHeartbeatResponse(member_id="theirs", member_epoch=1, heartbeat_interval_ms=1)
    rig.member.answered(response, rig.sent_as, now=rig.now, chance=NO_JITTER)
    assert rig.member.member_id == "theirs"


def test_a_heartbeat_interval_of_zero_is_ignored() -> None:
    rig = Rig()
    rig.join()
    response = ConsumerGroupHeartbeatResponse(member_id="me", member_epoch=1, heartbeat_interval_ms=0)
    rig.member.answered(response, rig.sent_as, now=rig.now, chance=NO_JITTER)
    assert rig.waits == 9.0


# ---------------------------------------------------------------- reconciling


def test_a_new_target_is_acknowledged_when_it_has_been_reached() -> None:
    rig = Rig().stable()
    rig.now += INTERVAL
    rig.beat()
    rig.answer(1, {X: frozenset({0})})
    assert (rig.member.state, rig.waits) == (MemberState.RECONCILING, INTERVAL)
    rig.now += INTERVAL
    assert owned_in(rig.beat()) is None  # heartbeats continue during the revocation
    rig.answer(1)
    rig.member.settle({X: frozenset({0})}, complete=True)
    request = rig.beat()
    assert owned_in(request) == {X: [0]}
    rig.answer(2, {X: frozenset({0}), Y: frozenset({5})})
    assert (rig.member.state, rig.member.epoch) == (MemberState.RECONCILING, 2)


def test_a_target_with_unknown_topic_names_is_adopted_in_parts() -> None:
    rig = Rig()
    rig.join()
    rig.answer(1, {X: frozenset({0}), Y: frozenset({1})})
    rig.member.settle({X: frozenset({0})}, complete=False)
    assert (rig.member.state, owned_in(rig.beat())) == (MemberState.RECONCILING, {X: [0]})
    rig.answer(1)
    rig.member.settle({X: frozenset({0}), Y: frozenset({1})}, complete=True)
    assert (rig.member.state, owned_in(rig.beat())) == (MemberState.STABLE, {X: [0], Y: [1]})


def test_withdrawn_revocation_is_acknowledged_again() -> None:
    """The coordinator waits for the member's owned partitions before it continues."""
    rig = Rig().stable()
    rig.beat()
    rig.answer(1, {X: frozenset({0})})
    rig.beat()
    rig.answer(1, {X: frozenset({0, 1})})
    assert (rig.member.state, rig.waits) == (MemberState.STABLE, 0)
    assert owned_in(rig.beat()) == {X: [0, 1]}


def test_the_same_target_again_changes_nothing() -> None:
    rig = Rig().stable()
    rig.beat()
    rig.answer(1, {X: frozenset({1, 0})})
    assert (rig.member.state, rig.waits) == (MemberState.STABLE, INTERVAL)


# ---------------------------------------------------------------- subscription


def test_another_subscription_is_sent_at_once() -> None:
    rig = Rig().stable()
    assert rig.member.subscribe(SubscribedTo(("t", "u")))
    assert rig.waits == 0
    request = rig.beat()
    assert (list(request.subscribed_topic_names or ()), owned_in(request)) == (["t", "u"], None)
    rig.answer(1)
    assert not rig.member.subscribe(SubscribedTo(("t", "u")))
    assert rig.beat().subscribed_topic_names is None


def test_a_pattern_needs_version_1_and_is_cleared_by_an_empty_one() -> None:
    rig = Rig()
    rig.member.subscribe(SubscribedTo((), "t.*"))
    rig.member.join()
    heartbeat = rig.member.heartbeat(rig.now)
    assert (heartbeat.min_version, heartbeat.request.subscribed_topic_regex) == (1, "t.*")
    assert list(heartbeat.request.subscribed_topic_names or ()) == []
    rig.sent_as = heartbeat.sent_as
    rig.answer(1, {})
    assert rig.member.heartbeat(rig.now).min_version == 0
    rig.member.subscribe(SubscribedTo(("t",)))
    rig.member.unanswered(rig.now, NO_JITTER)
    request = rig.beat()
    assert (request.subscribed_topic_regex, list(request.subscribed_topic_names or ())) == ("", ["t"])


def test_skipped_partitions_are_checked_again_with_another_subscription() -> None:
    rig = Rig().stable()
    rig.member.subscribe(SubscribedTo(("t", "u")))
    assert rig.member.state is MemberState.RECONCILING


# ---------------------------------------------------------------- errors

FATAL = [
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    InvalidRequestError,
    UnsupportedAssignorError,
    InvalidRegularExpressionError,
    GroupMaxSizeReachedError,
    UnsupportedVersionError,
]
PASSING = [
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    RequestTimedOutError,
    UnreleasedInstanceIdError,
]


@pytest.mark.parametrize("error", FATAL)
def test_permanent_error_is_raised_and_ends_a_joining_membership(error: type[BrokerResponseError]) -> None:
    rig = Rig()
    rig.join()
    with pytest.raises(error, match="because"):
        rig.refuse(error, "because")
    assert (rig.member.state, rig.member.epoch, rig.member.heartbeats) == (
        MemberState.OUTSIDE,
        NO_EPOCH,
        False,
    )
    rig.now += 10
    rig.member.join()  # when the user retries
    assert rig.beat().member_epoch == 0


@pytest.mark.parametrize("error", FATAL)
def test_permanent_error_does_not_end_an_existing_membership(error: type[BrokerResponseError]) -> None:
    """The coordinator reports the removal; until then the member owns its partitions."""
    rig = Rig().stable()
    rig.beat()
    with pytest.raises(error, match="because"):
        rig.refuse(error, "because")
    assert (rig.member.state, rig.waits) == (MemberState.STABLE, 1.0)
    request = rig.beat()
    assert (owned_in(request), list(request.subscribed_topic_names or ())) == ({X: [0, 1]}, ["t"])


@pytest.mark.parametrize("make", [Rig.join, Rig.stable], ids=["joining", "in the group"])
@pytest.mark.parametrize("error", PASSING)
def test_transient_error_backs_off_and_the_next_heartbeat_is_complete(
    error: type[BrokerResponseError], make: Callable[[Rig], object]
) -> None:
    rig = Rig()
    make(rig)
    state, epoch = rig.member.state, rig.member.epoch
    waits = []
    for _ in range(5):
        rig.beat()
        assert isinstance(rig.refuse(error), error)
        waits.append(rig.waits)
    assert waits == [1, 2, 4, 8, 8]
    assert (rig.member.state, rig.member.epoch) == (state, epoch)
    request = rig.beat()
    assert (request.rebalance_timeout_ms, list(request.subscribed_topic_names or ())) == (300_000, ["t"])
    rig.answer(1)
    assert rig.waits == INTERVAL


@pytest.mark.parametrize("error", [FencedMemberEpochError, UnknownMemberIdError, GroupIdNotFoundError])
def test_a_removed_member_gives_up_everything_and_joins_again(error: type[BrokerResponseError]) -> None:
    rig = Rig().stable()
    rig.beat()
    assert isinstance(rig.refuse(error), error)
    member = rig.member
    assert (member.state, member.epoch, member.owned, member.heartbeats) == (
        MemberState.LOST,
        NO_EPOCH,
        {},
        False,
    )
    with pytest.raises(IllegalStateError):
        member.join()
    member.released()
    member.join()
    assert rig.waits == 0
    request = rig.beat()
    assert (request.member_id, request.member_epoch, owned_in(request)) == ("me", 0, {})


def test_repeatedly_removed_member_rejoins_more_slowly() -> None:
    rig = Rig().stable()
    waits = []
    for _ in range(4):
        rig.beat()
        rig.refuse(FencedMemberEpochError)
        rig.member.released()
        rig.member.join()
        waits.append(rig.waits)
        rig.beat()
        rig.answer(1, {})
    assert waits == [0, 2, 4, 8]
    rig.beat()
    rig.answer(1)
    rig.beat()
    rig.refuse(FencedMemberEpochError)
    rig.member.released()
    rig.member.join()
    assert rig.waits == 0


def test_a_fenced_instance_stays_out() -> None:
    """The member must not act for an instance id that another member has now, not even to leave."""
    rig = Rig(group_instance_id="i").stable()
    rig.beat()
    with pytest.raises(FencedInstanceIdError, match="another member of group 'g' has this group_instance_id"):
        rig.refuse(FencedInstanceIdError)
    assert (rig.member.state, rig.member.leave()) == (MemberState.LOST, None)


def test_member_waits_for_an_unreleased_instance_id() -> None:
    rig = Rig(group_instance_id="i")
    rig.join()
    error = rig.refuse(UnreleasedInstanceIdError)
    assert "group_instance_id='i' still belongs to another member" in str(error)
    assert rig.member.state is MemberState.JOINING


def test_cluster_without_the_protocol_raises_an_error_with_a_remedy() -> None:
    rig = Rig()
    rig.join()
    with pytest.raises(UnsupportedVersionError, match=r"group_protocol='classic'.*group\.version"):
        rig.refuse(UnsupportedVersionError)


def test_a_response_to_an_earlier_membership_is_ignored() -> None:
    rig = Rig().stable()
    rig.beat()
    before = rig.sent_as
    rig.member.left()
    rig.join()
    rig.sent_as = before
    for error in (UnknownMemberIdError, GroupAuthorizationFailedError):
        assert rig.refuse(error) is None
    assert rig.answer(7, {X: frozenset({0})}) is None
    assert (rig.member.state, rig.member.epoch, rig.member.target) == (MemberState.JOINING, 0, None)


# ---------------------------------------------------------------- leaving


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_a_static_member_leaves_temporarily(instance: str | None, epoch: int) -> None:
    rig = Rig(group_instance_id=instance).stable()
    request = rig.member.leave()
    assert request is not None
    assert (request.member_id, request.member_epoch, request.instance_id) == ("me", epoch, instance)
    rig.member.left()
    assert (rig.member.state, rig.member.epoch, rig.member.heartbeats) == (
        MemberState.OUTSIDE,
        NO_EPOCH,
        False,
    )


def test_member_that_may_have_joined_also_leaves() -> None:
    rig = Rig()
    assert rig.member.leave() is None
    rig.join()
    assert rig.member.leave() is not None


def test_a_member_outside_the_group_owns_nothing_and_sends_nothing() -> None:
    member = Rig().member
    with pytest.raises(IllegalStateError):
        member.settle({}, complete=True)
    with pytest.raises(IllegalStateError):
        member.heartbeat(0.0)


def test_hurry_makes_the_heartbeat_due_at_once() -> None:
    rig = Rig().stable()
    rig.member.hurry()
    assert rig.waits == 0
    rig.beat()
    rig.answer(2)
    assert rig.waits == INTERVAL
