"""Commit, fetch, deletion and expiry of offsets."""

from __future__ import annotations

import uuid

import pytest

from tests.support.in_steps import done
from tests.unit.coordinator.rig import PARTITION, TOPIC_IDS, Rig, code, subscription
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.records import GroupChange, OffsetChange
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.coordinator.offsets.commit import commit_failed, resolve_topics
from triokafka.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

DAY = 24 * 3600.0
WEEK = 7 * DAY


# --- commit ---


def test_commit_survives_a_restart_with_all_its_fields() -> None:
    rig = Rig()
    assert code(rig.commit(offsets={("orders", 2): 7}, metadata="mine", leader_epoch=4)) == 0
    rig.restart()
    found = rig.fetch(("orders", 2)).topics[0].partitions[0]
    assert (found.committed_offset, found.metadata, found.committed_leader_epoch) == (7, "mine", 4)


def test_null_metadata_becomes_empty() -> None:
    rig = Rig()
    rig.commit(metadata=None)
    assert rig.fetch(("orders", 0)).topics[0].partitions[0].metadata == ""


def test_commit_without_a_member_creates_a_group() -> None:
    """A consumer with manual assignment only stores offsets."""
    rig = Rig()
    assert code(rig.commit()) == 0
    assert (rig.state(), rig.group().protocol_type) == (GroupState.EMPTY, None)


@pytest.mark.parametrize(("version", "error"), [(8, IllegalGenerationError), (9, GroupIdNotFoundError)])
def test_commit_with_a_generation_of_an_unknown_group_is_refused(
    version: int, error: type[IllegalGenerationError]
) -> None:
    """The error is GROUP_ID_NOT_FOUND since version 9."""
    rig = Rig()
    assert code(rig.commit("somebody", 3, version=version)) == error.code
    assert rig.shard.groups == {}


def test_commit_without_a_member_into_a_group_with_members_is_refused() -> None:
    rig = Rig()
    rig.stable_group()
    assert code(rig.commit()) == UnknownMemberIdError.code


def test_metadata_that_is_too_long_is_refused_for_its_partition_only() -> None:
    """The limit counts UTF-16 code units, as in Java."""
    rig = Rig(offset_metadata_max_bytes=4)
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=9, committed_metadata=text)
                    for i, text in enumerate(["four", "fives", "äöüß", "\N{GRINNING FACE}" * 3])
                ],
            )
        ],
    )
    response = rig.commit_request(request, 8).value
    too_large = OffsetMetadataTooLargeError.code
    assert [p.error_code for p in response.topics[0].partitions] == [0, too_large, 0, too_large]
    assert [rig.offset("orders", i) for i in range(4)] == [9, -1, 9, -1]


def test_commit_on_unknown_topics_is_refused_before_the_group_is_called() -> None:
    rig = Rig()
    request = OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(partition_index=1)])
            for name in ("nowhere", "orders")
        ]
    )
    known, response = done(resolve_topics(request, 8, rig.topics))
    assert [topic.name for topic, _ in known] == ["orders"]
    assert [p.error_code for p in response.topics[0].partitions] == [UnknownTopicOrPartitionError.code]
    assert response.topics[1].partitions == []


@pytest.mark.parametrize("version", [8, 10])
def test_commit_on_unknown_partitions_is_refused_before_the_group_is_called(version: int) -> None:
    """The other partitions of the request are committed."""
    rig = Rig()
    many = [OffsetCommitRequestPartition(partition_index=i) for i in (-1, 0, 3, 4, 2**31 - 1)]
    request = OffsetCommitRequest(
        topics=[OffsetCommitRequestTopic(name="orders", topic_id=TOPIC_IDS["orders"], partitions=many)]
    )
    known, response = done(resolve_topics(request, version, rig.topics))
    assert [p.partition_index for topic, _ in known for p in topic.partitions] == [0, 3]
    unknown = UnknownTopicOrPartitionError.code
    assert [(p.partition_index, p.error_code) for p in response.topics[0].partitions] == [
        (-1, unknown),
        (4, unknown),
        (2**31 - 1, unknown),
    ]
    request.topics[0].partitions = many[3:]
    assert done(resolve_topics(request, version, rig.topics))[0] == []


def test_commit_resolves_topic_ids() -> None:
    """Version 10; an unknown id is refused by id."""
    rig = Rig()
    request = OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(topic_id=topic_id, partitions=[OffsetCommitRequestPartition()])
            for topic_id in (TOPIC_IDS["bills"], uuid.UUID(int=77))
        ]
    )
    known, response = done(resolve_topics(request, 10, rig.topics))
    assert [(topic.name, topic.topic_id) for topic, _ in known] == [("bills", TOPIC_IDS["bills"])]
    assert response.topics[1].topic_id == uuid.UUID(int=77)
    assert [p.error_code for p in response.topics[1].partitions] == [UnknownTopicIdError.code]


def test_failed_commit_answers_every_partition() -> None:
    request = OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(
                name="orders", partitions=[OffsetCommitRequestPartition(partition_index=i) for i in (3, 1)]
            )
        ]
    )
    failed = commit_failed(request, 16)
    assert [(p.partition_index, p.error_code) for p in failed.topics[0].partitions] == [(3, 16), (1, 16)]


# --- fetch ---


def test_missing_offset_is_minus_one_without_an_error() -> None:
    found = Rig().fetch(("orders", 0), group_id="nobody").topics[0].partitions[0]
    assert (found.committed_offset, found.error_code, found.metadata) == (-1, 0, "")


def test_null_topics_fetch_all_offsets_of_the_group() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 1): 4, ("orders", 0): 3, ("bills", 5): 6})
    rig.commit(offsets={("orders", 0): 99}, group_id="other")
    found = rig.fetch()
    assert {
        (topic.name, p.partition_index): p.committed_offset for topic in found.topics for p in topic.partitions
    } == {("orders", 0): 3, ("orders", 1): 4, ("bills", 5): 6}


def test_fetch_resolves_topic_ids() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 3})
    found = rig.fetch(("orders", 0), ("nowhere", 0), version=10)
    assert found.topics[0].topic_id == TOPIC_IDS["orders"]
    assert found.topics[0].partitions[0].committed_offset == 3
    assert found.topics[1].partitions[0].error_code == UnknownTopicIdError.code
    assert [topic.topic_id for topic in rig.fetch(version=10).topics] == [TOPIC_IDS["orders"]]


def test_offset_of_a_deleted_topic_of_the_same_name_is_not_returned() -> None:
    """The stored topic id distinguishes the topics."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 3}, version=10)
    again = uuid.UUID(int=500)
    rig.topics.ids["orders"] = again
    asked = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(topic_id=again, partition_indexes=[0])]
    )
    found = done(fetches.fetch_group(rig.shard, asked, 10, rig.topics))
    assert found.topics[0].partitions[0].committed_offset == -1
    assert rig.offset() == -1
    assert [rig.fetch(version=version).topics for version in (9, 10)] == [[], []]
    rig.commit(offsets={("orders", 1): 4})
    every = rig.fetch(version=9).topics
    assert [(topic.name, [one.partition_index for one in topic.partitions]) for topic in every] == [("orders", [1])]


def test_fetch_of_all_offsets_by_id_omits_deleted_topics() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 3, ("bills", 0): 4})
    del rig.topics.ids["orders"]
    assert [topic.name for topic in rig.fetch(version=10).topics] == ["bills"]
    assert {topic.name for topic in rig.fetch(version=9).topics} == {"orders", "bills"}


@pytest.mark.parametrize("stable", [False, True])
def test_fetch_in_steps_is_a_snapshot(stable: bool) -> None:
    """Commits between the steps are not included."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 3, ("bills", 0): 4})
    asked = OffsetFetchRequestGroup(group_id="g", topics=None)
    steps = fetches.fetch_group(rig.shard, asked, 9, rig.topics, stable=stable)
    rig.commit(offsets={("orders", 0): 13, ("orders", 1): 1})
    found = {topic.name: [one.committed_offset for one in topic.partitions] for topic in done(steps).topics}
    assert found == {"orders": [3], "bills": [4]}
    assert rig.offset() == 13


def test_fetch_before_version_8_carries_one_group() -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    )
    (asked,) = fetches.asked_groups(request, 7)
    assert (asked.group_id, asked.topics[0].name) == ("g", "orders")  # type: ignore[index]
    rig = Rig()
    rig.commit()
    group = done(fetches.fetch_group(rig.shard, asked, 7, rig.topics))
    response = fetches.as_response(request, [group], 7)
    assert [p.committed_offset for p in response.topics[0].partitions] == [5, -1]
    assert response.groups == []


def test_version_1_repeats_the_group_error_for_every_partition() -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
    )
    failed = OffsetFetchResponseGroup(group_id="g", error_code=16)
    old = fetches.as_response(request, [failed], 1)
    assert [p.error_code for p in old.topics[0].partitions] == [16, 16]
    newer = fetches.as_response(request, [failed], 2)
    assert (newer.error_code, newer.topics) == (16, [])


# --- delete ---


def test_offsets_of_unsubscribed_topics_can_be_deleted() -> None:
    """KIP-496."""
    rig = Rig()
    (leader, _), generation = rig.stable_group()
    rig.commit(leader, generation, {("orders", 0): 1, ("bills", 0): 2})
    asked = [("orders", 0), ("bills", 0), ("bills", 1), ("bills", 9), ("bills", -1), ("nowhere", 0), ("orders", 9)]
    answers = rig.delete_offsets(*asked).value
    unknown = UnknownTopicOrPartitionError.code
    assert [topic.partitions[0].error_code for topic in answers.topics] == [
        GroupSubscribedToTopicError.code,
        0,
        0,
        unknown,
        unknown,
        unknown,
        unknown,
    ]
    assert (rig.offset("orders"), rig.offset("bills")) == (1, -1)


def test_offsets_of_a_group_of_another_type_cannot_be_deleted_while_it_has_members() -> None:
    rig = Rig()
    rig.commit()
    members, _ = rig.stable_group(protocol_type="connect")
    assert code(rig.delete_offsets(("orders", 0))) == NonEmptyGroupError.code
    rig.leave(*members)
    assert code(rig.delete_offsets(("orders", 0))) == 0
    assert rig.offset() == -1


def test_offsets_of_members_whose_subscription_cannot_be_read_cannot_be_deleted() -> None:
    rig = Rig()
    rig.commit()
    rig.stable_group(protocols=[("range", b"\x00")])
    assert code(rig.delete_offsets(("orders", 0))) == GroupSubscribedToTopicError.code


def test_deleting_offsets_of_an_unknown_group_is_refused() -> None:
    assert code(Rig().delete_offsets(("orders", 0))) == GroupIdNotFoundError.code


def test_group_without_members_is_removed_with_its_last_offset() -> None:
    rig = Rig()
    rig.commit()
    rig.delete_offsets(("orders", 0))
    assert rig.shard.groups == {}


def test_deleting_a_topic_removes_its_offsets() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1, ("bills", 0): 2})
    rig.commit(offsets={("orders", 4): 1}, group_id="other")
    topics_deleted(rig, "orders")
    assert (rig.offset("orders"), rig.offset("bills"), rig.offset("orders", 4, group_id="other")) == (-1, 2, -1)
    rig.restart()
    assert (rig.offset("orders"), rig.offset("bills")) == (-1, 2)


def topics_deleted(rig: Rig, name: str) -> None:
    rig.runtime.topics_deleted({TOPIC_IDS[name]: name})


def test_loading_shard_removes_offsets_of_deleted_topics_once_loaded() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1, ("bills", 0): 2})
    rig.runtime.unload(PARTITION)
    rig.runtime.load(PARTITION, 9)
    topics_deleted(rig, "orders")
    rig.runtime.load_all()
    assert (rig.offset("orders"), rig.offset("bills")) == (-1, 2)


def test_offsets_of_a_deleted_topic_are_removed_in_bounded_appends() -> None:
    rig = Rig()
    for start in range(0, 2_500, 500):
        rig.commit(offsets={("orders", p): 1 for p in range(start, start + 500)})
    before = rig.log.appends
    topics_deleted(rig, "orders")
    rig.pass_time(1)
    assert (rig.fetch().topics, rig.log.appends - before) == ([], 3)
    assert rig.shard.deleted_topics == {}


def test_failed_removal_of_offsets_of_a_deleted_topic_is_retried() -> None:
    rig = Rig()
    rig.commit()
    rig.log.fails_with = NonEmptyGroupError("any")
    topics_deleted(rig, "orders")
    assert rig.offset() == 5
    rig.log.fails_with = None
    rig.pass_time(700)
    assert (rig.offset(), rig.shard.deleted_topics) == (-1, {})


def test_failed_removal_of_many_offsets_is_not_retried_at_once() -> None:
    rig = Rig()
    for start in range(0, 2_500, 500):
        rig.commit(offsets={("orders", p): 1 for p in range(start, start + 500)})
    rig.log.fails_with, rig.log.failures_left = NonEmptyGroupError("any"), 10
    topics_deleted(rig, "orders")
    rig.pass_time(60)
    assert rig.log.failures_left == 9
    rig.log.fails_with = None
    rig.pass_time(700)
    assert rig.fetch().topics == []


def test_offsets_of_a_recreated_topic_are_not_removed() -> None:
    """The new topic has another id, even when the removal of the old offsets was delayed."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1, ("orders", 1): 1})
    rig.log.fails_with = NonEmptyGroupError("any")
    topics_deleted(rig, "orders")
    rig.log.fails_with = None
    rig.topics.delete("orders")
    rig.topics.set("orders", 2)
    rig.commit(offsets={("orders", 0): 7})
    rig.pass_time(700)
    stored = rig.newest("orders", 0)
    assert (stored is not None and stored.offset, rig.newest("orders", 1)) == (7, None)


# --- expiry (KIP-211) ---


def test_offsets_of_a_group_with_members_do_not_expire() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=1_800_000)
    rig.commit(leader, generation)
    for _ in range(int(2 * WEEK / 1_700)):
        rig.heartbeat(leader, generation), rig.heartbeat(follower, generation)
        rig.pass_time(1_700)
    assert rig.offset() == 5


def test_offsets_of_unsubscribed_topics_expire_in_a_live_group() -> None:
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=1_800_000)
    rig.commit(leader, generation, {("orders", 0): 5, ("bills", 0): 6})
    for _ in range(int(1.1 * WEEK / 1_700)):
        rig.heartbeat(leader, generation), rig.heartbeat(follower, generation)
        rig.pass_time(1_700)
    assert (rig.offset("orders"), rig.offset("bills")) == (5, -1)


def test_offset_age_counts_from_the_moment_the_group_became_empty() -> None:
    rig = Rig()
    members, generation = rig.stable_group(1, session_ms=1_800_000)
    rig.commit(members[0], generation)
    for _ in range(int(2 * WEEK / 1_700)):
        rig.heartbeat(members[0], generation)
        rig.pass_time(1_700)
    rig.leave(*members)
    rig.pass_time(WEEK - 700)
    assert rig.offset() == 5
    rig.pass_time(1_400)
    assert rig.offset() == -1


def test_offset_committed_to_a_long_empty_group_has_full_retention() -> None:
    """Otherwise offsets that a tool resets would expire within minutes."""
    rig = Rig()
    members, generation = rig.stable_group(1)
    rig.commit(members[0], generation, {("orders", 0): 1})
    rig.leave(*members)
    rig.pass_time(WEEK - 2_000)
    rig.commit(offsets={("orders", 0): 2})
    rig.pass_time(WEEK - 2_000)
    assert rig.offset() == 2
    rig.pass_time(4_000)
    assert rig.offset() == -1


def test_empty_group_is_removed_with_its_last_offset() -> None:
    """The removal is a tombstone, so it survives a restart."""
    rig = Rig()
    members, generation = rig.stable_group(1)
    rig.commit(members[0], generation)
    rig.leave(*members)
    rig.pass_time(WEEK + 700)
    assert rig.shard.groups == {}
    assert rig.changes()[-2:] == [OffsetChange(("g", "orders", 0), None), GroupChange("g", None)]  # type: ignore[arg-type]
    rig.restart()
    assert rig.shard.groups == {}


def test_offset_age_without_a_group_protocol_counts_from_the_commit() -> None:
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1})
    rig.pass_time(3 * DAY)
    rig.commit(offsets={("orders", 1): 2})
    rig.pass_time(4 * DAY + 700)
    assert (rig.offset("orders", 0), rig.offset("orders", 1)) == (-1, 2)


def test_retention_time_of_the_commit_overrides_the_default() -> None:
    """Clients may set it up to version 4."""
    rig = Rig()
    rig.commit(offsets={("orders", 0): 1}, retention_ms=3_600_000, version=4)
    rig.commit(offsets={("orders", 1): 1}, retention_ms=int(4 * WEEK * 1000), version=4)
    rig.restart()
    rig.pass_time(2 * 3600)
    assert (rig.offset("orders", 0), rig.offset("orders", 1)) == (-1, 1)
    rig.pass_time(2 * WEEK)
    assert rig.offset("orders", 1) == 1


def test_very_many_expired_offsets_are_removed_in_several_appends() -> None:
    rig = Rig(offsets_retention_check_interval_ms=8 * 24 * 3_600_000)
    for start in range(0, 2_500, 500):
        rig.commit(offsets={("orders", p): 1 for p in range(start, start + 500)})
    before = rig.log.appends
    rig.pass_time(9 * DAY)
    assert rig.fetch().topics == []
    assert rig.log.appends - before == 3


def test_expiry_scan_yields_to_requests() -> None:
    rig = Rig()
    for number in range(4):
        rig.commit(group_id=f"g{number}", offsets={("orders", p): 1 for p in range(600)})
    rig.world.clock += 8 * 24 * 3600
    rig.runtime.fire_due()
    assert len(rig.shard.offsets) < 2_400, "the scan has begun"
    assert len(rig.shard.offsets) >= 1_200, "and is not finished"
    rig.pass_time(1)
    assert len(rig.shard.offsets) == 0


def test_long_expiry_scan_runs_once_per_interval() -> None:
    rig = Rig()
    for number in range(4):
        rig.commit(group_id=f"g{number}", offsets={("orders", p): 1 for p in range(600)})
    rig.pass_time(601)
    assert rig.shard.unscanned_groups == []
    assert rig.runtime.next_deadline() > rig.world.clock + 500


def test_failed_append_of_an_expiry_is_retried() -> None:
    rig = Rig()
    rig.commit()
    rig.log.fails_with = NonEmptyGroupError("any")
    rig.pass_time(WEEK + 700)
    assert rig.offset() == 5
    rig.log.fails_with = None
    rig.pass_time(700)
    assert rig.offset() == -1


def test_group_with_pending_members_only_is_kept_until_they_expire() -> None:
    rig = Rig(offsets_retention_check_interval_ms=1_000)
    member_id = rig.join(version=4, session_ms=6_000).value.member_id
    rig.pass_time(5)
    assert code(rig.join(member_id, version=4)) is None
    rig = Rig(offsets_retention_check_interval_ms=1_000)
    rig.join(version=4, session_ms=6_000)
    rig.pass_time(7)
    assert rig.shard.groups == {}


@pytest.mark.parametrize(
    "metadata", [b"", b"\x00", b"\xff\xff" + subscription("orders")[2:], subscription("orders")[:-3]]
)
def test_unreadable_subscriptions_prevent_offset_expiry(metadata: bytes) -> None:
    """The coordinator accepts malformed metadata and only stops expiring the group's offsets."""
    rig = Rig()
    (leader, follower), generation = rig.stable_group(session_ms=1_800_000, protocols=[("range", metadata)])
    rig.commit(leader, generation, {("bills", 0): 6})
    for _ in range(int(1.1 * WEEK / 1_700)):
        rig.heartbeat(leader, generation), rig.heartbeat(follower, generation)
        rig.pass_time(1_700)
    assert rig.offset("bills") == 6


def test_commit_with_a_retention_time_is_kept_as_stored() -> None:
    """Its record version has no field for the topic id."""
    rig = Rig()
    rig.commit(retention_ms=60_000, version=4)
    stored = rig.newest()
    rig.restart()
    assert rig.newest() == stored
