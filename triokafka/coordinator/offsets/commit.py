"""OffsetCommit: validation of a commit, and the records that it stores."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from triokafka import errors
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.member import Member
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import (
    NO_TOPIC_ID,
    CommittedOffset,
    GroupEffects,
    OffsetChange,
    OffsetKey,
    encode,
)
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord, TransactionalProducer
from triokafka.coordinator.runtime.reply import Reply
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITHOUT_LEGACY_ERROR: Final = 9
_LAST_MOMENT: Final = (1 << 63) - 1
_AT_ONCE: Final = 250
"""Offsets to prepare before other tasks may run: about a millisecond of work."""


class Positions(NamedTuple):
    """The changes of one topic with their encoded records, and the topic's part of the response."""

    answered: OffsetCommitResponseTopic
    changes: list[OffsetChange]
    records: list[CoordinatorRecord]


def resolve_topics(
    request: OffsetCommitRequest, version: int, topics: TopicsView, may_read: TopicFilter = any_topic
) -> Generator[
    None, None, tuple[list[tuple[OffsetCommitRequestTopic, OffsetCommitResponseTopic]], OffsetCommitResponse]
]:
    """Resolve the topics of a request. Returns the existing topics, with name and id filled in, and the response.

    The response has a place for every topic, in the order of the request. It already holds the errors for partitions
    that do not exist and for topics that the client may not read. Yields so that other tasks can run.
    """
    response = OffsetCommitResponse()
    known = []
    for number, asked in enumerate(request.topics, 1):
        if not number % _AT_ONCE:
            yield
        name: str | None
        topic_id: UUID | None
        error: type[errors.BrokerResponseError]
        if version >= FIRST_WITH_TOPIC_IDS:
            name, topic_id, error = topics.topic_name(asked.topic_id), asked.topic_id, errors.UnknownTopicIdError
        else:
            name, topic_id, error = asked.name, topics.topic_id(asked.name), errors.UnknownTopicOrPartitionError
        if name and not may_read(name):
            error, name = errors.TopicAuthorizationFailedError, None  # do not reveal whether the topic exists
        if name is None or topic_id is None:
            failed = _failed(asked.partitions, error.code)
            response.topics.append(
                OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=failed)
            )
            continue
        answered = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
        response.topics.append(answered)
        partitions, count = asked.partitions, topics.partition_count(name)
        if not all(0 <= partition.partition_index < count for partition in partitions):
            there = [partition for partition in partitions if 0 <= partition.partition_index < count]
            missing = [partition for partition in partitions if not 0 <= partition.partition_index < count]
            answered.partitions.extend(_failed(missing, errors.UnknownTopicOrPartitionError.code))
            partitions = there
        if partitions:
            known.append((OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions), answered))
    return known, response


def prepare(
    request: OffsetCommitRequest,
    known: list[tuple[OffsetCommitRequestTopic, OffsetCommitResponseTopic]],
    *,
    metadata_max_bytes: int,
    now_ms: int,
) -> Generator[None, None, list[Positions]]:
    """Encode the records of all offsets and fill the response as if they were stored. Yields so that other tasks can
    run.

    This is most of the work of a commit, and depends on no state of the group.
    """
    expire_timestamp = -1
    if request.retention_time_ms >= 0:
        expire_timestamp = min(now_ms + request.retention_time_ms, _LAST_MOMENT)
    group_id, done = request.group_id, 0
    prepared = []
    for topic, answered in known:
        positions = Positions(answered, [], [])
        prepared.append(positions)
        name, topic_id, knows_epochs = topic.name, topic.topic_id, True
        if expire_timestamp >= 0:
            # The record version with an expiry time has no field for the other two; keep what the log will hold.
            topic_id, knows_epochs = NO_TOPIC_ID, False
        for partition in topic.partitions:
            index, error_code, metadata = partition.partition_index, 0, partition.committed_metadata or ""
            if metadata and _java_length(metadata) > metadata_max_bytes:
                error_code = errors.OffsetMetadataTooLargeError.code
            else:
                epoch = partition.committed_leader_epoch if knows_epochs else -1
                value = CommittedOffset(partition.committed_offset, epoch, metadata, now_ms, expire_timestamp, topic_id)
                change = OffsetChange(OffsetKey(group_id, name, index), value)
                positions.changes.append(change)
                positions.records.append(encode(change))
            answered.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error_code))
            done += 1
            if not done % _AT_ONCE:
                yield
    return prepared


def leave_out_deleted(prepared: list[Positions], version: int, topics: TopicsView) -> None:
    """Drop the offsets of topics that were deleted since `resolve_topics`, while other tasks ran."""
    error = errors.UnknownTopicIdError if version >= FIRST_WITH_TOPIC_IDS else errors.UnknownTopicOrPartitionError
    for answered, changes, records in prepared:
        if topics.topic_id(answered.name) != answered.topic_id:
            changes.clear()
            records.clear()
            for partition in answered.partitions:
                partition.error_code = error.code


def commit(
    shard: GroupShard,
    request: OffsetCommitRequest,
    known: list[tuple[OffsetCommitRequestTopic, OffsetCommitResponseTopic]],
    prepared: list[Positions],
    response: OffsetCommitResponse,
    reply: Reply[OffsetCommitResponse],
    *,
    version: int,
    effects: GroupEffects,
    producer: TransactionalProducer | None = None,
) -> None:
    """Store the prepared offsets in one batch. Creates the group if it does not exist and the commit names no member.

    With a ``producer``, the offsets are part of its transaction, and take effect when that commits.

    Raises:
        IllegalGenerationError: the commit names a member of a group that does not exist (before v9).
        GroupIdNotFoundError: the same, since v9.
        UnknownMemberIdError, FencedInstanceIdError, RebalanceInProgressError: see `check_classic_member`.
        StaleMemberEpochError, UnsupportedVersionError: see `check_consumer_member`.
    """
    group = shard.groups.get(request.group_id)
    consumer_group = shard.consumer_groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    names_nobody = generation < 0 and not request.member_id and request.group_instance_id is None
    if consumer_group is not None and producer is not None and names_nobody:
        pass
    elif consumer_group is not None:
        partitions = ((topic.topic_id, one.partition_index) for topic, _ in known for one in topic.partitions)
        check_consumer_member(
            consumer_group,
            request.member_id,
            request.group_instance_id,
            generation,
            partitions,
            knows_epochs=version >= _FIRST_WITHOUT_LEGACY_ERROR,
        )
    elif group is not None:
        member = check_classic_member(
            group, request.member_id, request.group_instance_id, generation, in_transaction=producer is not None
        )
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            rebalance.start_session(group, member, effects)
    elif generation >= 0:
        knows_code = version >= _FIRST_WITHOUT_LEGACY_ERROR and producer is None
        error = errors.GroupIdNotFoundError if knows_code else errors.IllegalGenerationError
        raise error(f"group {request.group_id!r} does not exist")
    for _, changes, records in prepared:
        effects.write_encoded(changes, records)
    effects.producer = producer
    shard.counters.offset_commits += len(effects.records)
    effects.answer(reply, response)


def check_classic_member(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool = False
) -> Member | None:
    """Check that an offset commit is allowed, and return the member that it names, if any.

    A commit in a transaction may name no member, since older clients cannot, and may come while the group waits
    for its leader's assignment.

    Raises:
        UnknownMemberIdError: no such member; the commit names no member while the group has some; or the group is
            Dead.
        FencedInstanceIdError: another member now has the instance id.
        IllegalGenerationError: the commit is from another generation.
        RebalanceInProgressError: the member is in the new generation, whose assignment is not stored yet.
    """
    if group.state is GroupState.DEAD:
        raise errors.UnknownMemberIdError(f"group {group.group_id!r} is dead")
    if generation < 0 and group.state is GroupState.EMPTY:
        return None
    if generation < 0 and not member_id and instance_id is None:
        if in_transaction:
            return None
        raise errors.UnknownMemberIdError(f"group {group.group_id!r} has members; only members may commit")
    member = group.member_of_generation(member_id, instance_id, generation)
    if group.state is GroupState.COMPLETING_REBALANCE and not in_transaction:
        raise errors.RebalanceInProgressError(f"group {group.group_id!r} is waiting for its leader's assignment")
    return member


def check_consumer_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
    partitions: Iterable[tuple[UUID, int]],
    *,
    knows_epochs: bool = True,
) -> None:
    """Check that an offset commit on ``partitions`` is allowed. A group without members accepts commits from
    anyone. ``knows_epochs``: the request's version has member epochs.

    A commit of an older epoch is accepted if the member already owned the partitions in that epoch (KIP-1251): it
    may have been in flight while the member advanced. The generation of a classic member is its epoch.

    Raises:
        UnknownMemberIdError: the group has no such member.
        FencedInstanceIdError: another member now has the instance id.
        UnsupportedVersionError: a member of the consumer protocol must use a newer version.
        StaleMemberEpochError: the member is in another epoch; it must heartbeat, and may then retry.
        IllegalGenerationError: the same for a classic member; it must rejoin.
    """
    if member_epoch < 0 and not group.profiles:
        return
    progress = group.progress_of_requester(member_id, instance_id)
    if not knows_epochs and group.profiles[member_id].classic is None:
        raise errors.UnsupportedVersionError("members of a consumer group must use OffsetCommit v9 or later")
    if member_epoch == progress.epoch:
        return
    if member_epoch < progress.epoch and all(
        progress.assigned.get(topic_id, {}).get(number, member_epoch + 1) <= member_epoch
        for topic_id, number in partitions
    ):
        return
    group.refuse_epoch(member_id, member_epoch, progress)


def commit_failed(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """Return the response when the whole request failed."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=_failed(topic.partitions, error_code)
            )
            for topic in request.topics
        ]
    )


def _failed(partitions: Iterable[OffsetCommitRequestPartition], error_code: int) -> list[OffsetCommitResponsePartition]:
    return [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error_code)
        for partition in partitions
    ]


def _java_length(text: str) -> int:
    """Return the length in UTF-16 code units, as Kafka counts it for ``offset.metadata.max.bytes``."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
