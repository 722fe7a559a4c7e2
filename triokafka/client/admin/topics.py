"""Topics and partitions: create, delete, list, describe, add, and delete records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any
from uuid import UUID

from triokafka.client.admin.base import AdminBase
from triokafka.client.admin.types import (
    BROKER_DEFAULT,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    Results,
    TopicDescription,
    TopicListing,
)
from triokafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError
from triokafka.protocol.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from triokafka.protocol.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from triokafka.protocol.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from triokafka.structs import Node, TopicPartition


class TopicAdmin(AdminBase):
    """The part of `AdminClient` about topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create topics; a plain name gets the brokers' default counts. Returns what was created, by name.

        Raises:
            TopicAlreadyExistsError, InvalidPartitionsError, InvalidReplicationFactorError, PolicyViolationError, …:
                one topic could not be created; an `ExceptionGroup` of these when several could not. The others exist.
        """
        wanted = {t.name: t for t in (NewTopic(t) if isinstance(t, str) else t for t in topics)}

        async def do_round(names: list[str], left_ms: int) -> Mapping[str, CreatedTopic | Exception]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names], timeout_ms=left_ms, validate_only=validate_only
            )
            response = await self._controller(request, left_ms)
            return {
                t.name: CreatedTopic(t.name, t.topic_id, t.num_partitions, t.replication_factor)
                if not t.error_code
                else self._error(t.error_code, f"topic {t.name!r}", t.error_message)
                for t in response.topics
            }

        return await self._change(wanted, do_round, timeout_ms)

    async def delete_topics(self, topics: Iterable[str | UUID], *, timeout_ms: float | None = None) -> None:
        """Delete topics, by name or by id (brokers from 2.8 on).

        Raises:
            UnknownTopicOrPartitionError, UnknownTopicIdError, TopicDeletionDisabledError, …: one could not be deleted;
                an `ExceptionGroup` when several could not. The others are gone, or will be soon.
        """

        async def do_round(items: list[str | UUID], left_ms: int) -> Mapping[str | UUID, Exception | None]:
            names = [item for item in items if isinstance(item, str)]
            ids = [item for item in items if isinstance(item, UUID)]
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=left_ms)
            min_version: int | None = None
            max_version: int | None = 5
            if ids:
                by_name = [DeleteTopicState(name=name) for name in names]
                by_id = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
                request = DeleteTopicsRequest(topics=by_name + by_id, timeout_ms=left_ms)
                min_version, max_version = 6, None
            response = await self._controller(request, left_ms, min_version=min_version, max_version=max_version)
            outcomes: dict[str | UUID, Exception | None] = {}
            for r in response.responses:
                item: str | UUID = r.topic_id if r.topic_id in ids else r.name or ""
                outcomes[item] = self._error(r.error_code, f"topic {item}", r.error_message) if r.error_code else None
            return outcomes

        await self._change(topics, do_round, timeout_ms)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """All topics that the principal may see, by name; Kafka's own only on request."""
        response = await self._describe(None, timeout_ms)
        found = [
            TopicListing(t.name or "", t.topic_id, t.is_internal)
            for t in response.topics
            if not t.error_code and (include_internal or not t.is_internal)
        ]
        return sorted(found, key=lambda listing: listing.name)

    async def describe_topics(
        self, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, TopicDescription]:
        """Partitions, leaders and replicas of topics. Reading one that does not exist raises its error."""

        async def do_round(names: list[str], left_ms: int) -> Mapping[str, TopicDescription | Exception]:
            response = await self._describe(names, left_ms)
            nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
            return {
                t.name or "": self._error(t.error_code, f"topic {t.name!r}") if t.error_code else _described(t, nodes)
                for t in response.topics
            }

        return await self._each(topics, do_round, timeout_ms)

    async def _describe(self, topics: list[str] | None, timeout_ms: float | None) -> MetadataResponse:
        named = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)

        async def ask(left_ms: int) -> MetadataResponse:
            return await self._any(request, left_ms, min_version=4)

        return await self._once(ask, timeout_ms)

    async def create_partitions(
        self,
        partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Give topics more partitions: the total that each is to have.

        Raises:
            InvalidPartitionsError, UnknownTopicOrPartitionError, …: one topic could not be changed; an
                `ExceptionGroup` when several could not.
        """
        wanted = {name: NewPartitions(p) if isinstance(p, int) else p for name, p in partitions.items()}

        async def do_round(names: list[str], left_ms: int) -> Mapping[str, Exception | None]:
            topics = [
                CreatePartitionsTopic(
                    name=name,
                    count=wanted[name].total,
                    assignments=None
                    if (assignments := wanted[name].assignments) is None
                    else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments],
                )
                for name in names
            ]
            request = CreatePartitionsRequest(topics=topics, timeout_ms=left_ms, validate_only=validate_only)
            response = await self._controller(request, left_ms)
            return {
                r.name: self._error(r.error_code, f"topic {r.name!r}", r.error_message) if r.error_code else None
                for r in response.results
            }

        await self._change(wanted, do_round, timeout_ms)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records of partitions before an offset (-1: all). Returns the new log start offsets.

        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, …: one partition could not be changed; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(items: list[TopicPartition], left_ms: int) -> Mapping[TopicPartition, int | Exception]:
            outcomes: dict[TopicPartition, int | Exception] = {}
            for node, partitions in (await self._by_leader(items, left_ms, outcomes)).items():
                topics: dict[str, DeleteRecordsTopic] = {}
                for tp in partitions:
                    topic = topics.setdefault(tp.topic, DeleteRecordsTopic(name=tp.topic, partitions=[]))
                    topic.partitions.append(DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp]))
                request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=left_ms)
                response = await self._client.send(node, request, timeout_ms=self._patience(left_ms))
                for t in response.topics:
                    for p in t.partitions:
                        tp = TopicPartition(t.name, p.partition_index)
                        outcomes[tp] = self._error(p.error_code, tp) if p.error_code else p.low_watermark
            return outcomes

        return await self._change(offsets, do_round, timeout_ms)

    async def _by_leader(
        self, partitions: Iterable[TopicPartition], left_ms: float, failed: MutableMapping[TopicPartition, Any]
    ) -> dict[int, list[TopicPartition]]:
        """Partitions by the node that leads them; those without leader get an error in ``failed``."""
        by_node: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            try:
                cluster = await self._client.metadata_for([tp.topic], timeout_ms=left_ms, wait_for_creation=False)
            except UnknownTopicOrPartitionError as error:
                failed[tp] = error
                continue
            if cluster.partition(tp) is None:
                cluster = await self._client.refresh_metadata(timeout_ms=left_ms)
            if cluster.partition(tp) is None:
                failed[tp] = UnknownTopicOrPartitionError(f"{tp}: the topic has no such partition")
            elif (leader := cluster.leader_for(tp)) < 0:
                failed[tp] = LeaderNotAvailableError(f"{tp} has no leader now")
                self._client.request_metadata_update()
            else:
                by_node.setdefault(leader, []).append(tp)
        return by_node


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = topic.assignments is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if assigned else topic.num_partitions,
        replication_factor=BROKER_DEFAULT if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (topic.assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _described(topic: MetadataResponseTopic, nodes: Mapping[int, Node]) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                p.partition_index,
                nodes.get(p.leader_id),
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        ),
    )
