"""Groups of the consumer protocol (KIP-848), rule by rule. Randomized tests are in ``tests/property``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.coordinator.rig import PARTITION, TOPIC_IDS, Rig, code
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.describe import describe
from triokafka.coordinator.consumer_group.heartbeat import Beat, check
from triokafka.coordinator.consumer_group.member import ClassicTraits, MemberProfile, MemberProgress, MemberState
from triokafka.coordinator.consumer_group.records import (
    EpochChange,
    PatternChange,
    PatternMatch,
    ProfileChange,
    ProgressChange,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
    decode,
    encode,
)
from triokafka.coordinator.consumer_group.resolved_regular_expressions import matching_topics
from triokafka.coordinator.group import group_administration as admin
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.records import OffsetKey
from triokafka.coordinator.offsets.fetch import check_member
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    ConfigurationError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupSubscribedToTopicError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    KafkaError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from triokafka.protocol.api.delete_groups import DeletableGroupResult
from triokafka.protocol.api.offset_fetch import OffsetFetchRequestGroup

ORDERS = TOPIC_IDS["orders"]


def beat(member_id: str, epoch: int = 0, owned: Any = None, **fields: Any) -> Beat:
    """Return a heartbeat; one with epoch 0 is complete, others have only the given fields."""
    joining = {"topic_names": frozenset({"orders"}), "rebalance_timeout_ms": 5_000, "owned": {}} if epoch == 0 else {}
    everything = {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "topic_names": None,
        "pattern": None,
        "server_assignor": None,
        "owned": None if owned is None else {ORDERS: frozenset(owned)} if owned else {},
        "client_id": "c",
        "client_host": "/h",
        **joining,
        **fields,
    }
    return Beat(member_id=member_id, member_epoch=epoch, **everything)


def assigned(response: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    """Return the partitions of ``orders`` in a response; None without an assignment."""
    if response.assignment is None:
        return None
    return [number for topic in response.assignment.topic_partitions for number in topic.partitions]


def durable(rig: Rig) -> dict[str, Any]:
    """Return the group's state except the soft topics version."""
    return {
        name: str(value) for name, value in vars(rig.shard.consumer_groups["g"]).items() if name != "topics_version"
    }


def refusal(reply: Reply[Any]) -> type[KafkaError]:
    with pytest.raises(KafkaError) as caught:
        _ = reply.value
    return caught.type


def test_the_first_member_gets_everything_at_once() -> None:
    rig = Rig()
    response = rig.beat(beat("a")).value
    assert (response.member_epoch, assigned(response)) == (1, [0, 1, 2, 3])
    assert response.heartbeat_interval_ms == 5_000


def test_second_member_waits_until_the_first_has_revoked() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    waiting = rig.beat(beat("b")).value
    assert (waiting.member_epoch, assigned(waiting)) == (2, [])
    response = rig.beat(beat("a", 1, owned=[0, 1, 2, 3])).value
    assert (response.member_epoch, assigned(response)) == (1, [0, 1]), "it keeps its epoch until it has revoked"
    still = rig.beat(beat("b", 2, owned=[])).value
    assert assigned(still) is None
    done = rig.beat(beat("a", 1, owned=[0, 1])).value
    assert (done.member_epoch, assigned(done)) == (2, None)
    assert assigned(rig.beat(beat("b", 2, owned=[])).value) == [2, 3]


def test_members_that_join_together_are_assigned_together() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=1_000)
    assert assigned(rig.beat(beat("a")).value) == [0, 1, 2, 3], "the first assignment is computed at once"
    for member_id in ("b", "c", "d"):
        waiting = rig.beat(beat(member_id)).value
        assert (waiting.member_epoch, assigned(waiting)) == (1, [])
    assert rig.beat(beat("a", 1, owned=[0, 1, 2, 3])).value.assignment is None
    group = rig.shard.consumer_groups["g"]
    assert (group.epoch, group.target_epoch) == (4, 1)
    rig.pass_time(1.0)
    assert rig.beat(beat("b", 1, owned=[])).value.member_epoch == 4
    assert group.target_epoch == 4
    assert assigned(rig.beat(beat("a", 1, owned=[0, 1, 2, 3])).value) == [0]


def test_wall_clock_set_back_does_not_delay_assignments() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=1_000)
    rig.beat(beat("a"))
    rig.world.clock -= 100
    assert rig.beat(beat("b")).value.member_epoch == 2


def test_response_has_the_assignment_when_it_changed_or_the_request_is_full() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    assert assigned(rig.beat(beat("a", 1)).value) is None
    full = beat("a", 1, owned=[0, 1, 2, 3], rebalance_timeout_ms=5_000, topic_names=frozenset({"orders"}))
    assert assigned(rig.beat(full).value) == [0, 1, 2, 3]


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    before = rig.log.appends
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    assert rig.log.appends == before


def test_retry_with_the_previous_epoch_is_accepted_without_revoked_partitions() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    assert rig.beat(beat("a", 1, owned=[0, 1])).value.member_epoch == 2
    assert rig.beat(beat("a", 1, owned=[0, 1])).value.member_epoch == 2, "the response was lost"
    assert refusal(rig.beat(beat("a", 1, owned=[0, 1, 2]))) is FencedMemberEpochError
    assert refusal(rig.beat(beat("a", 1))) is FencedMemberEpochError, "it does not report partitions"
    assert refusal(rig.beat(beat("a", 7, owned=[]))) is FencedMemberEpochError


def test_fenced_member_rejoins_at_once_and_gets_its_partitions() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("a", 1, topic_names=frozenset({"orders", "bills"}), owned=[0, 1, 2, 3]))
    assert rig.beat(beat("a", 2, topic_names=frozenset({"orders"}), owned=[0, 1, 2, 3])).value.member_epoch == 3
    again = rig.beat(beat("a")).value
    assert assigned(again) == [0, 1, 2, 3]


def test_expired_member_is_removed_and_others_get_its_partitions() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1]))
    for _ in range(8):
        rig.pass_time(5)
        rig.beat(beat("b", 2, owned=[2, 3]))
    rig.pass_time(5)
    assert list(rig.shard.consumer_groups["g"].profiles) == ["b"]
    assert assigned(rig.beat(beat("b", 2, owned=[2, 3])).value) == [0, 1, 2, 3]
    assert refusal(rig.beat(beat("a", 2, owned=[0, 1]))) is UnknownMemberIdError


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    rig.pass_time(4)
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    assert "a" in rig.shard.consumer_groups["g"].profiles
    rig.pass_time(1.1)
    assert list(rig.shard.consumer_groups["g"].profiles) == ["b"]


def test_failed_removal_of_a_member_is_retried() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.log.fails_with, rig.log.failures_left = FencedMemberEpochError("disk"), 3
    rig.pass_time(44)
    assert "a" in rig.shard.consumer_groups["g"].profiles
    rig.pass_time(10)
    assert "a" not in rig.shard.consumer_groups["g"].profiles


def test_failed_step_does_not_extend_the_revocation_deadline() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    for member_id in ("c", "d"):  # so that the member has more partitions to revoke
        rig.beat(beat(member_id))
    rig.pass_time(4)
    rig.log.fails_with, rig.log.failures_left = FencedMemberEpochError("disk"), 1
    rig.beat(beat("a", 1, owned=[0, 1]))
    progress = rig.shard.consumer_groups["g"].progress_of("a")
    assert progress.state is MemberState.UNREVOKED_PARTITIONS and progress.epoch == 1
    rig.pass_time(1.1)
    assert sorted(rig.shard.consumer_groups["g"].profiles) == ["b", "c", "d"]


def test_restart_restarts_sessions_and_revocation_deadlines() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    rig.pass_time(4)
    rig.restart()
    rig.pass_time(4)
    assert sorted(rig.shard.consumer_groups["g"].profiles) == ["a", "b"]
    assert assigned(rig.beat(beat("a", 1, owned=[0, 1])).value) is None
    rig.pass_time(44)
    assert list(rig.shard.consumer_groups["g"].profiles) == ["a"]


def test_group_configuration_overrides_session_timeout_and_heartbeat_interval() -> None:
    rig = Rig()
    rig.settings["g"] = {"consumer.session.timeout.ms": "1000", "consumer.heartbeat.interval.ms": "100"}
    assert rig.beat(beat("a")).value.heartbeat_interval_ms == 100
    assert rig.beat(beat("a"), group_id="other").value.heartbeat_interval_ms == 5_000
    rig.pass_time(1.1)
    assert list(rig.shard.consumer_groups["other"].profiles) == ["a"]
    assert not rig.shard.consumer_groups["g"].profiles


# --- static members ---


def test_static_member_gets_its_partitions_back_after_a_temporary_leave() -> None:
    rig = Rig()
    rig.beat(beat("a", instance_id="i"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1], instance_id="i"))
    rig.beat(beat("b", 2, owned=[]))
    epoch = rig.shard.consumer_groups["g"].epoch
    assert rig.last_beat("a", -2, instance_id="i").value.member_epoch == -2
    assert assigned(rig.beat(beat("b", 2, owned=[2, 3])).value) is None, "the static member's partitions stay reserved"
    back = rig.beat(beat("a2", instance_id="i")).value
    assert (back.member_epoch, assigned(back)) == (epoch, [0, 1])
    assert rig.shard.consumer_groups["g"].epoch == epoch
    assert refusal(rig.beat(beat("a", 2, owned=[], instance_id="i"))) is FencedInstanceIdError


def test_instance_id_is_released_by_leaving_or_session_expiry() -> None:
    rig = Rig()
    rig.beat(beat("a", instance_id="i"))
    assert refusal(rig.beat(beat("a2", instance_id="i"))) is UnreleasedInstanceIdError
    rig.pass_time(46)
    assert assigned(rig.beat(beat("a2", instance_id="i")).value) == [0, 1, 2, 3]


def test_requests_of_an_unknown_instance_are_refused() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    assert refusal(rig.beat(beat("x", 1, instance_id="i"))) is UnknownMemberIdError
    assert refusal(rig.last_beat("x", -2, instance_id="i")) is UnknownMemberIdError
    assert refusal(rig.last_beat("x")) is UnknownMemberIdError


# --- topics and patterns ---


def test_new_partitions_are_assigned_at_the_next_heartbeat() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.topics.set("orders", 6)
    assert assigned(rig.beat(beat("a", 1, owned=[0, 1, 2, 3])).value) == [0, 1, 2, 3, 4, 5]


def test_deleted_topic_is_revoked() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.topics.delete("orders")
    assert assigned(rig.beat(beat("a", 1, owned=[0, 1, 2, 3])).value) == []


def test_pattern_matches_new_topics_and_is_removed_with_its_last_member() -> None:
    rig = Rig()
    first = rig.beat(beat("a", topic_names=frozenset(), pattern="ord.*|new")).value
    assert assigned(first) == [0, 1, 2, 3]
    rig.topics.set("new", 2)
    rig.topics.set("newer", 2)
    rig.pass_time(2)
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    group = rig.shard.consumer_groups["g"]
    assert group.patterns["ord.*|new"].topics == {"orders", "new"}, "a pattern matches whole names"
    rig.beat(beat("b", topic_names=frozenset(), pattern="bi.ls"))
    rig.last_beat("a")
    assert list(rig.shard.consumer_groups["g"].patterns) == ["bi.ls"]
    rig.beat(beat("b", 3, topic_names=frozenset({"bills"}), pattern="", owned=[]))
    assert not rig.shard.consumer_groups["g"].patterns


def test_invalid_pattern_writes_nothing_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 logs invalid patterns to standard error by default."""
    with pytest.raises(InvalidRegularExpressionError):
        matching_topics("(", [])
    assert capfd.readouterr().err == ""


def test_invalid_pattern_is_refused_and_an_expensive_one_is_accepted() -> None:
    rig = Rig()
    assert refusal(rig.beat(beat("a", pattern="(["))) is InvalidRegularExpressionError
    assert not rig.shard.consumer_groups
    assert matching_topics("(a|aa)+$", ["a" * 5_000 + "b", "aa"]) == {"aa"}


def test_group_uses_the_assignor_that_most_members_request() -> None:
    rig = Rig()
    rig.beat(beat("a", server_assignor="range"))
    group = rig.shard.consumer_groups["g"]
    assert group.preferred_assignor(group.profiles.values(), ("uniform", "range")) == "range"
    rig.beat(beat("b"))
    assert rig.shard.consumer_groups["g"].targets["b"] == {ORDERS: frozenset({2, 3})}


# --- invalid requests and limits ---


def request(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    first = {"subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 5_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "a", "member_epoch": 0, **first, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rack_id": " \t"},
        {"member_id": ""},
        {"member_id": "  "},
        {"member_id": "", "member_epoch": 3},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(topic_id=ORDERS, partitions=[1])]},
        {"subscribed_topic_names": None},
    ],
    ids=str,
)
def test_invalid_heartbeat_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        check(request(**fields), 1)


def test_only_version_0_allows_an_empty_member_id() -> None:
    check(request(member_id=""), 0)
    check(request(), 1)
    with pytest.raises(UnsupportedAssignorError, match="uniform, range"):
        check(request(server_assignor="sticky"), 1)


def test_full_consumer_group_refuses_new_members_and_keeps_its_own() -> None:
    rig = Rig(group_consumer_max_size=1)
    rig.beat(beat("a"))
    assert refusal(rig.beat(beat("b"))) is GroupMaxSizeReachedError
    assert rig.beat(beat("a", 1)).value.error_code == 0


def test_only_a_joining_member_creates_a_group() -> None:
    rig = Rig()
    assert refusal(rig.beat(beat("a", 3, owned=[]))) is GroupIdNotFoundError
    assert refusal(rig.last_beat("a")) is GroupIdNotFoundError


# --- beside classic groups ---


def test_consumer_member_replaces_an_empty_classic_group_and_keeps_its_offsets() -> None:
    rig = Rig()
    joining = rig.join()
    rig.pass_time(3)
    rig.leave(joining.value.member_id)
    rig.commit()
    assert rig.beat(beat("a")).value.error_code == 0
    assert "g" not in rig.shard.groups
    rig.restart()
    assert "g" not in rig.shard.groups
    assert list(rig.shard.consumer_groups) == ["g"]
    assert rig.shard.offsets.read(OffsetKey("g", "orders", 0)) is not None


def test_classic_member_replaces_an_empty_consumer_group() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.last_beat("a")
    joining = rig.join()
    rig.pass_time(3)
    assert code(joining) == 0
    assert not rig.shard.consumer_groups
    rig.restart()
    assert not rig.shard.consumer_groups
    assert "g" in rig.shard.groups


def test_list_and_describe_distinguish_group_types() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    listed = admin.list_groups(rig.shard, ["g"], (), ())
    assert [(group.group_id, group.group_type, group.group_state) for group in listed] == [("g", "consumer", "Stable")]
    assert admin.list_groups(rig.shard, ["g"], (), ("classic",)) == []
    described = admin.describe(rig.shard, "g", 6)
    assert (described.group_state, described.error_code) == ("Dead", GroupIdNotFoundError.code)


def test_an_uncommitted_group_is_not_listed() -> None:
    rig = Rig()
    rig.log.commits_at_once = False
    rig.beat(beat("a"))
    assert admin.list_groups(rig.shard, ["g"], (), ()) == []
    rig.commit_log()
    assert [group.group_id for group in admin.list_groups(rig.shard, ["g"], (), ())] == ["g"]


def test_a_group_is_deleted_with_its_offsets_when_it_is_empty() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.commit("a", 1, version=9)
    delete: Reply[DeletableGroupResult] = Reply()
    assert refusal(rig.ask(admin.delete, delete, group_id="g")) is NonEmptyGroupError  # type: ignore[arg-type]
    rig.last_beat("a")
    assert code(rig.ask(admin.delete, Reply(), group_id="g")) == 0  # type: ignore[arg-type]
    rig.restart()
    assert not rig.shard.consumer_groups
    assert not rig.shard.groups


def test_an_empty_group_and_its_offsets_expire() -> None:
    rig = Rig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)
    rig.beat(beat("a"))
    rig.commit("a", 1, version=9)
    for _ in range(31):
        rig.pass_time(30)
        rig.beat(beat("a", 1))
    assert rig.shard.offsets.read(OffsetKey("g", "orders", 0)) is not None, "a member subscribes to the topic"
    rig.last_beat("a")
    rig.pass_time(120)
    assert not rig.shard.consumer_groups
    assert not list(rig.shard.offsets.groups())


# --- offsets ---


def test_a_member_commits_in_its_epoch() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    assert code(rig.commit("a", 1, version=9)) == 0
    assert refusal(rig.commit("a", 5, version=9)) is StaleMemberEpochError
    assert refusal(rig.commit("b", 1, version=9)) is UnknownMemberIdError
    assert refusal(rig.commit("a", 1, version=8)) is UnsupportedVersionError
    assert refusal(rig.commit(version=9)) is UnknownMemberIdError, "tools may commit only to a group without members"
    rig.last_beat("a")
    assert code(rig.commit(version=9)) == 0


def test_commit_of_an_older_epoch_is_accepted_for_partitions_owned_then() -> None:
    """It was in flight while the member entered another epoch (KIP-1251)."""
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1]))
    assert rig.beat(beat("a", 2)).value.member_epoch == 2
    assert code(rig.commit("a", 1, {("orders", 0): 7}, version=9)) == 0
    assert refusal(rig.commit("a", 1, {("orders", 3): 7}, version=9)) is StaleMemberEpochError


def test_a_member_fetches_offsets_in_its_epoch_and_tools_always() -> None:
    group = ConsumerGroup("g")
    group.replay(ProfileChange("g", "a", MemberProfile()))
    group.replay(ProgressChange("g", "a", MemberProgress(epoch=4)))
    check_member(group, None, -1)
    check_member(group, "a", 4)
    for member_id, epoch, error in (("a", 3, StaleMemberEpochError), ("b", 4, UnknownMemberIdError)):
        with pytest.raises(error):
            check_member(group, member_id, epoch)
    assert OffsetFetchRequestGroup(group_id="g").member_epoch == -1


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.commit("a", 1, {("orders", 0): 1, ("bills", 0): 1}, version=9)
    answered = rig.delete_offsets(("orders", 0), ("bills", 0)).value
    codes = {topic.name: topic.partitions[0].error_code for topic in answered.topics}
    assert codes == {"orders": GroupSubscribedToTopicError.code, "bills": 0}


# --- records ---


@pytest.mark.parametrize(
    "change",
    [
        EpochChange("g", (3, -5)),
        TopicsChange("g", None),
        ProfileChange("g", "a", MemberProfile("i", "r", "c", "/h", frozenset({"t"}), "p", 5, "range")),
        ProfileChange("g", "a", MemberProfile(classic=ClassicTraits(9, (("range", b"x"),)))),
        TargetEpochChange("g", (3, 1_700_000_000_000)),
        TargetChange("g", "a", {ORDERS: frozenset({1, 2})}),
        TargetChange("g", "a", {}),
        ProgressChange(
            "g", "a", MemberProgress(4, 3, MemberState.UNREVOKED_PARTITIONS, {ORDERS: {1: 3}}, {ORDERS: {2: 4}})
        ),
        PatternChange("g", "p", PatternMatch(frozenset({"t"}), 7, 9)),
    ],
    ids=lambda change: type(change).__name__,
)
def test_every_change_survives_encoding(change: Any) -> None:
    record = encode(change)
    assert decode(record.key, record.value) == change
    gone = change._replace(value=None)
    assert decode(encode(gone).key, None) == gone


def test_consumer_member_record_equals_kafkas_bytes() -> None:
    """Without the tagged field, the record would describe a classic member without protocols."""
    record = encode(ProfileChange("g", "a", MemberProfile()))
    assert record.value == bytes.fromhex("0000 00 00 01 01 01 01 ffffffff 00 01 000100")
    assert decode(record.key, bytes.fromhex("0000 00 00 01 01 01 01 ffffffff 00 00")) == ProfileChange(
        "g", "a", MemberProfile()
    )


def test_unknown_member_state_decodes_as_unknown() -> None:
    group = ConsumerGroup("g")
    group.replay(EpochChange("g", (1, 0)))
    group.replay(ProfileChange("g", "a", MemberProfile(topic_names=frozenset({"orders"}))))
    record = encode(ProgressChange("g", "a", MemberProgress(1, 0, MemberState.STABLE)))
    assert record.value is not None
    unknown = decode(record.key, record.value[:10] + b"\x09" + record.value[11:])
    assert isinstance(unknown, ProgressChange)
    assert unknown.value is not None
    assert unknown.value.state is MemberState.UNKNOWN


def test_subscription_metadata_record_is_removed_with_the_next_epoch() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.shard.consumer_groups["g"].replay(TopicsChange("g", True))
    rig.beat(beat("b"))
    assert TopicsChange("g", None) in rig.changes()
    assert not rig.shard.consumer_groups["g"].has_topics_record


def test_failed_heartbeat_append_changes_nothing() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    before = durable(rig)
    rig.log.fails_with = UnknownMemberIdError("disk")
    assert refusal(rig.beat(beat("b"))) is UnknownMemberIdError
    assert durable(rig) == before
    rig.log.fails_with = None
    rig.beat(beat("b"))
    assert durable(rig) != before


def test_pattern_record_before_all_other_records_of_its_group_is_loaded() -> None:
    rig = Rig()
    rig.beat(beat("a", topic_names=frozenset(), pattern="ord.*"))
    rig.beat(beat("b"))
    records = rig.log.records[PARTITION]
    records.sort(key=lambda record: not isinstance(decode(record.key, record.value), PatternChange))
    rig.restart()
    assert list(rig.shard.consumer_groups["g"].patterns) == ["ord.*"]
    epoch = rig.shard.consumer_groups["g"].epoch
    rig.beat(beat("b", 2, owned=[]))
    assert rig.shard.consumer_groups["g"].epoch == epoch, "no subscription changed"


def test_pattern_lookup_is_repeated_after_a_failed_append() -> None:
    rig = Rig()
    rig.beat(beat("a", topic_names=frozenset(), pattern="ord.*|new"))
    rig.topics.set("new", 2)
    rig.pass_time(2)
    rig.log.fails_with, rig.log.failures_left = UnknownMemberIdError("disk"), 1
    assert refusal(rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))) is UnknownMemberIdError
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    assert rig.shard.consumer_groups["g"].patterns["ord.*|new"].topics == {"orders", "new"}


def test_a_pattern_matches_only_topics_that_its_member_may_describe() -> None:
    rig = Rig()
    rig.beat(beat("a", topic_names=frozenset(), pattern=".*"), may_describe=lambda name: name == "bills")
    assert rig.shard.consumer_groups["g"].patterns[".*"].topics == {"bills"}


def test_members_with_different_permissions_do_not_alternate_a_patterns_topics() -> None:
    rig = Rig()
    rig.beat(beat("a", topic_names=frozenset(), pattern=".*"))
    rig.beat(beat("b", topic_names=frozenset(), pattern=".*"), may_describe=lambda name: name == "bills")
    rig.pass_time(2)
    epoch = rig.shard.consumer_groups["g"].epoch
    rig.beat(beat("a", 1))
    assert rig.shard.consumer_groups["g"].epoch == epoch == 2, "one epoch per join"


def test_revocation_deadline_continues_when_the_acknowledgement_is_not_appended() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1, 2, 3]))
    rig.log.fails_with, rig.log.failures_left = UnknownMemberIdError("disk"), 1
    assert refusal(rig.beat(beat("a", 1, owned=[0, 1]))) is UnknownMemberIdError
    rig.pass_time(4)
    rig.beat(beat("a", 1))
    rig.pass_time(1.1)
    assert list(rig.shard.consumer_groups["g"].profiles) == ["b"]


def test_late_heartbeat_does_not_revive_a_temporarily_left_member() -> None:
    rig = Rig()
    rig.beat(beat("a", instance_id="i"))
    rig.beat(beat("b"))
    rig.beat(beat("a", 1, owned=[0, 1], instance_id="i"))
    rig.last_beat("a", -2, instance_id="i")
    assert refusal(rig.beat(beat("a", 1, owned=[0, 1], instance_id="i"))) is FencedMemberEpochError
    assert assigned(rig.beat(beat("a2", instance_id="i")).value) == [0, 1]


def test_assignor_that_the_broker_does_not_offer_gets_no_votes() -> None:
    rig = Rig()
    rig.beat(beat("a"))
    rig.shard.consumer_groups["g"].replay(
        ProfileChange("g", "a", MemberProfile(topic_names=frozenset({"orders"}), server_assignor="com.example.Mine"))
    )
    assert rig.beat(beat("b")).value.member_epoch == 2
    assert rig.shard.consumer_groups["g"].targets["b"] == {ORDERS: frozenset({2, 3})}


def test_pattern_refresh_applies_changed_permissions() -> None:
    rig = Rig(group_consumer_regex_refresh_interval_ms=60_000)
    fields: dict[str, Any] = {"topic_names": frozenset(), "pattern": "orders|bills"}
    rig.beat(beat("a", **fields), may_describe=lambda name: name == "bills")
    rig.pass_time(40)
    rig.beat(beat("a", 1))
    rig.pass_time(19)
    assert rig.beat(beat("a", 1)).value.member_epoch == 1, "the last lookup is less than a minute old"
    rig.pass_time(1)
    response = rig.beat(beat("a", 1)).value
    assert (response.member_epoch, assigned(response)) == (2, [0, 1, 2, 3, 0, 1, 2, 3])


def test_pattern_refresh_without_changes_writes_nothing() -> None:
    rig = Rig(group_consumer_regex_refresh_interval_ms=20_000)
    rig.beat(beat("a", topic_names=frozenset(), pattern="orders"))
    records = len(rig.log.records[PARTITION])
    for _ in range(5):
        rig.pass_time(10)
        rig.beat(beat("a", 1))
    assert len(rig.log.records[PARTITION]) == records


def test_first_configured_assignor_is_the_default_and_others_are_refused() -> None:
    rig = Rig(group_consumer_assignors=("range",))
    rig.beat(beat("a"))
    assert describe(rig.shard.consumer_groups["g"], rig.topics, ("range",)).assignor_name == "range"
    with pytest.raises(UnsupportedAssignorError, match="use one of range"):
        check(request(server_assignor="uniform"), 1, ("range",))


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_consumer_assignors": ()},
        {"group_consumer_assignors": ("mine",)},
        {"group_consumer_migration_policy": "never"},
        {"group_consumer_regex_refresh_interval_ms": 0},
    ],
)
def test_invalid_consumer_group_configuration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        GroupCoordinatorConfig(**wrong)
