"""Appends that fail, commit late or are lost: responses wait, readers get committed state, every request has a
response.
"""

from __future__ import annotations

import pytest

from tests.unit.coordinator.rig import PARTITION, Rig, code
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.append_errors import coordinator_error, group_append_error, offsets_append_error
from triokafka.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InvalidCommitOffsetSizeError,
    KafkaConnectionError,
    KafkaError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)

NOT_COORDINATOR = NotCoordinatorError.code
NOT_AVAILABLE = CoordinatorNotAvailableError.code
REBALANCE = RebalanceInProgressError.code


@pytest.mark.parametrize(
    ("error", "anything", "group", "offsets"),
    [
        (UnknownTopicOrPartitionError, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE),
        (NotEnoughReplicasError, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE),
        (NotEnoughReplicasAfterAppendError, NOT_AVAILABLE, NOT_AVAILABLE, NOT_AVAILABLE),
        (NotLeaderForPartitionError, NOT_COORDINATOR, NOT_COORDINATOR, NOT_COORDINATOR),
        (KafkaStorageError, NOT_COORDINATOR, NOT_COORDINATOR, NOT_COORDINATOR),
        (RequestTimedOutError, NOT_AVAILABLE, REBALANCE, NOT_AVAILABLE),
        (MessageSizeTooLargeError, UnknownError.code, UnknownError.code, InvalidCommitOffsetSizeError.code),
        (RecordListTooLargeError, UnknownError.code, UnknownError.code, InvalidCommitOffsetSizeError.code),
        (TopicAuthorizationFailedError, 29, 29, 29),
        (KafkaConnectionError, -1, -1, -1),
    ],
)
def test_append_errors_become_the_codes_that_clients_expect(
    error: type[KafkaError], anything: int, group: int, offsets: int
) -> None:
    assert coordinator_error(error("x")) == anything
    assert group_append_error(error("x")) == group
    assert offsets_append_error(error("x")) == offsets


# --- the append fails ---


def test_failed_commit_changes_nothing() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1})
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    assert code(rig.commit(offsets={("orders", 0): 2})) == NotLeaderForPartitionError.code
    assert rig.offset() == 1


def test_disk_error_becomes_a_storage_error() -> None:
    rig = Rig()
    rig.log.fails_with = OSError(28, "No space left on device")
    reply = rig.commit()
    with pytest.raises(KafkaStorageError, match=r"__consumer_offsets-3: append failed.*No space"):
        _ = reply.value


@pytest.mark.parametrize("version", [3, 4])
def test_group_whose_append_failed_does_not_exist(version: int) -> None:
    rig = Rig()
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    reply = rig.join(version=version)
    assert code(reply) in (NOT_COORDINATOR, NotLeaderForPartitionError.code)
    assert rig.shard.groups == {}
    rig.log.fails_with = None
    rig.pass_time(60)
    assert rig.shard.groups == {}


def test_failed_append_of_an_assignment_starts_a_rebalance() -> None:
    """The parked syncs fail, and no member has an assignment."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    parked = rig.sync(follower, generation)
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    answer = rig.sync(leader, generation, {leader: b"L", follower: b"F"})
    assert (code(answer), code(parked)) == (NOT_COORDINATOR, NOT_COORDINATOR)
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.log.fails_with = None
    rig.join(leader)
    again = rig.join(follower)
    assert again.value.generation_id == generation + 1
    assert all(member.assignment == b"" for member in rig.group().members.values())


def test_group_works_after_a_failed_append_of_its_empty_state() -> None:
    rig = Rig()
    members, generation = rig.stable_group()
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    assert code(rig.leave(*members)) == NotLeaderForPartitionError.code
    rig.log.fails_with = None
    reply = rig.join()
    rig.pass_time(6)
    assert reply.value.generation_id == generation + 2


def test_members_expire_after_a_restart_that_lost_the_empty_state() -> None:
    rig = Rig()
    members, _ = rig.stable_group(session_ms=10_000)
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    rig.leave(*members)
    rig.log.fails_with = None
    rig.restart()
    assert list(rig.group().members) == members
    rig.pass_time(10)
    assert rig.state() is GroupState.PREPARING_REBALANCE or rig.state() is GroupState.EMPTY
    rig.pass_time(60)
    assert rig.state() is GroupState.EMPTY


def test_defect_in_a_deadline_does_not_stop_the_coordinator_task() -> None:
    rig = Rig()
    rig.stable_group(1, group_id="one")
    (member,), generation = rig.stable_group(1, group_id="other", session_ms=60_000)
    rig.log.fails_with = ValueError("a defect")
    rig.pass_time(30)
    rig.log.fails_with = None
    assert code(rig.heartbeat(member, generation, group_id="other")) == 0


def test_failed_append_of_a_deletion_deletes_nothing() -> None:
    rig = Rig()
    rig.commit()
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    assert code(rig.delete_group()) == NotLeaderForPartitionError.code
    assert rig.offset() == 5
    assert "g" in rig.shard.groups


# --- the commit is late ---


def late_rig() -> Rig:
    rig = Rig()
    rig.log.commits_at_once = False
    return rig


def test_response_is_held_until_the_high_watermark_passes() -> None:
    """A commit is acknowledged only once it is replicated."""
    rig = late_rig()
    reply = rig.commit()
    assert not reply.is_set
    rig.runtime.high_watermark_changed(PARTITION, 0)
    assert not reply.is_set
    rig.commit_log()
    assert code(reply) == 0


def test_readers_see_committed_offsets_only() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1, ("orders", 1): 1})
    rig.log.commits_at_once = False
    rig.commit(offsets={("orders", 0): 2, ("bills", 0): 2})
    rig.commit(offsets={("orders", 0): 3})
    assert (rig.offset("orders", 0), rig.offset("bills", 0)) == (1, -1)
    assert {(t.name, p.partition_index, p.committed_offset) for t in rig.fetch().topics for p in t.partitions} == {
        ("orders", 0, 1),
        ("orders", 1, 1),
    }
    rig.log.high_watermarks[PARTITION] = 3
    rig.runtime.high_watermark_changed(PARTITION, 3)
    assert rig.offset("orders", 0) == 2
    rig.commit_log()
    assert (rig.offset("orders", 0), rig.offset("bills", 0)) == (3, 2)


def test_removal_is_invisible_until_it_is_committed() -> None:
    rig = Rig()
    rig.commit()
    rig.log.commits_at_once = False
    reply = rig.delete_group()
    assert rig.offset() == 5
    assert len(rig.fetch().topics) == 1
    assert rig.listed_groups() == ["g"]
    rig.commit_log()
    assert code(reply) == 0
    assert rig.offset() == -1
    assert rig.listed_groups() == []


def test_group_is_invisible_until_it_is_committed() -> None:
    rig = late_rig()
    rig.join()
    assert rig.listed_groups() == []
    rig.commit_log()
    assert rig.listed_groups() == ["g"]


def test_refusal_based_on_uncommitted_state_waits_for_its_commit() -> None:
    rig = Rig()
    members, _ = rig.stable_group()
    rig.log.commits_at_once = False
    left = rig.leave(*members)
    refused = rig.leave(*members)
    assert not left.is_set and not refused.is_set
    rig.commit_log()
    assert (code(left), code(refused)) == (0, UnknownMemberIdError.code)


def test_group_is_stable_only_when_its_assignment_is_committed() -> None:
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    rig.log.commits_at_once = False
    answer = rig.sync(leader, generation, {leader: b"L", follower: b"F"})
    late = rig.sync(follower, generation)
    assert (answer.is_set, late.is_set, rig.state()) == (False, False, GroupState.COMPLETING_REBALANCE)
    rig.commit_log()
    assert (answer.value.assignment, late.value.assignment, rig.state()) == (b"L", b"F", GroupState.STABLE)


def test_leader_that_repeats_its_sync_does_not_store_a_second_assignment() -> None:
    """Otherwise the log could hold another assignment than the members have."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    rig.log.commits_at_once = False
    first = rig.sync(leader, generation, {leader: b"first"})
    again = rig.sync(leader, generation, {leader: b"second", follower: b"x"})
    assert code(first) is None or code(first) == REBALANCE
    rig.commit_log()
    assert (code(first), again.value.assignment) == (REBALANCE, b"first")
    rig.restart()
    assert rig.group().members[leader].assignment == b"first"


def test_assignment_committed_after_a_new_rebalance_is_ignored() -> None:
    """Its callback belongs to an older generation."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    rig.log.commits_at_once = False
    answer = rig.sync(leader, generation, {leader: b"L"})
    joining = rig.join()
    rig.commit_log()
    assert code(answer) == REBALANCE
    assert rig.state() is GroupState.PREPARING_REBALANCE
    rig.join(leader), rig.join(follower)
    assert joining.value.generation_id == generation + 1


def test_assignment_of_an_older_generation_is_not_applied_to_a_newer_one() -> None:
    """It is committed while the next generation waits for its own assignment."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    rig.log.commits_at_once = False
    rig.sync(leader, generation, {leader: b"old"})
    rig.join(), rig.join(leader)
    again = rig.join(follower)
    assert (rig.state(), rig.group().generation) == (GroupState.COMPLETING_REBALANCE, generation + 1)
    rig.commit_log()
    assert again.value.generation_id == generation + 1
    assert rig.state() is GroupState.COMPLETING_REBALANCE
    assert rig.group().members[leader].assignment == b""


def test_late_commit_is_answered_with_a_timeout() -> None:
    """``offset_commit_timeout_ms``; the offset may still be committed later."""
    rig = late_rig()
    reply = rig.commit()
    rig.pass_time(4.999)
    assert not reply.is_set
    rig.pass_time(0.001)
    assert code(reply) == RequestTimedOutError.code
    assert rig.offset() == -1
    rig.commit_log()
    assert rig.offset() == 5


def test_late_commit_of_an_assignment_starts_a_rebalance() -> None:
    """The members rejoin."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    parked = rig.sync(follower, generation)
    rig.log.commits_at_once = False
    answer = rig.sync(leader, generation, {leader: b"L"})
    rig.pass_time(5)
    assert (code(answer), code(parked)) == (REBALANCE, REBALANCE)
    assert rig.state() is GroupState.PREPARING_REBALANCE


def test_group_with_a_late_creation_is_kept() -> None:
    """Its record may still be committed later."""
    rig = late_rig()
    promised = rig.join(version=4)
    rig.pass_time(5)
    assert code(promised) == RequestTimedOutError.code
    assert "g" in rig.shard.groups
    rig.commit_log()
    assert rig.listed_groups() == ["g"]


def test_static_restart_with_a_late_commit_takes_effect() -> None:
    """The log has the new member id. The client gets REBALANCE_IN_PROGRESS, rejoins and replaces it once more."""
    rig = Rig()
    first = rig.join(instance_id="i")
    rig.pass_time(6)
    old = first.value.member_id
    rig.sync(old, 1, {}, instance_id="i")
    rig.log.commits_at_once = False
    again = rig.join(instance_id="i")
    rig.pass_time(5)
    assert code(again) == REBALANCE
    assert old not in rig.group().members
    rig.restart()
    assert old not in rig.group().members
    rig.log.commits_at_once = True
    assert code(rig.join(instance_id="i")) == 0


def test_responses_are_in_the_order_of_the_log() -> None:
    rig = late_rig()
    replies = [rig.commit(offsets={("orders", 0): offset}) for offset in range(5)]
    for done in range(1, 6):
        rig.runtime.high_watermark_changed(PARTITION, done)
        assert [reply.is_set for reply in replies] == [i < done for i in range(5)]


def test_high_watermark_that_moves_during_the_append_releases_responses_after_replay() -> None:
    """A broker without followers moves it inside the append."""
    rig = Rig()
    append = rig.log.append

    def append_and_advance(partition: int, records: object, timestamp_ms: int) -> int:
        end = append(partition, records, timestamp_ms)
        rig.runtime.high_watermark_changed(partition, end)
        return end  # type: ignore[no-any-return]

    rig.log.append = append_and_advance
    assert code(rig.commit()) == 0
    assert rig.offset() == 5


# --- leadership is lost ---


def test_unload_fails_all_waiting_requests() -> None:
    """Parked joins and syncs, held commits and held syncs; nothing is written."""
    rig = Rig()
    (leader, follower), generation = rig.joined_group()
    parked_sync = rig.sync(follower, generation)
    parked_join = rig.join(group_id="other")
    rig.log.commits_at_once = False
    held_commit = rig.commit(group_id="simple")
    held_sync = rig.sync(leader, generation, {})
    before = len(rig.log.records[PARTITION])
    rig.runtime.unload(PARTITION)
    replies = (parked_sync, parked_join, held_commit, held_sync)
    assert [code(reply) for reply in replies] == [NOT_COORDINATOR] * 4
    assert len(rig.log.records[PARTITION]) == before


def test_records_lost_with_leadership_are_not_visible() -> None:
    """The next leader does not have them: acknowledged offsets remain, unacknowledged ones do not."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1})
    rig.log.commits_at_once = False
    lost = rig.commit(offsets={("orders", 0): 2, ("orders", 1): 2})
    rig.runtime.unload(PARTITION)
    del rig.log.records[PARTITION][1:]
    rig.load()
    assert code(lost) == NOT_COORDINATOR
    assert (rig.offset("orders", 0), rig.offset("orders", 1)) == (1, -1)


def test_unloaded_group_is_dead() -> None:
    rig = Rig()
    rig.stable_group()
    group = rig.group()
    rig.runtime.unload(PARTITION)
    assert group.state is GroupState.DEAD


def test_timers_of_an_unloaded_shard_do_not_fire() -> None:
    rig = Rig()
    rig.stable_group()
    rig.runtime.unload(PARTITION)
    assert rig.runtime.next_deadline() == float("inf")
    rig.pass_time(1_000)


def test_error_for_a_deleted_group_names_the_group() -> None:
    rig = Rig()
    rig.commit()
    assert code(rig.delete_group()) == 0
    with pytest.raises(GroupIdNotFoundError, match="'g'"):
        _ = rig.delete_group().value
