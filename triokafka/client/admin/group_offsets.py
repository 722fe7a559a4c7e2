"""Committed offsets of groups: list, alter and delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.types import Results
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from triokafka.structs import Node, OffsetAndMetadata, TopicPartition, by_topic

Positions = dict[TopicPartition, OffsetAndMetadata]

_FIRST_MANY_GROUPS = 8
_FIRST_STABLE = 7
_FIRST_ALL_PARTITIONS = 2
_LAST_BY_NAME = 9  # later versions of OffsetFetch and OffsetCommit name topics by id only


class GroupOffsetAdmin:
    """The part of `AdminClient` about committed offsets."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> Positions:
        """Return a group's committed offsets: of the given partitions, or of all that have one.

        Partitions without a committed offset are left out; a group that does not exist has none. ``require_stable``
        waits for open transactions (brokers from 2.5 on).

        Raises:
            GroupAuthorizationFailedError, TopicAuthorizationFailedError, …: the broker refused.
        """
        found = await self.list_offsets_of_groups(
            [group_id],
            None if partitions is None else {group_id: partitions},
            require_stable=require_stable,
            timeout_ms=timeout_ms,
        )
        return found[group_id]

    async def list_offsets_of_groups(
        self,
        group_ids: Iterable[str],
        partitions: Mapping[str, Iterable[TopicPartition]] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, Positions]:
        """Return committed offsets of several groups: of a group's partitions in ``partitions``, else of all.

        Each coordinator gets one request for all its groups (brokers from 3.0 on; KIP-709). Reading a group that failed
        raises its error. Otherwise as `list_group_offsets`.
        """
        named = {group_id: by_topic(given) for group_id, given in (partitions or {}).items()}
        wanted = {group_id: named.get(group_id) for group_id in group_ids}
        everything = any(topics is None for topics in wanted.values())
        min_version = _FIRST_STABLE if require_stable else _FIRST_ALL_PARTITIONS if everything else None

        async def ask(node: Node, items: list[str], call: CallRouting) -> Mapping[str, Positions | Exception]:
            outcomes: dict[str, Positions | Exception] = {}
            while left := [group_id for group_id in items if group_id not in outcomes]:
                batched = False

                def build(version: int) -> OffsetFetchRequest:
                    nonlocal batched
                    batched = version >= _FIRST_MANY_GROUPS
                    build_now = _fetch_of_many if batched else _fetch_of_first
                    return build_now({group_id: wanted[group_id] for group_id in left}, require_stable)

                response = await call.to_node(
                    node.node_id,
                    build,
                    api=OffsetFetchRequest,
                    min_version=min_version,
                    max_version=_LAST_BY_NAME,
                )
                if not batched:
                    outcomes[left[0]] = self._positions(left[0], response)
                    continue
                outcomes |= {group.group_id: self._positions(group.group_id, group) for group in response.groups}
                break
            return outcomes

        return await self._retries.each_group(wanted, ask, timeout_ms)

    def _positions(
        self, group_id: str, answer: OffsetFetchResponse | OffsetFetchResponseGroup
    ) -> Positions | Exception:
        if (error := self._retries.group_error(answer.error_code, group_id)) is not None:
            return error
        found: Positions = {}
        for topic in answer.topics:
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                if (failure := self._retries.error(p.error_code, tp)) is not None:
                    return failure
                if p.committed_offset >= 0:
                    found[tp] = OffsetAndMetadata(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
        return found

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set committed offsets of a group that has no members.

        Raises:
            UnknownMemberIdError: the group has members.
            UnknownTopicOrPartitionError, …: one partition could not be changed; an `ExceptionGroup` when several
                could not.
        """

        async def do_round(items: list[TopicPartition], call: CallRouting) -> Mapping[TopicPartition, Exception | None]:
            topics = []
            for name, numbers in by_topic(items).items():
                partitions = []
                for number in numbers:
                    given = offsets[TopicPartition(name, number)]
                    position = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
                    partitions.append(
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=position.offset,
                            committed_leader_epoch=position.leader_epoch,
                            committed_metadata=position.metadata,
                        )
                    )
                topics.append(OffsetCommitRequestTopic(name=name, partitions=partitions))
            request = OffsetCommitRequest(
                group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=topics
            )
            response = await call.to_coordinator(group_id, request, max_version=_LAST_BY_NAME)
            return self._outcomes(group_id, response.topics)

        await self._retries.change(offsets, do_round, timeout_ms)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Delete committed offsets of partitions to which no member of the group subscribes.

        Raises:
            GroupSubscribedToTopicError, GroupIdNotFoundError, …: one partition could not be changed; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(items: list[TopicPartition], call: CallRouting) -> Mapping[TopicPartition, Exception | None]:
            topics = [
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in numbers]
                )
                for name, numbers in by_topic(items).items()
            ]
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            response = await call.to_coordinator(group_id, request)
            if (error := self._retries.group_error(response.error_code, group_id)) is not None:
                raise error
            return self._outcomes(group_id, response.topics)

        await self._retries.change(partitions, do_round, timeout_ms)

    def _outcomes(self, group_id: str, topics: Iterable[Any]) -> dict[TopicPartition, Exception | None]:
        return {
            (tp := TopicPartition(t.name, p.partition_index)): self._retries.group_error(
                p.error_code, group_id, part=tp
            )
            for t in topics
            for p in t.partitions
        }


def _fetch_of_many(groups: Mapping[str, dict[str, list[int]] | None], require_stable: bool) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name=name, partition_indexes=p) for name, p in topics.items()],
            )
            for group_id, topics in groups.items()
        ],
        require_stable=require_stable,
    )


def _fetch_of_first(groups: Mapping[str, dict[str, list[int]] | None], require_stable: bool) -> OffsetFetchRequest:
    group_id, topics = next(iter(groups.items()))
    return OffsetFetchRequest(
        group_id=group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=p) for name, p in topics.items()],
        require_stable=require_stable,
    )
