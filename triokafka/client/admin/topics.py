"""Topics and their partitions: create, delete, list, describe, and add partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.types import (
    BROKER_DEFAULT,
    ConfigEntry,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    Results,
    TopicDescription,
    TopicListing,
    TopicPartitionPage,
)
from triokafka.protocol.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from triokafka.protocol.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreateTopicsRequest,
)
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.protocol.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from triokafka.protocol.configuration import ConfigSource
from triokafka.security.acl import AclOperation
from triokafka.structs import Node

T = TypeVar("T", bound=str | UUID)

_NO_CREATION_SINCE: Final = 4
_OPERATIONS_SINCE: Final = 8
_IDS_SINCE: Final = 12


class TopicAdmin:
    """The part of `AdminClient` about topics."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create topics; a plain name gets the brokers' default counts. Returns the created topics by name.

        Raises:
            TopicAlreadyExistsError, InvalidPartitionsError, InvalidReplicationFactorError, PolicyViolationError, …:
                one topic could not be created; an `ExceptionGroup` of these when several could not. The others exist.
        """
        wanted = {t.name: t for t in (NewTopic(t) if isinstance(t, str) else t for t in topics)}

        async def do_round(names: list[str], call: CallRouting) -> Mapping[str, CreatedTopic | Exception]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=call.left_ms,
                validate_only=validate_only,
            )
            response = await call.to_controller(request)
            return {
                t.name: self._retries.error(t.error_code, f"topic {t.name!r}", t.error_message)
                or CreatedTopic(t.name, t.topic_id, t.num_partitions, t.replication_factor, _configs(t.configs))
                for t in response.topics
            }

        return await self._retries.change(wanted, do_round, timeout_ms)

    async def delete_topics(self, topics: Iterable[str | UUID], *, timeout_ms: float | None = None) -> None:
        """Delete topics, by name or by id (brokers from 2.8 on).

        Raises:
            UnknownTopicOrPartitionError, UnknownTopicIdError, TopicDeletionDisabledError, …: one could not be deleted;
                an `ExceptionGroup` when several could not. The others are gone, or will be soon.
        """

        async def do_round(items: list[str | UUID], call: CallRouting) -> Mapping[str | UUID, Exception | None]:
            names = [item for item in items if isinstance(item, str)]
            ids = [item for item in items if isinstance(item, UUID)]
            request = DeleteTopicsRequest(topic_names=names, timeout_ms=call.left_ms)
            min_version: int | None = None
            max_version: int | None = 5
            if ids:
                by_name = [DeleteTopicState(name=name) for name in names]
                by_id = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
                request = DeleteTopicsRequest(topics=by_name + by_id, timeout_ms=call.left_ms)
                min_version, max_version = 6, None
            response = await call.to_controller(request, min_version=min_version, max_version=max_version)
            outcomes: dict[str | UUID, Exception | None] = {}
            for r in response.responses:
                item: str | UUID = r.topic_id if r.topic_id in ids else r.name or ""
                outcomes[item] = self._retries.error(r.error_code, f"topic {item}", r.error_message)
            return outcomes

        await self._retries.change(topics, do_round, timeout_ms)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """List the topics that the principal may see, by name; Kafka's internal topics only on request."""
        response = await self._describe(None, timeout_ms)
        found = [
            TopicListing(t.name or "", t.topic_id, t.is_internal)
            for t in response.topics
            if not t.error_code and (include_internal or not t.is_internal)
        ]
        return sorted(found, key=lambda listing: listing.name)

    async def describe_topics(
        self,
        topics: Iterable[T],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[T, TopicDescription]:
        """Describe partitions, leaders and replicas of topics, by name or by id (brokers from 3.1 on).

        ``include_authorized_operations`` adds the operations that the caller may perform (brokers from 2.3 on). Reading
        a topic that does not exist raises its error.
        """

        async def do_round(items: list[T], call: CallRouting) -> Mapping[T, TopicDescription | Exception]:
            response = await self._describe(items, call.left_ms, include_authorized_operations)
            nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
            found: dict[str | UUID, TopicDescription | Exception] = {}
            for t in response.topics:
                outcome = self._retries.error(t.error_code, f"topic {t.name or t.topic_id!r}")
                described = outcome or _described(t, nodes)
                found[t.topic_id] = described
                if t.name is not None:
                    found[t.name] = described
            return {item: found[item] for item in items if item in found}

        return await self._retries.each(topics, do_round, timeout_ms)

    async def describe_topic_partitions(
        self,
        topics: Iterable[str],
        *,
        partition_limit: int = 2000,
        cursor: tuple[str, int] | None = None,
        timeout_ms: float | None = None,
    ) -> TopicPartitionPage:
        """Return one page of partitions of topics, with eligible leader replicas, in order of the topics' names.

        ``cursor`` is that of the previous page. The broker may return fewer partitions than requested. A topic that it
        cannot describe is in the page's ``errors``.

        Raises:
            UnsupportedVersionError: brokers before 3.7.
        """
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in topics],
            response_partition_limit=partition_limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

        async def ask(call: CallRouting) -> TopicPartitionPage:
            response = await call.to_any(request)
            nodes = self._retries.client.cluster.nodes
            described = {t.name or "": _described_on_page(t, nodes) for t in response.topics if not t.error_code}
            errors = {
                t.name or "": error
                for t in response.topics
                if (error := self._retries.error(t.error_code, f"topic {t.name!r}")) is not None
            }
            end = response.next_cursor
            return TopicPartitionPage(described, errors, None if end is None else (end.topic_name, end.partition_index))

        return await self._retries.once(ask, timeout_ms)

    async def _describe(
        self, topics: Sequence[str | UUID] | None, timeout_ms: float | None, operations: bool = False
    ) -> MetadataResponse:
        named = None if topics is None else [_asked_for(topic) for topic in topics]
        any_id = topics is not None and any(isinstance(topic, UUID) for topic in topics)

        def build(version: int) -> MetadataRequest:
            return MetadataRequest(
                topics=named,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=operations and version >= _OPERATIONS_SINCE,
            )

        async def ask(call: CallRouting) -> MetadataResponse:
            min_version = _IDS_SINCE if any_id else _NO_CREATION_SINCE
            return await call.to_any(build, api=MetadataRequest, min_version=min_version)

        return await self._retries.once(ask, timeout_ms)

    async def create_partitions(
        self,
        partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Add partitions to topics; the argument has the new total of each topic.

        Raises:
            InvalidPartitionsError, UnknownTopicOrPartitionError, …: one topic could not be changed; an
                `ExceptionGroup` when several could not.
        """
        wanted = {name: NewPartitions(p) if isinstance(p, int) else p for name, p in partitions.items()}

        async def do_round(names: list[str], call: CallRouting) -> Mapping[str, Exception | None]:
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
            request = CreatePartitionsRequest(topics=topics, timeout_ms=call.left_ms, validate_only=validate_only)
            response = await call.to_controller(request)
            return {
                r.name: self._retries.error(r.error_code, f"topic {r.name!r}", r.error_message)
                for r in response.results
            }

        await self._retries.change(wanted, do_round, timeout_ms)


def _configs(found: Iterable[CreatableTopicConfigs] | None) -> dict[str, ConfigEntry] | None:
    if found is None:
        return None
    return {
        c.name: ConfigEntry(c.name, c.value, ConfigSource(c.config_source), c.read_only, c.is_sensitive) for c in found
    }


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


def _asked_for(topic: str | UUID) -> MetadataRequestTopic:
    if isinstance(topic, UUID):
        return MetadataRequestTopic(name=None, topic_id=topic)
    return MetadataRequestTopic(name=topic)


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
        AclOperation.of_bits(topic.topic_authorized_operations),
    )


def _described_on_page(topic: DescribeTopicPartitionsResponseTopic, nodes: Mapping[int, Node]) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        tuple(
            PartitionDescription(
                p.partition_index,
                # The answer names brokers by id only; a broker that joined after the last metadata has no address here.
                nodes.get(p.leader_id, Node(p.leader_id, "", -1)) if p.leader_id >= 0 else None,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
                None if p.eligible_leader_replicas is None else tuple(p.eligible_leader_replicas),
                None if p.last_known_elr is None else tuple(p.last_known_elr),
            )
            for p in topic.partitions
        ),
        AclOperation.of_bits(topic.topic_authorized_operations),
    )
