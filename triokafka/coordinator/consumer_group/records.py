"""The changes of a consumer group, and their records in ``__consumer_offsets``, byte for byte as Kafka writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from triokafka.coordinator.consumer_group.member import (
    ClassicTraits,
    MemberProfile,
    MemberProgress,
    MemberState,
    Partitions,
    partitions_of,
)
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.protocol.stored import consumer_group as stored
from triokafka.protocol.stored.versioned import VersionedMessage, stored_version

_VERSION: Final = 0
_KNOWN_STATES: Final = frozenset(MemberState)


class EpochChange(NamedTuple):
    """The group's epoch and the hash of its subscribed topics; None removes the group."""

    group_id: str
    value: tuple[int, int] | None


class TopicsChange(NamedTuple):
    """The subscribed topics' metadata, as Kafka stored it up to 4.0. Only ever removed here: the hash replaces it."""

    group_id: str
    value: bool | None
    """True for present, None for removed."""


class ProfileChange(NamedTuple):
    """A member's profile; None removes the member."""

    group_id: str
    member_id: str
    value: MemberProfile | None


class TargetEpochChange(NamedTuple):
    """The epoch of the target assignment and the time of its computation (ms); None: no target assignment."""

    group_id: str
    value: tuple[int, int] | None


class TargetChange(NamedTuple):
    """A member's target partitions; None: no partitions."""

    group_id: str
    member_id: str
    value: Partitions | None


class ProgressChange(NamedTuple):
    """A member's reconciliation state; None: the member owns nothing."""

    group_id: str
    member_id: str
    value: MemberProgress | None


class PatternMatch(NamedTuple):
    """The topics that a pattern matches, with the metadata version and the time (ms) of the lookup."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class PatternChange(NamedTuple):
    """The matches of a pattern; None: no member uses the pattern."""

    group_id: str
    pattern: str
    value: PatternMatch | None


ConsumerGroupChange: TypeAlias = (
    EpochChange | TopicsChange | ProfileChange | TargetEpochChange | TargetChange | ProgressChange | PatternChange
)


def encode(change: ConsumerGroupChange) -> CoordinatorRecord:
    """Encode a change as a record."""
    kind, key_type = _KEYS[type(change)]
    key = key_type(*change[:-1]).encode_versioned(kind)
    value = None if change.value is None else _value(change)
    return CoordinatorRecord(key, None if value is None else value.encode_versioned(_VERSION))


def _value(change: ConsumerGroupChange) -> VersionedMessage | None:
    match change:
        case EpochChange(_, (epoch, metadata_hash)):
            return stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case ProfileChange(_, _, MemberProfile() as profile):
            return _stored_profile(profile)
        case TargetEpochChange(_, (epoch, timestamp_ms)):
            return stored.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=timestamp_ms
            )
        case TargetChange(_, _, partitions) if partitions is not None:
            return stored.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    stored.TargetTopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id]))
                    for topic_id in sorted(partitions)
                ]
            )
        case ProgressChange(_, _, MemberProgress() as progress):
            return stored.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=progress.epoch,
                previous_member_epoch=progress.previous_epoch,
                state=int(progress.state),
                assigned_partitions=_stored_owned(progress.assigned),
                partitions_pending_revocation=_stored_owned(progress.revoking),
            )
        case PatternChange(_, _, PatternMatch() as match):
            return stored.ConsumerGroupRegularExpressionValue(
                topics=sorted(match.topics), version=match.version, timestamp=match.timestamp_ms
            )
    raise ValueError(f"{change} cannot be stored as a record")


def _stored_profile(profile: MemberProfile) -> stored.ConsumerGroupMemberMetadataValue:
    classic = profile.classic
    return stored.ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.pattern,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.server_assignor,
        classic_member_metadata=None
        if classic is None
        else stored.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[stored.ClassicProtocol(name=n, metadata=m) for n, m in classic.protocols],
        ),
    )


def _stored_owned(partitions: Mapping[UUID, Mapping[int, int]]) -> list[stored.OwnedTopicPartitions]:
    return [
        stored.OwnedTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions[topic_id]),
            assignment_epochs=[partitions[topic_id][number] for number in sorted(partitions[topic_id])],
        )
        for topic_id in sorted(partitions)
        if partitions[topic_id]
    ]


def is_of_consumer_group(key: bytes) -> bool:
    """Whether a record belongs to a consumer group. Raises `ProtocolError` for a key without a record kind."""
    return stored_version(key) in _DECODERS


def decode(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    """Decode a consumer group record. Raises `ProtocolError` for a malformed record."""
    return _DECODERS[stored_version(key)](key, value)


def _decode_epoch(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    group_id = stored.ConsumerGroupMetadataKey.decode_versioned(key).group_id
    if value is None:
        return EpochChange(group_id, None)
    found = stored.ConsumerGroupMetadataValue.decode_versioned(value)
    return EpochChange(group_id, (found.epoch, found.metadata_hash))


def _decode_topics(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    group_id = stored.ConsumerGroupPartitionMetadataKey.decode_versioned(key).group_id
    return TopicsChange(group_id, None if value is None else True)


def _decode_profile(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    named = stored.ConsumerGroupMemberMetadataKey.decode_versioned(key)
    if value is None:
        return ProfileChange(named.group_id, named.member_id, None)
    found = stored.ConsumerGroupMemberMetadataValue.decode_versioned(value)
    classic = found.classic_member_metadata
    profile = MemberProfile(
        instance_id=found.instance_id,
        rack_id=found.rack_id,
        client_id=found.client_id,
        client_host=found.client_host,
        topic_names=frozenset(found.subscribed_topic_names),
        pattern=found.subscribed_topic_regex or "",
        rebalance_timeout_ms=found.rebalance_timeout_ms,
        server_assignor=found.server_assignor,
        classic=None
        if classic is None or not classic.supported_protocols  # written by a broker without this field
        else ClassicTraits(
            classic.session_timeout_ms, tuple((p.name, bytes(p.metadata)) for p in classic.supported_protocols)
        ),
    )
    return ProfileChange(named.group_id, named.member_id, profile)


def _decode_target_epoch(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    group_id = stored.ConsumerGroupTargetAssignmentMetadataKey.decode_versioned(key).group_id
    if value is None:
        return TargetEpochChange(group_id, None)
    found = stored.ConsumerGroupTargetAssignmentMetadataValue.decode_versioned(value)
    return TargetEpochChange(group_id, (found.assignment_epoch, found.assignment_timestamp))


def _decode_target(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    named = stored.ConsumerGroupTargetAssignmentMemberKey.decode_versioned(key)
    if value is None:
        return TargetChange(named.group_id, named.member_id, None)
    found = stored.ConsumerGroupTargetAssignmentMemberValue.decode_versioned(value)
    partitions = partitions_of((one.topic_id, one.partitions) for one in found.topic_partitions)
    return TargetChange(named.group_id, named.member_id, partitions)


def _decode_progress(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    named = stored.ConsumerGroupCurrentMemberAssignmentKey.decode_versioned(key)
    if value is None:
        return ProgressChange(named.group_id, named.member_id, None)
    found = stored.ConsumerGroupCurrentMemberAssignmentValue.decode_versioned(value)
    state = MemberState(found.state) if found.state in _KNOWN_STATES else MemberState.UNKNOWN
    progress = MemberProgress(
        epoch=found.member_epoch,
        previous_epoch=found.previous_member_epoch,
        state=state,
        assigned=_owned(found.assigned_partitions, found.member_epoch),
        revoking=_owned(found.partitions_pending_revocation, found.member_epoch),
    )
    return ProgressChange(named.group_id, named.member_id, progress)


def _owned(found: Iterable[stored.OwnedTopicPartitions], epoch: int) -> dict[UUID, dict[int, int]]:
    owned: dict[UUID, dict[int, int]] = {}
    for topic in found:
        # Kafka before 4.3 stores no assignment epochs. The member's epoch is the strictest value that cannot be wrong.
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [epoch] * len(topic.partitions)
        if topic.partitions:
            owned.setdefault(topic.topic_id, {}).update(zip(topic.partitions, epochs, strict=True))
    return owned


def _decode_pattern(key: bytes, value: bytes | None) -> ConsumerGroupChange:
    named = stored.ConsumerGroupRegularExpressionKey.decode_versioned(key)
    if value is None:
        return PatternChange(named.group_id, named.regular_expression, None)
    found = stored.ConsumerGroupRegularExpressionValue.decode_versioned(value)
    match = PatternMatch(frozenset(found.topics), found.version, found.timestamp)
    return PatternChange(named.group_id, named.regular_expression, match)


_KEYS: Final[dict[type[ConsumerGroupChange], tuple[int, Callable[..., VersionedMessage]]]] = {
    EpochChange: (3, lambda group_id: stored.ConsumerGroupMetadataKey(group_id=group_id)),
    TopicsChange: (4, lambda group_id: stored.ConsumerGroupPartitionMetadataKey(group_id=group_id)),
    ProfileChange: (5, lambda g, m: stored.ConsumerGroupMemberMetadataKey(group_id=g, member_id=m)),
    TargetEpochChange: (6, lambda group_id: stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)),
    TargetChange: (7, lambda g, m: stored.ConsumerGroupTargetAssignmentMemberKey(group_id=g, member_id=m)),
    ProgressChange: (8, lambda g, m: stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=g, member_id=m)),
    PatternChange: (16, lambda g, p: stored.ConsumerGroupRegularExpressionKey(group_id=g, regular_expression=p)),
}
_DECODERS: Final[dict[int, Callable[[bytes, bytes | None], ConsumerGroupChange]]] = {
    3: _decode_epoch,
    4: _decode_topics,
    5: _decode_profile,
    6: _decode_target_epoch,
    7: _decode_target,
    8: _decode_progress,
    16: _decode_pattern,
}
