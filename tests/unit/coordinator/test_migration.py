"""Conversion of live groups between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.in_steps import done
from tests.unit.coordinator.mixed_members import (
    ClassicMember,
    ConsumerMember,
    Member,
    assignment,
    metadata,
    numbers_of,
    settle,
)
from tests.unit.coordinator.rig import PARTITION, TOPIC_IDS, Rig, code
from tests.unit.coordinator.test_consumer_group import assigned, beat, refusal
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup, ConsumerGroupState
from triokafka.coordinator.consumer_group.member import ClassicTraits, MemberProfile, MemberState
from triokafka.coordinator.consumer_group.records import (
    EpochChange,
    ProfileChange,
    ProgressChange,
    TargetChange,
    TargetEpochChange,
)
from triokafka.coordinator.group import group_administration as admin
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupChange, decode
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.errors import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequestGroup

ORDERS = TOPIC_IDS["orders"]
RANGE = ("range", metadata())


def stable(rig: Rig, *shares: tuple[int, ...], **arguments: Any) -> tuple[list[str], int]:
    """Return a stable classic group whose members have these partitions of ``orders``."""
    arguments.setdefault("protocols", (RANGE,))
    members, generation = rig.joined_group(len(shares), **arguments)
    given = {member: assignment(*share) for member, share in zip(members, shares, strict=True)}
    for member in members[1:]:
        rig.sync(member, generation)
    assert code(rig.sync(members[0], generation, given)) == 0
    return members, generation


def consumer(rig: Rig) -> ConsumerGroup:
    return rig.shard.consumer_groups["g"]


def owned(rig: Rig, member_id: str) -> list[int]:
    """Return the partitions that a member owns by the group's state."""
    return sorted(consumer(rig).progress_of(member_id).assigned_partitions.get(ORDERS, ()))


def check_replays(rig: Rig) -> None:
    """Assert that the log replays into the shard's state."""
    again = GroupShard(rig.config, lambda: "none", rig.topics)
    for offset, record in enumerate(rig.log.records[PARTITION]):
        change = decode(record.key, record.value)
        assert change is not None
        again.replay(change, offset, committed=True)
    soft = ("topics_version", "patterns_checked")

    def durable(shard: GroupShard) -> dict[str, Any]:
        return {
            name: {key: value for key, value in vars(group).items() if key not in soft}
            for name, group in shard.consumer_groups.items()
        }

    assert durable(again) == durable(rig.shard)
    assert {name: again.committed_protocol_type(name) for name in ("g", "h")} == {
        name: rig.shard.committed_protocol_type(name) for name in ("g", "h")
    }
    assert not rig.shard.groups.keys() & rig.shard.consumer_groups.keys()


# --- from classic to consumer ---


def test_the_first_consumer_heartbeat_turns_a_classic_group_into_a_consumer_group() -> None:
    rig = Rig()
    (a, b), generation = stable(rig, (0, 1), (2, 3))
    before = len(rig.log.records[PARTITION])
    response = rig.beat(beat("n")).value
    assert (response.member_epoch, assigned(response)) == (generation + 1, []), "it waits for the others to revoke"
    assert "g" not in rig.shard.groups
    group = consumer(rig)
    assert (group.epoch, group.target_epoch) == (generation + 1, generation + 1)
    assert group.state is ConsumerGroupState.RECONCILING
    assert (owned(rig, a), owned(rig, b)) == ([0, 1], [2, 3])
    check_replays(rig)

    written = rig.changes()[before:]
    assert written[0] == GroupChange("g", None), "the classic group is removed in the same batch"
    classic = MemberProfile(
        client_id="client",
        client_host="/127.0.0.1",
        topic_names=frozenset({"orders"}),
        rebalance_timeout_ms=60_000,
        classic=ClassicTraits(10_000, (RANGE,)),
    )
    assert written[1:3] == [ProfileChange("g", a, classic), ProfileChange("g", b, classic)]
    assert isinstance(written[3], EpochChange)
    assert written[3].value is not None and written[3].value[0] == generation
    kinds = [type(change) for change in written[4:9]]
    assert kinds == [TargetChange, TargetChange, TargetEpochChange, ProgressChange, ProgressChange]
    assert written[6] == TargetEpochChange("g", (generation, 0))


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_is_upgraded_member_by_member_and_downgraded_again(size: int, cooperative: bool) -> None:
    """Rolling: a consumer member replaces each classic member, then a classic member replaces each of these."""
    rig = Rig(group_initial_rebalance_delay_ms=0)
    members: list[Member] = [ClassicMember(rig, f"c{i}", cooperative=cooperative) for i in range(size)]
    settle(rig, *members)
    for i in range(size):
        members[i].leave()
        members[i] = ConsumerMember(rig, f"n{i}")
        settle(rig, *members)
        assert sorted(number for member in members for number in member.owned) == [0, 1, 2, 3]
        assert consumer(rig).state is ConsumerGroupState.STABLE
        check_replays(rig)
    for i in range(size):
        members[i].leave()
        members[i] = ClassicMember(rig, f"d{i}", cooperative=cooperative)
        settle(rig, *members, rounds=20)
        assert sorted(number for member in members for number in member.owned) == [0, 1, 2, 3]
        check_replays(rig)
    assert rig.state() is GroupState.STABLE
    assert not rig.shard.consumer_groups


def test_member_that_joins_before_the_old_one_leaves_gets_partitions() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=0)
    old: list[Member] = [ClassicMember(rig, "c0"), ClassicMember(rig, "c1")]
    settle(rig, *old)
    new = ConsumerMember(rig, "n0")
    members = [*old, new]
    settle(rig, *members)
    assert sorted(len(member.owned) for member in members) == [1, 1, 2]
    assert consumer(rig).state is ConsumerGroupState.STABLE
    new.leave()
    settle(rig, *old)
    assert rig.state() is GroupState.STABLE
    assert sorted(len(member.owned) for member in old) == [2, 2]


def test_upgrade_answers_parked_joins_and_refuses_their_syncs() -> None:
    rig = Rig()
    (a, b), generation = stable(rig, (0, 1), (2, 3))
    joining = rig.join(a, protocols=[("range", metadata("bills"))])
    assert not joining.is_set
    rig.beat(beat("n"))
    let_out = joining.value
    assert (let_out.error_code, let_out.member_id, let_out.generation_id) == (0, a, generation)
    assert (let_out.leader, let_out.protocol_type, let_out.protocol_name) == ("", "consumer", "range")
    assert refusal(rig.sync(a, generation, protocol_name="range")) is RebalanceInProgressError
    joined = rig.join(a, protocols=[("range", metadata("bills"))]).value
    assert joined.error_code == 0
    assert consumer(rig).profiles[a].topic_names == {"bills"}
    assert code(rig.heartbeat(b, generation)) == RebalanceInProgressError.code


def test_upgrade_refuses_parked_syncs_with_rebalance_in_progress() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group(2, protocols=(RANGE,))
    waiting = rig.sync(follower, generation)
    rig.beat(beat("n"))
    assert code(waiting) == RebalanceInProgressError.code
    late = rig.sync(leader, generation, {leader: assignment(0, 1), follower: assignment(2, 3)})
    assert refusal(late) is RebalanceInProgressError
    assert owned(rig, leader) == []
    check_replays(rig)


def test_assignment_committed_after_the_conversion_is_ignored() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group(2, protocols=(RANGE,))
    before = rig.group()
    waiting = rig.sync(follower, generation)
    rig.log.commits_at_once = False
    storing = rig.sync(leader, generation, {leader: assignment(0, 1), follower: assignment(2, 3)})
    rig.beat(beat("n"))
    rig.commit_log()
    assert [code(waiting), code(storing)] == [RebalanceInProgressError.code] * 2
    assert rig.shard.consumer_groups.keys() == {"g"}
    assert before.state is GroupState.DEAD
    check_replays(rig)


def test_late_commit_of_a_static_restart_does_not_touch_a_converted_group() -> None:
    rig = Rig()
    (old,), generation = stable(rig, (0, 1, 2, 3), instance_id="i")
    rig.log.commits_at_once = False
    restarting = rig.join(instance_id="i", protocols=(RANGE,))
    rig.beat(beat("n"))
    rig.pass_time(6)
    assert code(restarting) == RequestTimedOutError.code
    kinds = {key.kind for key in rig.shard.timers._deadlines if key.entity_id == "g"}
    assert kinds == {timers.SESSION, timers.JOIN}
    assert consumer(rig).epoch == generation + 1
    assert old not in consumer(rig).profiles


def test_classic_members_keep_their_session_timeout_after_the_upgrade() -> None:
    rig = Rig()
    (a, b), generation = stable(rig, (0, 1), (2, 3))
    rig.pass_time(5)
    rig.beat(beat("n"))
    rig.pass_time(9)
    rig.heartbeat(a, generation)
    assert consumer(rig).profiles.keys() == {a, b, "n"}
    rig.pass_time(2)
    assert consumer(rig).profiles.keys() == {a, "n"}


@pytest.mark.parametrize(
    ("config", "arguments", "share", "says"),
    [
        ({"group_consumer_migration_policy": "disabled"}, {}, assignment(0), "group.consumer.migration.policy"),
        ({"group_consumer_migration_policy": "downgrade"}, {}, assignment(0), "group.consumer.migration.policy"),
        ({"group_consumer_max_size": 1}, {}, assignment(0), "group.consumer.max.size is 1"),
        ({}, {"protocol_type": "connect"}, assignment(0), "protocol type is 'connect'"),
        ({}, {"protocols": [("range", b"\0")]}, assignment(0), "is malformed"),
        ({}, {}, b"\0\1\0", "is malformed"),
        ({}, {"protocols": [("mine", metadata())]}, assignment(0, user_data=b"mine"), "assignor"),
    ],
    ids=["disabled", "downgrade only", "too large", "no consumers", "metadata", "assignment", "custom assignor"],
)
def test_group_that_cannot_be_upgraded_is_unchanged(
    config: dict[str, Any], arguments: dict[str, Any], share: bytes, says: str
) -> None:
    rig = Rig(**config)
    members, generation = rig.joined_group(2, **{"protocols": (RANGE,), **arguments})
    rig.sync(members[1], generation)
    rig.sync(members[0], generation, {members[0]: share})
    records = len(rig.log.records[PARTITION])
    reply = rig.beat(beat("n"))
    with pytest.raises(GroupIdNotFoundError, match=says):
        _ = reply.value
    assert rig.state() is GroupState.STABLE
    assert code(rig.heartbeat(members[0], generation)) == 0
    assert len(rig.log.records[PARTITION]) == records


def test_user_data_of_known_assignors_does_not_prevent_the_upgrade() -> None:
    rig = Rig()
    (member_id,), generation = rig.joined_group(1, protocols=[("cooperative-sticky", metadata())])
    rig.sync(member_id, generation, {member_id: assignment(0, 1, user_data=b"its own user data")})
    assert rig.beat(beat("n")).value.error_code == 0
    assert owned(rig, member_id) == [0, 1]


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
def test_empty_groups_are_replaced_under_any_policy(policy: str) -> None:
    rig = Rig(group_consumer_migration_policy=policy)
    joining = rig.join()
    rig.pass_time(3)
    rig.leave(joining.value.member_id)
    assert rig.beat(beat("a")).value.error_code == 0
    check_replays(rig)
    rig.last_beat("a")
    joining = rig.join()
    rig.pass_time(3)
    assert code(joining) == 0
    check_replays(rig)


def test_partition_assigned_to_two_members_stays_with_the_first() -> None:
    rig = Rig()
    (a, b), _ = stable(rig, (0, 1), (1, 2, 3))
    rig.beat(beat("n"))
    assert (owned(rig, a), owned(rig, b)) == ([0, 1], [2, 3])


def test_failed_append_of_a_conversion_changes_nothing() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=0)
    (a, b), generation = stable(rig, (0, 1), (2, 3))
    joining = rig.join(a, protocols=[("range", metadata("bills"))])
    rig.log.fails_with, rig.log.failures_left = KafkaStorageError("full"), 1
    assert refusal(rig.beat(beat("n"))) is KafkaStorageError
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert not rig.shard.consumer_groups
    assert not joining.is_set
    again = rig.join(b)
    assert (code(joining), code(again)) == (0, 0)
    assert joining.value.generation_id == generation + 1
    check_replays(rig)


def test_requests_that_wait_for_a_conversion_fail_on_timeout_and_unload() -> None:
    for moves, error in ((False, RequestTimedOutError), (True, NotCoordinatorError)):
        rig = Rig()
        (a, _), _ = stable(rig, (0, 1), (2, 3))
        joining = rig.join(a, protocols=[("range", metadata("bills"))])
        rig.log.commits_at_once = False
        beating = rig.beat(beat("n"))
        assert not beating.is_set
        assert not joining.is_set
        if moves:
            rig.runtime.unload(PARTITION)
        else:
            rig.pass_time(6)
        assert refusal(beating) is error
        assert refusal(joining) is error


def test_group_in_its_first_rebalance_can_be_upgraded() -> None:
    rig = Rig()
    first = rig.join(version=9)
    assert code(first) == MemberIdRequiredError.code
    member_id = first.value.member_id
    joining = rig.join(member_id, version=9, protocols=(RANGE,))
    got = assigned(rig.beat(beat("n")).value) or []
    assert len(got) == 2, "no member owned anything"
    assert (code(joining), joining.value.member_id) == (0, member_id)
    assert refusal(rig.sync(member_id, joining.value.generation_id)) is RebalanceInProgressError
    joined = rig.join(member_id, version=9, protocols=(RANGE,)).value
    assert joined.error_code == 0
    rest = numbers_of(rig.sync(member_id, joined.generation_id).value.assignment)
    assert sorted(got + rest) == [0, 1, 2, 3]


# --- classic members in a consumer group ---


def mixed(rig: Rig, **arguments: Any) -> tuple[str, str, int]:
    """Return a settled group: a classic member with partitions 0 and 1, consumer ``n`` with 2 and 3, and the epoch."""
    (member_id,), generation = stable(rig, (0, 1, 2, 3), **arguments)
    instance_id = arguments.get("instance_id")
    rig.beat(beat("n"))
    assert code(rig.heartbeat(member_id, generation, instance_id=instance_id)) == RebalanceInProgressError.code
    joined = rig.join(member_id, instance_id=instance_id, protocols=(RANGE,)).value
    assert joined.error_code == 0
    synced = rig.sync(member_id, joined.generation_id, instance_id=instance_id).value
    assert numbers_of(synced.assignment) == [0, 1]
    rig.beat(beat("n", joined.generation_id, owned=[]))
    assert owned(rig, "n") == [2, 3]
    return member_id, "n", joined.generation_id


def test_classic_member_rejoins_once_per_reconciliation_step() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    assert code(rig.heartbeat(member_id, epoch)) == 0
    rig.topics.set("orders", 6)
    rig.beat(beat("n", epoch, owned=[2, 3]))
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    assert refusal(rig.sync(member_id, epoch)) is RebalanceInProgressError
    joined = rig.join(member_id, protocols=(RANGE,)).value
    assert (joined.generation_id, joined.leader, joined.members) == (epoch + 1, "", [])
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    synced = rig.sync(member_id, joined.generation_id, protocol_type="consumer", protocol_name="range").value
    assert len(numbers_of(synced.assignment)) == 3
    assert code(rig.heartbeat(member_id, epoch + 1)) == 0


def test_cooperative_member_revokes_first_and_rejoins_in_the_new_epoch() -> None:
    rig = Rig()
    (member_id,), generation = stable(rig, (0, 1, 2, 3), protocols=[("cooperative-sticky", metadata(owned=()))])

    def protocols(*owns: int) -> list[tuple[str, bytes]]:
        return [("cooperative-sticky", metadata(owned=owns))]

    rig.beat(beat("n"))
    joined = rig.join(member_id, protocols=protocols(0, 1, 2, 3)).value
    assert joined.generation_id == generation, "it stays in its epoch until it has revoked"
    retained = numbers_of(rig.sync(member_id, generation).value.assignment)
    assert len(retained) == 2
    assert code(rig.heartbeat(member_id, generation)) == RebalanceInProgressError.code
    again = rig.join(member_id, protocols=protocols(*retained)).value
    assert again.generation_id == generation + 1
    assert numbers_of(rig.sync(member_id, generation + 1).value.assignment) == retained
    assert code(rig.heartbeat(member_id, generation + 1)) == 0


def test_classic_member_must_rejoin_when_its_partitions_are_free() -> None:
    rig = Rig()
    rig.beat(beat("n"))
    joined = rig.join(protocols=(RANGE,)).value
    member_id, epoch = joined.member_id, joined.generation_id
    assert numbers_of(rig.sync(member_id, epoch).value.assignment) == []
    assert code(rig.heartbeat(member_id, epoch)) == 0, "no partition is free yet"
    rig.beat(beat("n", 1, owned=[0, 1, 2, 3]))
    assert code(rig.heartbeat(member_id, epoch)) == 0
    rig.beat(beat("n", 1, owned=[0, 1]))
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    again = rig.join(member_id, protocols=(RANGE,)).value
    assert again.generation_id == epoch
    assert numbers_of(rig.sync(member_id, epoch).value.assignment) == [2, 3]
    assert code(rig.heartbeat(member_id, epoch)) == 0


def test_a_new_dynamic_member_gets_its_id_first() -> None:
    rig = Rig()
    rig.beat(beat("n"))
    first = rig.join(version=4, protocols=(RANGE,)).value
    assert first.error_code == MemberIdRequiredError.code
    assert consumer(rig).profiles.keys() == {"n"}
    second = rig.join(first.member_id, version=4, protocols=(RANGE,)).value
    assert (second.error_code, second.member_id) == (0, first.member_id)
    assert consumer(rig).profiles[first.member_id].classic is not None


@pytest.mark.parametrize("static", [False, True])
def test_classic_member_id_fits_a_record_for_client_ids_of_any_length(static: bool) -> None:
    """As in a classic group."""
    rig = Rig()
    rig.beat(beat("n"))
    name = "c" * 32_767
    instance_id = name if static else None
    joined = rig.join(client_id=name, instance_id=instance_id, protocols=(RANGE,)).value
    assert (joined.error_code, len(joined.member_id)) == (0, 32_767)
    assert code(rig.sync(joined.member_id, joined.generation_id, instance_id=instance_id)) == 0


def test_classic_members_alone_notice_new_partitions() -> None:
    rig = Rig(group_consumer_migration_policy="upgrade")
    member_id, _, epoch = mixed(rig)
    rig.last_beat("n")
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    epoch = rig.join(member_id, protocols=(RANGE,)).value.generation_id
    assert code(rig.heartbeat(member_id, epoch)) == 0
    rig.topics.set("orders", 5)
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    epoch = rig.join(member_id, protocols=(RANGE,)).value.generation_id
    assert numbers_of(rig.sync(member_id, epoch).value.assignment) == [0, 1, 2, 3, 4]
    check_replays(rig)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"protocol_type": "connect"}, InconsistentGroupProtocolError),
        ({"protocols": [("sticky", metadata())]}, InconsistentGroupProtocolError),
        ({"protocols": [("range", b"")]}, InconsistentGroupProtocolError),
        ({"protocols": []}, InconsistentGroupProtocolError),
        ({"member_id": "gone", "instance_id": "nobody"}, UnknownMemberIdError),
        ({"member_id": "gone", "instance_id": "i"}, FencedInstanceIdError),
    ],
)
def test_incompatible_join_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    rig = Rig()
    mixed(rig, instance_id="i")
    records = len(rig.log.records[PARTITION])
    assert refusal(rig.join(**{"protocols": (RANGE,), **arguments})) is error
    assert len(rig.log.records[PARTITION]) == records


def test_protocols_of_a_removed_member_do_not_constrain_joins() -> None:
    rig = Rig()
    rig.beat(beat("n"))
    rig.join(protocols=[RANGE, ("sticky", metadata())])
    second = rig.join(protocols=(RANGE,)).value
    sticky = [("sticky", metadata())]
    assert refusal(rig.join(protocols=sticky)) is InconsistentGroupProtocolError
    rig.leave(second.member_id)
    assert rig.join(protocols=sticky).value.error_code == 0
    assert refusal(rig.join(protocols=(RANGE,))) is InconsistentGroupProtocolError


def test_classic_join_ignores_the_assignment_interval() -> None:
    rig = Rig(group_consumer_assignment_interval_ms=60_000)
    rig.beat(beat("n"))
    joined = rig.join(protocols=(RANGE,)).value
    assert joined.generation_id == 2
    assert code(rig.heartbeat(joined.member_id, 2)) == 0, "otherwise it would rejoin again and again"


def test_full_group_refuses_new_classic_members_and_keeps_its_own() -> None:
    rig = Rig(group_consumer_max_size=2)
    member_id, _, epoch = mixed(rig)
    assert refusal(rig.join(protocols=(RANGE,))) is GroupMaxSizeReachedError
    assert rig.join(member_id, protocols=(RANGE,)).value.generation_id == epoch


@pytest.mark.parametrize(
    ("who", "error"),
    [
        ({"member_id": "nobody"}, UnknownMemberIdError),
        ({"member_id": "n"}, UnknownMemberIdError),
        ({"generation": 99}, IllegalGenerationError),
        ({"generation": 1}, IllegalGenerationError),
        ({"instance_id": "nobody"}, UnknownMemberIdError),
        ({"member_id": "other", "instance_id": "i"}, FencedInstanceIdError),
    ],
)
@pytest.mark.parametrize("request_name", ["heartbeat", "sync"])
def test_request_of_an_invalid_classic_member_is_refused(
    request_name: str, who: dict[str, Any], error: type[Exception]
) -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig, instance_id="i")
    identity = {"member_id": member_id, "generation": epoch, **who}
    assert refusal(getattr(rig, request_name)(**identity)) is error


def test_a_sync_for_another_protocol_is_refused() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    assert refusal(rig.sync(member_id, epoch, protocol_type="connect")) is InconsistentGroupProtocolError
    assert refusal(rig.sync(member_id, epoch, protocol_name="sticky")) is InconsistentGroupProtocolError


def test_member_may_sync_with_the_protocol_selected_before_the_conversion() -> None:
    rig = Rig()
    both = [("range", metadata()), ("sticky", metadata())]
    first = rig.join(instance_id="i", protocols=both)
    second = rig.join(instance_id="j", protocols=both[1:])
    rig.pass_time(6)
    assert (first.value.protocol_name, second.value.leader) == ("sticky", first.value.member_id)
    generation = first.value.generation_id
    given = {first.value.member_id: assignment(0, 1), second.value.member_id: assignment(2, 3)}
    rig.sync(first.value.member_id, generation, given, instance_id="i")
    rig.beat(beat("n", instance_id="j"))
    again = rig.sync(first.value.member_id, generation, instance_id="i", protocol_name="sticky").value
    assert (again.error_code, again.protocol_name, numbers_of(again.assignment)) == (0, "sticky", [0, 1])


@pytest.mark.parametrize(
    ("story", "seconds"),
    [
        (lambda rig, member_id, epoch: rig.heartbeat(member_id, epoch), 10),
        (lambda rig, member_id, epoch: rig.join(member_id, protocols=(RANGE,), rebalance_ms=5_000), 5),
        (lambda rig, member_id, epoch: rig.beat(beat("m")) and rig.heartbeat(member_id, epoch), 10),
    ],
    ids=["is silent", "never syncs", "never joins again"],
)
def test_classic_member_that_misses_a_deadline_is_removed(story: Any, seconds: int) -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig, rebalance_ms=60_000)
    story(rig, member_id, epoch)
    rig.pass_time(seconds - 0.1)
    assert member_id in consumer(rig).profiles
    rig.pass_time(0.2)
    assert member_id not in consumer(rig).profiles
    check_replays(rig)


def test_classic_member_that_heartbeats_but_never_rejoins_is_removed() -> None:
    rig = Rig(group_consumer_session_timeout_ms=100_000)
    member_id, _, epoch = mixed(rig)
    rig.join(member_id, protocols=(RANGE,), rebalance_ms=30_000)
    rig.sync(member_id, epoch)
    rig.beat(beat("n", epoch, owned=[], topic_names=frozenset({"orders", "bills"})))
    for _ in range(6):
        assert member_id in consumer(rig).profiles
        assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
        rig.pass_time(5)
    assert member_id not in consumer(rig).profiles


def test_removed_member_leaves_no_deadlines() -> None:
    """Clients may choose deadlines weeks away; they would accumulate."""
    rig = Rig(group_consumer_migration_policy="upgrade")
    rig.beat(beat("n", instance_id="i"))
    deadlines = len(rig.shard.timers)
    joined = rig.join(protocols=(RANGE,), rebalance_ms=2**31 - 1).value
    rig.leave(joined.member_id)
    assert len(rig.shard.timers) == deadlines
    rig.last_beat("n", -2, instance_id="i")
    assert code(rig.beat(beat("o", instance_id="i"))) == 0
    assert timers.session_timer("g", "o") in rig.shard.timers
    assert len(rig.shard.timers) == deadlines
    rig.last_beat("o", instance_id="i")
    assert len(rig.shard.timers) == deadlines - 1


def test_failed_epoch_bump_does_not_start_the_rejoin_deadline() -> None:
    """The heartbeat's new epoch was not appended, and later heartbeats did not need one."""
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    rig.topics.set("orders", 5)
    rig.log.fails_with = KafkaStorageError("the disk is gone")
    assert refusal(rig.heartbeat(member_id, epoch)) is KafkaStorageError
    rig.log.fails_with = None
    rig.topics.set("orders", 4)
    for _ in range(20):
        assert code(rig.heartbeat(member_id, epoch)) == 0
        rig.beat(beat("n", epoch, owned=[2, 3]))
        rig.pass_time(5)
    assert member_id in consumer(rig).profiles


def test_refused_sync_starts_a_full_rejoin_deadline() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    assert rig.join(member_id, protocols=(RANGE,), rebalance_ms=8_000).value.generation_id == epoch
    rig.pass_time(7)
    rig.topics.set("orders", 6)
    rig.beat(beat("n", epoch, owned=[2, 3]))
    assert refusal(rig.sync(member_id, epoch)) is RebalanceInProgressError
    rig.heartbeat(member_id, epoch)
    rig.pass_time(7)
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    rig.pass_time(1.1)
    assert member_id not in consumer(rig).profiles


def test_sync_cancels_the_sync_deadline() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    for _ in range(20):
        assert code(rig.heartbeat(member_id, epoch)) == 0
        rig.beat(beat("n", epoch, owned=[2, 3]))
        rig.pass_time(5)
    assert member_id in consumer(rig).profiles


def test_restart_restarts_sessions_and_rejoin_deadlines_of_classic_members() -> None:
    rig = Rig(group_consumer_session_timeout_ms=100_000)
    member_id, _, epoch = mixed(rig)
    rig.beat(beat("m"))
    rig.restart()
    check_replays(rig)
    for _ in range(6):
        rig.pass_time(9)
        assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    rig.pass_time(5.9)
    assert member_id in consumer(rig).profiles, "its rebalance timeout is 60 seconds"
    rig.pass_time(0.2)
    assert member_id not in consumer(rig).profiles

    rig = Rig()
    member_id, _, epoch = mixed(rig)
    rig.restart()
    rig.pass_time(9.9)
    assert code(rig.heartbeat(member_id, epoch)) == 0, "its own session timeout counts"
    rig.pass_time(10.1)
    assert member_id not in consumer(rig).profiles


def test_each_leaving_classic_member_has_its_own_answer() -> None:
    rig = Rig()
    _, _, epoch = mixed(rig, instance_id="i")
    answers = rig.leave("nobody", ("other", "i"), ("", "nobody"), ("", "i")).value
    assert [answer.error_code for answer in answers] == [
        UnknownMemberIdError.code,
        FencedInstanceIdError.code,
        UnknownMemberIdError.code,
        0,
    ]
    assert consumer(rig).profiles.keys() == {"n"}
    assert consumer(rig).epoch == epoch + 1
    assert assigned(rig.beat(beat("n", epoch, owned=[2, 3])).value) == [0, 1, 2, 3]
    check_replays(rig)


def test_an_administrator_removes_members_of_either_protocol() -> None:
    rig = Rig()
    mixed(rig)
    rig.beat(beat("s", instance_id="i"))
    answers = rig.leave("n", ("", "i")).value
    assert [answer.error_code for answer in answers] == [0, 0]
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_failed_append_of_a_join_leaves_the_member_unchanged() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    rig.beat(beat("m"))
    rig.heartbeat(member_id, epoch)
    due = rig.runtime.next_deadline()
    rig.log.fails_with, rig.log.failures_left = KafkaStorageError("full"), 1
    assert refusal(rig.join(member_id, protocols=(RANGE,))) is KafkaStorageError
    assert rig.runtime.next_deadline() == due
    assert consumer(rig).progress_of(member_id).epoch == epoch
    assert rig.join(member_id, protocols=(RANGE,)).value.generation_id == epoch + 1


# --- static members ---


def test_a_static_member_changes_to_the_consumer_protocol_without_leaving() -> None:
    rig = Rig()
    (old,), generation = stable(rig, (0, 1, 2, 3), instance_id="i")
    response = rig.beat(beat("n", instance_id="i")).value
    assert (response.member_epoch, assigned(response)) == (generation, [0, 1, 2, 3]), "the subscription is the same"
    assert consumer(rig).static_members == {"i": "n"}
    assert consumer(rig).progress["n"].previous_epoch == 0
    assert refusal(rig.heartbeat(old, generation, instance_id="i")) is FencedInstanceIdError
    rig.pass_time(11)
    assert consumer(rig).profiles.keys() == {"n"}
    check_replays(rig)


def test_last_consumer_member_that_rejoins_as_classic_downgrades_the_group() -> None:
    rig = Rig()
    rig.beat(beat("n", instance_id="i"))
    joined = rig.join(instance_id="i", protocols=(RANGE,), version=9).value
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.skip_assignment
    assert rig.state() is GroupState.STABLE
    assert not rig.shard.consumer_groups
    synced = rig.sync(joined.member_id, 1, instance_id="i").value
    assert numbers_of(synced.assignment) == [0, 1, 2, 3]
    check_replays(rig)
    rig.restart()
    assert rig.state() is GroupState.STABLE
    assert code(rig.heartbeat(joined.member_id, 1, instance_id="i")) == 0


def test_member_that_downgrades_a_settled_group_leads_it_if_it_can_skip_assignment() -> None:
    """The other members had no leader and do not watch the topics, and no rebalance follows."""
    for version, leads in ((9, True), (5, False)):
        rig = Rig()
        (member_id,), _ = stable(rig, (0, 1, 2, 3))
        rig.beat(beat("n", instance_id="i"))
        epoch = rig.join(member_id, protocols=(RANGE,)).value.generation_id
        rig.beat(beat("n", epoch, owned=[], instance_id="i"))
        joined = rig.join(instance_id="i", protocols=(RANGE,), version=version).value
        assert rig.state() is GroupState.STABLE
        assert rig.group().leader_id == joined.leader == (joined.member_id if leads else member_id)
        assert joined.skip_assignment is leads
        roster = {member_id, joined.member_id} if leads else set()
        assert {member.member_id for member in joined.members} == roster
        rig.restart()
        assert rig.group().leader_id == joined.leader
        check_replays(rig)


def test_client_without_skip_assignment_does_not_learn_that_it_leads() -> None:
    rig = Rig()
    rig.beat(beat("n", instance_id="i"))
    joined = rig.join(instance_id="i", protocols=(RANGE,), version=5).value
    assert (joined.leader, joined.members) == ("", [])
    assert numbers_of(rig.sync(joined.member_id, 1, instance_id="i").value.assignment) == [0, 1, 2, 3]


def test_static_member_that_returns_as_classic_waits_while_others_must_revoke() -> None:
    rig = Rig()
    (member_id,), generation = stable(rig, (0, 1, 2, 3))
    rig.beat(beat("n", instance_id="i"))
    joining = rig.join(instance_id="i", protocols=(RANGE,))
    assert not joining.is_set, "another member still owns this member's partitions"
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert rig.group().generation == generation + 1
    assert refusal(rig.heartbeat(member_id, generation)) is IllegalGenerationError
    again = rig.join(member_id, protocols=(RANGE,))
    assert (code(joining), code(again)) == (0, 0)
    assert joining.value.generation_id == generation + 2
    check_replays(rig)


def test_static_member_that_returns_as_classic_waits_for_members_in_older_epochs() -> None:
    rig = Rig()
    (member_id,), _ = stable(rig, (0, 1, 2, 3))
    rig.beat(beat("n", instance_id="i"))
    epoch = rig.join(member_id, protocols=(RANGE,)).value.generation_id
    rig.beat(beat("n", epoch, owned=[], instance_id="i"))
    rig.topics.set("orders", 6)
    response = rig.beat(beat("n", epoch, owned=[2, 3], instance_id="i")).value
    assert (response.member_epoch, consumer(rig).state) == (epoch + 1, ConsumerGroupState.RECONCILING)
    assert not rig.join(instance_id="i", protocols=(RANGE,)).is_set
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_failed_append_of_a_downgrade_fails_the_parked_join() -> None:
    rig = Rig()
    stable(rig, (0, 1, 2, 3))
    rig.beat(beat("n", instance_id="i"))
    rig.log.fails_with, rig.log.failures_left = KafkaStorageError("full"), 1
    assert refusal(rig.join(instance_id="i", protocols=(RANGE,))) is KafkaStorageError
    assert consumer(rig).static_members == {"i": "n"}
    check_replays(rig)


def test_static_member_that_left_temporarily_may_return_as_classic() -> None:
    rig = Rig(group_consumer_migration_policy="upgrade")
    rig.beat(beat("n", instance_id="i"))
    rig.last_beat("n", -2, instance_id="i")
    joined = rig.join(instance_id="i", protocols=(RANGE,)).value
    assert joined.generation_id == 1
    assert numbers_of(rig.sync(joined.member_id, 1, instance_id="i").value.assignment) == [0, 1, 2, 3]
    check_replays(rig)


def test_static_member_that_returns_as_classic_under_its_id_starts_over() -> None:
    rig = Rig(group_consumer_migration_policy="upgrade")
    rig.beat(beat("n", instance_id="i"))
    rig.last_beat("n", -2, instance_id="i")
    rig.beat(beat("m"))
    holds_on = [("cooperative-sticky", metadata(owned=(0, 1, 2, 3)))]
    joined = rig.join("n", instance_id="i", protocols=holds_on).value
    assert joined.generation_id == 0
    assert len(numbers_of(rig.sync("n", 0, instance_id="i").value.assignment)) == 2


# --- from consumer to classic ---


def leaves(rig: Rig) -> None:
    rig.last_beat("n")


def falls_silent(rig: Rig) -> None:
    group = consumer(rig)
    (member_id,) = [known for known in group.profiles if known != "n"]
    for _ in range(10):
        rig.heartbeat(member_id, group.progress_of(member_id).epoch)
        rig.pass_time(5)


def is_removed(rig: Rig) -> None:
    rig.leave("n")


@pytest.mark.parametrize("goes", [leaves, falls_silent, is_removed])
def test_group_becomes_classic_when_the_last_consumer_member_leaves(goes: Any) -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    before = len(rig.log.records[PARTITION])
    goes(rig)
    assert not rig.shard.consumer_groups
    assert rig.state() is GroupState.PREPARING_REBALANCE
    group = rig.group()
    assert (group.generation, group.protocol_type, group.protocol) == (epoch, "consumer", "range")
    assert numbers_of(group.members[member_id].assignment) == [0, 1]
    check_replays(rig)
    written = rig.changes()[before:]
    assert isinstance(written[-1], GroupChange)
    assert all(change is not None and change.value is None for change in written[:-1]), "tombstones for the rest"
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    joined = rig.join(member_id, protocols=(RANGE,)).value
    assert (joined.generation_id, joined.leader) == (epoch + 1, member_id)
    assert code(rig.sync(member_id, epoch + 1, {member_id: assignment(0, 1, 2, 3)})) == 0
    assert rig.state() is GroupState.STABLE


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_group_without_a_downgrade_policy_keeps_serving_classic_members(policy: str) -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    object.__setattr__(rig.config, "group_consumer_migration_policy", policy)
    rig.last_beat("n")
    assert consumer(rig).profiles.keys() == {member_id}
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    joined = rig.join(member_id, protocols=(RANGE,)).value
    assert joined.generation_id == epoch + 1
    assert numbers_of(rig.sync(member_id, epoch + 1).value.assignment) == [0, 1, 2, 3]
    check_replays(rig)


def test_group_above_group_max_size_is_not_downgraded() -> None:
    rig = Rig(group_max_size=1)
    rig.beat(beat("n"))
    for _ in range(2):
        rig.join(protocols=(RANGE,))
    rig.last_beat("n")
    assert len(consumer(rig).profiles) == 2


def test_downgraded_group_rebalances_after_a_restart() -> None:
    """Otherwise the partitions of the member that left would stay unassigned."""
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    rig.last_beat("n")
    rig.restart()
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert code(rig.heartbeat(member_id, epoch)) == RebalanceInProgressError.code
    assert rig.join(member_id, protocols=(RANGE,)).value.generation_id == epoch + 1
    rig.sync(member_id, epoch + 1, {member_id: assignment(0, 1, 2, 3)})
    rig.restart()
    assert rig.state() is GroupState.STABLE, "it rebalances once"


def test_broker_logs_a_conversion_once_it_is_appended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "triokafka.coordinator")
    rig = Rig()
    mixed(rig)
    caplog.clear()
    rig.log.fails_with = KafkaStorageError("the disk is gone")
    rig.last_beat("n")
    assert "classic group" not in caplog.text
    rig.log.fails_with = None
    rig.last_beat("n")
    assert "became a classic group" in caplog.text
    assert "starts a rebalance: the group was a consumer group" in caplog.text


def test_failed_append_of_a_downgrade_is_retried() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    rig.log.fails_with, rig.log.failures_left = KafkaStorageError("full"), 3
    assert refusal(rig.last_beat("n")) is KafkaStorageError
    assert consumer(rig).profiles.keys() == {member_id, "n"}
    assert code(rig.heartbeat(member_id, epoch)) == 0
    rig.last_beat("n")
    assert refusal(rig.last_beat("n")) is KafkaStorageError
    rig.last_beat("n")
    assert rig.state() is GroupState.PREPARING_REBALANCE
    check_replays(rig)


def test_downgrade_restarts_the_members_sessions() -> None:
    rig = Rig()
    member_id, _, _ = mixed(rig)
    rig.pass_time(5)
    rig.last_beat("n")
    for timer in (timers.session_timer, timers.join_timer, timers.sync_timer):
        assert not {timer("g", member_id), timer("g", "n")} & {*rig.shard.timers._deadlines}
    rig.pass_time(9.9)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.pass_time(0.2)
    assert rig.state() is GroupState.EMPTY


# --- offsets, and the view of tools ---


def test_group_converted_twice_does_not_assign_held_partitions() -> None:
    """The first consumer member's target is not free for the second one, because its owner has not rejoined."""
    rig = Rig()
    (member_id,), _ = stable(rig, (0, 1, 2, 3))
    rig.beat(beat("n"))
    rig.last_beat("n")
    assert rig.state() is GroupState.PREPARING_REBALANCE
    assert assigned(rig.beat(beat("second")).value) == []
    assert owned(rig, member_id) == [0, 1, 2, 3]


def test_owned_partitions_of_a_cooperative_member_stay_held_after_a_failed_rebalance() -> None:
    """A cooperative member keeps its partitions during a rebalance, and keeps them when the assignment is lost."""
    rig = Rig(group_initial_rebalance_delay_ms=0)
    cooperative = [("cooperative-sticky", metadata(owned=(0, 1, 2, 3)))]
    (member_id,), _ = stable(rig, (0, 1, 2, 3), protocols=cooperative)
    generation = rig.join(member_id, protocols=cooperative).value.generation_id
    rig.log.fails_with = KafkaStorageError("the disk is gone")
    rig.sync(member_id, generation, {member_id: assignment(0, 1, 2, 3)})
    rig.log.fails_with = None
    assert assigned(rig.beat(beat("n")).value) == []
    assert owned(rig, member_id) == [0, 1, 2, 3]


@pytest.mark.parametrize("happens", ["a member left", "the topic grew"])
def test_upgrade_by_a_static_member_assigns_unowned_partitions(happens: str) -> None:
    """Its subscription is unchanged, but a rebalance was due, or the leader has not seen all partitions."""
    rig = Rig(group_initial_rebalance_delay_ms=0)
    if happens == "a member left":
        first = rig.join(protocols=(RANGE,), instance_id="i")
        second = rig.join(protocols=(RANGE,))
        rig.pass_time(0)
        leader, generation = first.value.member_id, first.value.generation_id
        rig.sync(second.value.member_id, generation)
        given = {leader: assignment(0, 1), second.value.member_id: assignment(2, 3)}
        rig.sync(leader, generation, given, instance_id="i")
        assert rig.state() is GroupState.STABLE
        rig.leave(second.value.member_id)
    else:
        stable(rig, (0, 1, 2, 3), instance_id="i")
        rig.topics.set("orders", 6)
    response = rig.beat(beat("n", instance_id="i")).value
    for _ in range(2):
        response = rig.beat(beat("n", response.member_epoch, instance_id="i", owned=owned(rig, "n"))).value
    assert owned(rig, "n") == list(range(rig.topics.partition_count("orders")))


def test_static_member_that_returns_as_classic_gets_partitions_revoked_for_it() -> None:
    """The join downgrades the group, which is settled with these partitions, so no rebalance follows."""
    rig = Rig()
    (member_id,), _ = stable(rig, (0, 1, 2, 3))
    rig.beat(beat("n", instance_id="i"))
    rig.join(member_id, protocols=(RANGE,))
    again = rig.join(protocols=(RANGE,), instance_id="i", version=9).value
    assert rig.state() is GroupState.STABLE
    assert numbers_of(rig.sync(again.member_id, again.generation_id, instance_id="i").value.assignment) == [2, 3]


def test_committed_offsets_survive_every_conversion() -> None:
    rig = Rig()
    (member_id,), generation = stable(rig, (0, 1, 2, 3))
    rig.commit(member_id, generation, {("orders", 0): 7})
    rig.beat(beat("n"))
    assert rig.offset() == 7
    rig.restart()
    assert rig.offset() == 7
    rig.last_beat("n")
    assert rig.offset() == 7
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.restart()
    assert rig.offset() == 7


def test_members_of_each_protocol_commit_with_their_epoch() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    for version in (2, 8, 9):
        assert code(rig.commit(member_id, epoch, {("orders", 0): version}, version=version)) == 0
        assert rig.offset() == version
    assert refusal(rig.commit(member_id, epoch + 1, version=8)) is IllegalGenerationError
    assert refusal(rig.commit(member_id, epoch - 1, {("orders", 2): 1}, version=8)) is IllegalGenerationError
    assert refusal(rig.commit("nobody", epoch, version=8)) is UnknownMemberIdError
    assert refusal(rig.commit(version=8)) is UnknownMemberIdError, "a commit must name a member of a group with members"
    assert code(rig.commit("n", epoch, {("orders", 2): 1}, version=9)) == 0
    assert refusal(rig.commit("n", epoch, version=8)) is UnsupportedVersionError
    assert refusal(rig.commit("n", epoch + 1, version=9)) is StaleMemberEpochError


def test_commit_of_the_previous_epoch_is_accepted_for_kept_partitions() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)
    assert code(rig.commit(member_id, epoch - 1, {("orders", 0): 3})) == 0


def test_members_of_each_protocol_fetch_with_their_epoch() -> None:
    rig = Rig()
    member_id, _, epoch = mixed(rig)

    def fetch(member: str | None, member_epoch: int) -> int:
        asked = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=member_epoch, topics=None)
        found = rig.runtime.read(PARTITION, lambda shard: done(fetches.fetch_group(shard, asked, 9, rig.topics)))
        return found.error_code

    assert fetch(None, -1) == fetch(member_id, epoch) == fetch("n", epoch) == 0
    with pytest.raises(IllegalGenerationError):
        fetch(member_id, epoch - 1)
    with pytest.raises(StaleMemberEpochError):
        fetch("n", epoch - 1)


def test_list_and_describe_follow_a_conversion() -> None:
    rig = Rig()

    def listed() -> tuple[str, str, str]:
        (found,) = admin.list_groups(rig.shard, rig.shard.group_ids(), (), ())
        return found.group_type, found.group_state, found.protocol_type

    (member_id,), generation = stable(rig, (0, 1, 2, 3))
    assert listed() == ("classic", "Stable", "consumer")
    rig.beat(beat("n"))
    assert listed() == ("consumer", "Reconciling", "consumer")
    assert admin.describe(rig.shard, "g", 6).error_code == GroupIdNotFoundError.code
    rig.join(member_id, protocols=(RANGE,))
    rig.beat(beat("n", generation + 1, owned=[]))
    assert listed() == ("consumer", "Stable", "consumer")
    rig.last_beat("n")
    assert listed() == ("classic", "PreparingRebalance", "consumer")
    assert admin.describe(rig.shard, "g", 6).group_state == "PreparingRebalance"


def test_describe_distinguishes_members_by_protocol() -> None:
    from triokafka.coordinator.consumer_group.describe import describe

    rig = Rig()
    member_id, _, _ = mixed(rig)
    described = describe(consumer(rig), rig.topics, ("uniform",))
    assert {member.member_id: member.member_type for member in described.members} == {member_id: 0, "n": 1}
    assert consumer(rig).progress_of(member_id).state is MemberState.STABLE
