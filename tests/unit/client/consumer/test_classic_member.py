"""A member under the classic protocol as a state machine: its reaction to every response of the coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from triokafka.assignors import Assignment, MemberSubscription, resolve_assignors
from triokafka.client.consumer.membership.classic_member import ClassicMember, ClassicState, GroupConfig, JoinStep
from triokafka.client.consumer.membership.heartbeat_clock import HeartbeatClock
from triokafka.client.consumer.membership.payloads import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from triokafka.client.consumer.membership.poll_interval import PollInterval
from triokafka.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
)
from triokafka.protocol.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from triokafka.protocol.api.sync_group import SyncGroupResponse
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(*, strategies: str = "range", instance: str | None = None) -> ClassicMember:
    config = GroupConfig(group_id="g", session_timeout_ms=10, rebalance_timeout_ms=20, group_instance_id=instance)
    return ClassicMember(config, resolve_assignors(strategies))


def accepted(leader: str = "me", generation: int = 1, **more: Any) -> JoinGroupResponse:
    metadata = encode_subscription(MemberSubscription(["t"]))
    members = [JoinGroupResponseMember(member_id=name, metadata=metadata) for name in ("me", "other")]
    return JoinGroupResponse(
        generation_id=generation,
        protocol_name="range",
        leader=leader,
        member_id="me",
        members=members if leader == "me" else [],
        **more,
    )


def refused(code: int, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name="", member_id=member_id)


def plan(*partitions: TopicPartition) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=encode_assignment(Assignment(partitions)))


def stable(**options: Any) -> ClassicMember:
    made = member(**options)
    made.join(["t"], [])
    assert made.joined(accepted("other")) is JoinStep.SYNC
    assert made.synced(plan(T0)) is JoinStep.DONE
    return made


def test_a_follower_joins_syncs_and_is_stable() -> None:
    me = member(strategies="range,roundrobin")
    assert (me.state, me.needs_rejoin) == (ClassicState.UNJOINED, "first join")
    request = me.join(["t"], [])
    assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
    assert (request.protocol_type, request.member_id, request.rebalance_timeout_ms) == ("consumer", "", 20)
    assert me.joined(accepted("other")) is JoinStep.SYNC
    assert (me.state, me.must_assign, me.heartbeats, me.needs_rejoin) == (ClassicState.SYNCING, False, True, None)
    assert me.sync({}).assignments == []
    assert me.synced(plan(T1)) is JoinStep.DONE
    assert (me.state, list(me.assignment.partitions)) == (ClassicState.STABLE, [T1])


def test_the_leader_assigns_for_all_members() -> None:
    me = member()
    me.join(["t"], [])
    me.joined(accepted("me"))
    assert (me.must_assign, me.group_topics) == (True, ("t",))
    assignments = me.assign({"t": 2})
    request = me.sync(assignments)
    plans = {item.member_id: list(decode_assignment(item.assignment).partitions) for item in request.assignments}
    assert plans == {"me": [T0], "other": [T1]}


def test_a_static_leader_that_returned_does_not_assign() -> None:
    me = member()
    me.join(["t"], [])
    me.joined(accepted("me", skip_assignment=True))
    assert (me.is_leader, me.must_assign) == (True, False)


@pytest.mark.parametrize(
    ("code", "step", "member_id"),
    [
        (79, JoinStep.JOIN_AGAIN, "given"),
        (25, JoinStep.JOIN_AGAIN, ""),
        (22, JoinStep.JOIN_AGAIN, "me"),
        (14, JoinStep.BACK_OFF, "me"),
        (27, JoinStep.BACK_OFF, "me"),
        (15, JoinStep.FIND_COORDINATOR, "me"),
        (16, JoinStep.FIND_COORDINATOR, "me"),
    ],
)
def test_transient_join_errors(code: int, step: JoinStep, member_id: str) -> None:
    me = stable()
    me.request_rejoin("test")
    me.join(["t"], [])
    assert me.joined(refused(code, "given")) is step
    assert (me.member_id, me.state) == (member_id, ClassicState.UNJOINED)
    assert me.needs_rejoin is not None


@pytest.mark.parametrize("code", [23, 24, 26, 30, 81, 82])
def test_permanent_join_errors(code: int) -> None:
    me = member()
    me.join(["t"], [])
    with pytest.raises(KafkaError, match="group 'g' refused this member"):
        me.joined(refused(code))
    assert me.needs_rejoin is not None


def test_an_assignor_that_was_not_offered_is_an_error() -> None:
    me = member(strategies="roundrobin")
    me.join(["t"], [])
    with pytest.raises(InconsistentGroupProtocolError, match="chose the assignor 'range'"):
        me.joined(accepted())


@pytest.mark.parametrize(
    ("code", "step", "member_id"),
    [
        (27, JoinStep.JOIN_AGAIN, "me"),
        (25, JoinStep.JOIN_AGAIN, ""),
        (22, JoinStep.JOIN_AGAIN, ""),
        (16, JoinStep.FIND_COORDINATOR, "me"),
        (14, JoinStep.BACK_OFF, "me"),
    ],
)
def test_sync_errors_lead_to_another_join(code: int, step: JoinStep, member_id: str) -> None:
    me = member()
    me.join(["t"], [])
    me.joined(accepted())
    assert me.synced(SyncGroupResponse(error_code=code)) is step
    assert (me.member_id, me.state) == (member_id, ClassicState.UNJOINED)
    assert me.needs_rejoin is not None


def test_a_forbidden_sync_is_raised() -> None:
    me = member()
    me.join(["t"], [])
    me.joined(accepted())
    with pytest.raises(GroupAuthorizationFailedError):
        me.synced(SyncGroupResponse(error_code=30))


@pytest.mark.parametrize(
    ("code", "keeps_id", "loses_partitions", "rejoins"),
    [(0, True, False, False), (27, True, False, True), (22, True, True, True), (25, False, True, True)],
)
def test_heartbeat_error_codes_change_the_member(
    code: int, keeps_id: bool, loses_partitions: bool, rejoins: bool
) -> None:
    me = stable()
    assert me.heartbeat_answered(code, me.identity)
    assert (me.member_id == "me", me.lost, me.needs_rejoin is not None) == (
        keeps_id,
        loses_partitions,
        rejoins,
    )
    assert me.heartbeats is (not loses_partitions)


def test_a_coordinator_that_moved_is_looked_up_and_the_membership_continues() -> None:
    me = stable()
    assert not me.heartbeat_answered(16, me.identity)
    assert (me.state, me.needs_rejoin) == (ClassicState.STABLE, None)


def test_a_response_to_an_earlier_generation_is_ignored() -> None:
    me = stable()
    before = me.identity
    me.request_rejoin("test")
    me.join(["t"], [])
    assert me.heartbeat_answered(27, before)
    assert me.needs_rejoin is None, "a response that was in flight while joining is ignored"
    me.joined(accepted("other", generation=2))
    assert me.heartbeat_answered(25, before)
    assert (me.member_id, me.state) == ("me", ClassicState.SYNCING)


def test_a_sync_response_after_the_membership_has_ended_leads_to_another_join() -> None:
    """A heartbeat or a commit of the new generation can be refused while the sync is in flight."""
    me = member()
    me.join(["t"], [])
    me.joined(accepted("other"))
    assert me.heartbeat_answered(25, me.identity)
    assert me.synced(SyncGroupResponse(error_code=25)) is JoinStep.JOIN_AGAIN
    assert (me.member_id, me.state) == ("", ClassicState.UNJOINED)
    assert me.needs_rejoin is not None


def test_member_removed_while_it_waits_for_its_assignment_joins_again() -> None:
    """The sync response, whatever it is, belongs to a membership that has ended."""
    me = member()
    me.join(["t"], [])
    me.joined(accepted())
    me.heartbeat_answered(25, me.identity)
    assert me.synced(plan(T0)) is JoinStep.JOIN_AGAIN
    assert (me.member_id, me.state, me.needs_rejoin is not None) == ("", ClassicState.UNJOINED, True)


def test_a_member_that_is_fenced_while_it_waits_for_its_assignment_does_not_join_again() -> None:
    me = member(instance="a")
    me.join(["t"], [])
    me.joined(accepted())
    with pytest.raises(FencedInstanceIdError):
        me.heartbeat_answered(82, me.identity)
    with pytest.raises(FencedInstanceIdError):
        me.synced(SyncGroupResponse(error_code=82))


def test_a_fenced_member_never_acts_for_its_instance_again() -> None:
    me = stable(instance="one")
    with pytest.raises(FencedInstanceIdError):
        me.heartbeat_answered(82, me.identity)
    assert (me.member_id, me.leaves, me.lost) == ("", False, True)


def test_only_dynamic_members_leave() -> None:
    assert stable().leaves
    assert not stable(instance="one").leaves
    me = stable()
    build = me.leave("bye")
    me.left()
    assert build(5).members[0].member_id == "me"
    assert build(2).member_id == "me"
    assert (me.generation, me.member_id, me.needs_rejoin) == (-1, "", "joining anew")


def test_a_changed_subscription_rejoins() -> None:
    me = stable()
    me.subscription_changed(["t"])
    assert me.needs_rejoin is None
    me.subscription_changed(["t", "u"])
    assert me.needs_rejoin == "the subscription has changed"


def test_owned_partitions_are_sent_only_when_all_assignors_are_cooperative() -> None:
    both = member(strategies="range,cooperative-sticky")
    only = member(strategies="cooperative-sticky")
    assert (both.cooperative, only.cooperative) == (False, True)
    subscriptions = [decode_subscription(p.metadata) for m in (both, only) for p in m.join(["t"], [T0]).protocols]
    assert [list(subscription.owned_partitions) for subscription in subscriptions] == [[], [], [T0]]


def test_responses_in_the_wrong_state_are_programming_errors() -> None:
    with pytest.raises(IllegalStateError):
        member().joined(accepted())
    with pytest.raises(IllegalStateError):
        stable().synced(plan(T0))


def test_a_lost_connection_leads_to_another_join_under_the_same_id() -> None:
    me = stable()
    me.request_rejoin("test")
    me.join(["t"], [])
    me.interrupted()
    assert (me.state, me.member_id) == (ClassicState.UNJOINED, "me")
    assert me.needs_rejoin == "the connection to the coordinator broke"


# ---------------------------------------------------------------- clock


def clock(now: float = 100.0) -> HeartbeatClock:
    made = HeartbeatClock(interval=3, session_timeout=10, now=now)
    made.reset(now)
    return made


def test_the_next_heartbeat_is_an_interval_after_the_last_or_the_reset() -> None:
    watch = clock()
    assert watch.next_at == 103
    watch.sent(103)
    watch.answered(103.1)
    assert watch.next_at == 106
    watch.reset(105)
    assert watch.next_at == 108


def test_a_failed_heartbeat_is_repeated_after_the_backoff() -> None:
    watch = clock()
    watch.sent(103)
    watch.failed(104, 0.1)
    assert watch.next_at == 104.1
    watch.answered(104.2)
    assert watch.next_at == 106


def test_a_silent_coordinator_is_presumed_dead_after_the_session_timeout() -> None:
    watch = clock()
    watch.answered(105)
    assert not watch.session_expired(115)
    assert watch.session_expired(115.1)


def test_user_without_polls_expires_on_a_separate_clock() -> None:
    interval = PollInterval(60, now=100.0)
    assert not interval.expired(160)
    assert interval.expired(160.1)
    interval.note_progress(1, 150)
    assert interval.expires_at == 210
