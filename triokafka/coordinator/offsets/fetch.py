"""OffsetFetch: committed offsets of groups, as of the high watermark.

Offsets can be fetched whether or not the group has members. A partition without a committed offset has offset -1 and no
error. So does a partition whose offset was committed for a deleted topic of the same name and is not removed yet. Kafka
compares the name alone in some places; here the topic ids must match, because an offset in another log means nothing.

With ``require_stable`` (KIP-447), partitions with offsets of an open transaction get UNSTABLE_OFFSET_COMMIT. The others
get their newest offset, once it is committed, so that the reader cannot miss a transaction that has just ended.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Final
from uuid import UUID

from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import NO_TOPIC_ID, CommittedOffset, OffsetKey
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic
from triokafka.errors import TopicAuthorizationFailedError, UnknownTopicIdError, UnstableOffsetCommitError
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

FetchSteps = Generator[None, None, OffsetFetchResponseGroup]
"""Builds one group's answer in steps; other tasks may run after each step."""

FIRST_BATCHED: Final = 8
FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_TOP_ERROR: Final = 2
_POSITIONS_AT_ONCE: Final = 250


def asked_groups(request: OffsetFetchRequest, version: int) -> list[OffsetFetchRequestGroup]:
    """Return the groups of a request; before v8 there is exactly one."""
    if version >= FIRST_BATCHED:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def fetch_group(
    shard: GroupShard,
    asked: OffsetFetchRequestGroup,
    version: int,
    topics: TopicsView,
    may_describe: TopicFilter = any_topic,
    *,
    stable: bool = False,
) -> FetchSteps:
    """Return the steps that build one group's answer: the requested partitions, or all that the client may describe.

    The offsets are those at the time of the call, even if the steps run later. With ``stable`` they are the newest
    offsets, and the caller must hold the answer until they are committed.

    Raises:
        UnknownMemberIdError, StaleMemberEpochError, IllegalGenerationError: see `check_member`.
    """
    consumer_group = shard.consumer_groups.get(asked.group_id)
    if consumer_group is not None:
        check_member(consumer_group, asked.member_id, asked.member_epoch)
    if asked.topics is not None:
        return _known(_named(shard, asked, asked.topics, version, topics, may_describe, stable))
    offsets = shard.offsets
    if not stable:
        return _all(asked.group_id, offsets.read_group(asked.group_id), frozenset(), version, topics, may_describe)
    newest = {topic: dict(partitions) for topic, partitions in offsets.newest_group(asked.group_id).items()}
    pending = frozenset(offsets.pending.of_group(asked.group_id)) if offsets.pending else frozenset()
    return _all(asked.group_id, newest, pending, version, topics, may_describe)


def check_member(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Check that a member may fetch offsets. A request that names no member is always allowed.

    Raises:
        UnknownMemberIdError, StaleMemberEpochError, IllegalGenerationError: see `ConsumerGroup`.
    """
    if member_epoch < 0 and not member_id:
        return
    progress = group.progress_of_requester(member_id or "", None)
    if member_epoch != progress.epoch:
        group.refuse_epoch(member_id or "", member_epoch, progress)


def _known(group: OffsetFetchResponseGroup) -> FetchSteps:
    yield from ()
    return group


def _all(
    group_id: str,
    positions: Mapping[str, Mapping[int, CommittedOffset]],
    pending: Collection[OffsetKey],
    version: int,
    topics: TopicsView,
    may_describe: TopicFilter,
) -> FetchSteps:
    by_id = version >= FIRST_WITH_TOPIC_IDS
    found = []
    done = 0
    for topic_name, committed in positions.items():
        topic_id = topics.topic_id(topic_name)
        if (by_id and topic_id is None) or not may_describe(topic_name):
            continue  # a response by id cannot name a deleted topic
        partitions = []
        for index, value in sorted(committed.items()):
            if pending and OffsetKey(group_id, topic_name, index) in pending:
                partitions.append(_unstable(index))
            elif not _is_of_deleted_topic(value, topic_id):
                partitions.append(_found(index, value))
            done += 1
            if not done % _POSITIONS_AT_ONCE:
                yield
        if partitions:
            found.append(
                OffsetFetchResponseTopics(name=topic_name, topic_id=topic_id or NO_TOPIC_ID, partitions=partitions)
            )
    return OffsetFetchResponseGroup(group_id=group_id, topics=found)


def _named(
    shard: GroupShard,
    asked: OffsetFetchRequestGroup,
    wanted: Sequence[OffsetFetchRequestTopics],
    version: int,
    topics: TopicsView,
    may_describe: TopicFilter,
    stable: bool,
) -> OffsetFetchResponseGroup:
    by_id = version >= FIRST_WITH_TOPIC_IDS
    answers = []
    for topic in wanted:
        name = topics.topic_name(topic.topic_id) or "" if by_id else topic.name
        if by_id and not name:
            partitions = [_missing(index, UnknownTopicIdError.code) for index in topic.partition_indexes]
        elif not may_describe(name):
            name = topic.name
            partitions = [_missing(index, TopicAuthorizationFailedError.code) for index in topic.partition_indexes]
        else:
            topic_id = topic.topic_id if by_id else topics.topic_id(name)
            partitions = [
                _one(shard, OffsetKey(asked.group_id, name, index), topic_id, stable)
                for index in topic.partition_indexes
            ]
        answers.append(OffsetFetchResponseTopics(name=name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=answers)


def as_response(
    request: OffsetFetchRequest, groups: list[OffsetFetchResponseGroup], version: int
) -> OffsetFetchResponse:
    """Build the response in the shape of the version. In v1 every partition carries the group's error."""
    if version >= FIRST_BATCHED:
        return OffsetFetchResponse(groups=groups)
    group = groups[0]
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    if group.error_code and version < _FIRST_WITH_TOP_ERROR:
        topics = [
            OffsetFetchResponseTopic(
                name=asked.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=group.error_code
                    )
                    for index in asked.partition_indexes
                ],
            )
            for asked in request.topics or []
        ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _one(shard: GroupShard, key: OffsetKey, topic_id: UUID | None, stable: bool) -> OffsetFetchResponsePartitions:
    if stable and key in shard.offsets.pending:
        return _unstable(key.partition)
    committed = shard.offsets.newest_one(key) if stable else shard.offsets.read(key)
    if committed is None or _is_of_deleted_topic(committed, topic_id):
        return _missing(key.partition, 0)
    return _found(key.partition, committed)


def _is_of_deleted_topic(committed: CommittedOffset, topic_id: UUID | None) -> bool:
    """Whether the offset was committed for a deleted topic of the same name, as far as both ids are known."""
    return topic_id is not None and committed.topic_id.int not in (0, topic_id.int)  # comparing ids is a Python call


def _found(index: int, committed: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return _missing(index, UnstableOffsetCommitError.code)


def _missing(index: int, error_code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error_code
    )
