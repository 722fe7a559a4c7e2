"""`AIOKafkaAdminClient`: aiokafka's admin client over the SDK's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

import triokafka
from triokafka import errors
from triokafka.asyncio.admin.responses import (
    AlteredConfigs,
    DeletedTopics,
    DescribedConfigs,
    DescribedGroups,
    TopicErrors,
)
from triokafka.asyncio.admin.types import ConfigResource, NewPartitions, NewTopic, RecordsToDelete
from triokafka.asyncio.bridge import Bridge, Opening, running_loop
from triokafka.asyncio.options import API_VERSION_IS_DEPRECATED, network_options, warn_of_deprecated
from triokafka.asyncio.structs import OffsetAndMetadata
from triokafka.client import admin as sdk
from triokafka.structs import TopicPartition

log = logging.getLogger(__name__)


class AIOKafkaAdminClient:
    """Administers a cluster; aiokafka's arguments, defaults and behaviour. Call `start` first and `close` at the end.

    Responses of the protocol are tuples with aiokafka's field names, as of the versions that aiokafka 0.14 uses.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-0.14.0",
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: Any = None,
        api_version: None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
    ) -> None:
        given = dict(locals())  # the arguments
        if api_version is not None:
            warn_of_deprecated(API_VERSION_IS_DEPRECATED)
        self._bridge = Bridge(running_loop() if loop is None else loop, request_timeout_ms)
        self._options = network_options(self._bridge, given)
        self._session: _Session | None = None
        self._closed = False

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.abandon()

    async def start(self) -> None:
        """Connect to the cluster. A second call does nothing.

        Raises:
            KafkaConnectionError: no broker of ``bootstrap_servers`` accepts the connection, or the login, whose error
                is then the cause. Nothing is left open, and `start` may be called again.
        """
        if self._session is None:
            session = _Session(self._bridge, self._options)
            await self._bridge.call(session.open)
            self._session = session

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await asyncio.shield(self._bridge.call(session.close))
        self._closed = True

    async def _do(self, work: Callable[[triokafka.AdminClient], Awaitable[Any]]) -> Any:
        if self._session is None:
            raise errors.ClosedError("the admin client is closed, or start() was not called")
        return await self._bridge.call(self._session.do, work)

    # ---------------------------------------------------------------- topics

    async def create_topics(
        self, new_topics: list[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> TopicErrors:
        """Create topics; return the outcome of each."""

        async def create(admin: triokafka.AdminClient, topic: NewTopic) -> object:
            wanted = sdk.NewTopic(
                topic.name,
                topic.num_partitions,
                topic.replication_factor,
                configs=dict(topic.topic_configs),
                assignments=topic.replica_assignments or None,
            )
            return await admin.create_topics([wanted], validate_only=validate_only, timeout_ms=timeout_ms)

        outcomes = await self._each(new_topics, create)
        return TopicErrors([(topic.name, *_error(error)) for topic, error in outcomes])

    async def delete_topics(self, topics: list[str], timeout_ms: int | None = None) -> DeletedTopics:
        """Delete topics; return the outcome of each."""
        outcomes = await self._each(topics, lambda admin, topic: admin.delete_topics([topic], timeout_ms=timeout_ms))
        return DeletedTopics([(topic, _error(error)[0]) for topic, error in outcomes])

    async def _each(
        self, items: list[Any], work: Callable[[triokafka.AdminClient, Any], Awaitable[object]]
    ) -> list[tuple[Any, Exception | None]]:
        """Do the work for every item, side by side, and return each with its error."""
        outcomes: list[Exception | None] = [None] * len(items)

        async def one(admin: triokafka.AdminClient, index: int) -> None:
            try:
                await work(admin, items[index])
            except errors.KafkaError as error:
                outcomes[index] = error

        async def all_of_them(admin: triokafka.AdminClient) -> None:
            async with trio.open_nursery() as nursery:
                for index in range(len(items)):
                    nursery.start_soon(one, admin, index)

        await self._do(all_of_them)
        for error in outcomes:
            if error is not None and not isinstance(error, errors.BrokerResponseError):
                raise error
        return list(zip(items, outcomes, strict=True))

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, internal ones included."""
        topics = await self._do(lambda admin: admin.list_topics(include_internal=True))
        return [topic.name for topic in topics]

    async def describe_topics(self, topics: list[str] | None = None) -> list[dict[str, Any]]:
        """Return topics, by default all, with their partitions as dicts."""
        names = await self.list_topics() if topics is None else topics
        described = await self._do(lambda admin: admin.describe_topics(names))
        return [_topic(described, name) for name in names]

    async def describe_cluster(self) -> dict[str, Any]:
        """Return the brokers, the cluster id and the controller as a dict."""
        cluster = await self._do(lambda admin: admin.describe_cluster())
        return {
            "throttle_time_ms": 0,
            "brokers": [
                {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
                for node in cluster.nodes
            ],
            "cluster_id": cluster.cluster_id,
            "controller_id": -1 if cluster.controller is None else cluster.controller.node_id,
        }

    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> TopicErrors:
        """Add partitions to topics. Raises the error of the first topic that is refused."""
        wanted = {
            topic: sdk.NewPartitions(one.total_count, one.new_assignments) for topic, one in topic_partitions.items()
        }
        await self._do(
            lambda admin: admin.create_partitions(wanted, validate_only=validate_only, timeout_ms=timeout_ms)
        )
        return TopicErrors([(topic, 0, None) for topic in wanted])

    async def delete_records(
        self, records_to_delete: dict[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before offsets; return the new first offset of each partition."""
        wanted = {partition: one.before_offset for partition, one in records_to_delete.items()}
        return dict(await self._do(lambda admin: admin.delete_records(wanted, timeout_ms=timeout_ms)))

    # ---------------------------------------------------------------- configuration

    async def describe_configs(
        self, config_resources: list[ConfigResource], include_synonyms: bool = False
    ) -> list[DescribedConfigs]:
        """Return the configuration of topics and brokers; the names in ``configs`` of each, or all."""
        wanted = {_resource(one): one for one in config_resources}
        found = await self._do(lambda admin: admin.describe_configs(list(wanted), include_synonyms=include_synonyms))
        rows: list[tuple[Any, ...]] = []
        for resource, given in wanted.items():
            try:
                entries = found[resource]
            except errors.BrokerResponseError as error:
                rows.append((*_error(error), int(given.resource_type), given.name, []))
                continue
            names = given.configs or entries
            rows.append(
                (0, None, int(given.resource_type), given.name, [_entry(entries[n]) for n in names if n in entries])
            )
        return [DescribedConfigs(rows)]

    async def alter_configs(self, config_resources: list[ConfigResource]) -> list[AlteredConfigs]:
        """Replace the configuration of topics and brokers: what ``configs`` does not name returns to its default."""

        def alter(admin: triokafka.AdminClient, one: ConfigResource) -> Awaitable[object]:
            return admin.alter_configs({_resource(one): dict(one.configs or {})})

        outcomes = await self._each(config_resources, alter)
        return [AlteredConfigs([(*_error(error), int(one.resource_type), one.name) for one, error in outcomes])]

    # ---------------------------------------------------------------- groups

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[DescribedGroups]:
        """Return groups with their members."""
        found = await self._do(
            lambda admin: admin.describe_groups(group_ids, include_authorized_operations=include_authorized_operations)
        )
        rows = []
        for group_id in group_ids:
            group = found[group_id]
            members = [
                (one.member_id, one.client_id, one.client_host, one.member_metadata, one.member_assignment)
                for one in group.members
            ]
            rows.append((0, group_id, group.state, group.protocol_type, group.assignor, members))
        return [DescribedGroups(rows)]

    async def list_consumer_groups(self, broker_ids: list[int] | None = None) -> list[tuple[Any, ...]]:
        """Return (name, protocol type) of all groups, or of those that the given brokers coordinate."""
        found = await self._do(lambda admin: admin.list_groups_by_broker())
        listings = [
            listing for node in found if broker_ids is None or node.node_id in broker_ids for listing in found[node]
        ]
        return sorted({(listing.group_id, listing.protocol_type) for listing in listings})

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the node id of a group's coordinator. ``coordinator_type`` must be 0."""
        if coordinator_type != 0:
            raise errors.UnsupportedVersionError("only coordinators of groups can be looked up (coordinator_type=0)")
        found = await self._do(lambda admin: admin.describe_groups([group_id]))
        return int(found[group_id].coordinator.node_id)

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: list[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets: of these partitions (-1 without one), or of all that have one."""
        found = await self._do(lambda admin: admin.list_group_offsets(group_id, partitions))
        offsets = dict.fromkeys(partitions or (), OffsetAndMetadata(-1, ""))
        return offsets | {partition: OffsetAndMetadata(one.offset, one.metadata) for partition, one in found.items()}


class _Session:
    """The SDK's admin client, held open in a task of the loop thread."""

    def __init__(self, bridge: Bridge, options: dict[str, Any]) -> None:
        self._bridge = bridge
        self._options = options
        self._admin: triokafka.AdminClient | None = None
        self._closing = trio.Event()
        self._closed = trio.Event()

    async def open(self) -> None:
        """Open the client. Raises `KafkaConnectionError` if no broker accepts it."""
        options = {name: value for name, value in self._options.items() if name != "close_timeout_ms"}
        options["default_api_timeout_ms"] = options["request_timeout_ms"]
        admin = triokafka.AdminClient(**options)
        opening = Opening()
        self._bridge.trio_loop.start(self._run, admin, opening, name="kafka admin client")
        await opening.wait()

    async def _run(self, admin: triokafka.AdminClient, opening: Opening) -> None:
        failure: Exception | None = None
        try:
            with opening.scope:
                async with admin:
                    await opening.connect(admin.network, self._options["bootstrap_servers"])
                    self._admin = admin
                    opening.done()
                    await self._closing.wait()
        except errors.KafkaError as error:
            failure = error
        finally:
            self._admin = None
            self._closed.set()
            opening.ended(failure)

    async def do(self, work: Callable[[triokafka.AdminClient], Awaitable[Any]]) -> Any:
        """Run ``work`` with the client."""
        if self._admin is None:
            raise errors.ClosedError("the admin client is closed")
        return await work(self._admin)

    async def close(self) -> None:
        """Close the client."""
        self._closing.set()
        await self._closed.wait()

    def abandon(self) -> None:
        """Close the client, because the `AIOKafkaAdminClient` was garbage-collected. From any thread."""
        self._bridge.trio_loop.soon(self._closing.set)


def _error(error: Exception | None) -> tuple[int, str | None]:
    if error is None:
        return 0, None
    return getattr(error, "code", -1), str(error)


def _resource(given: ConfigResource) -> sdk.ConfigResource:
    return sdk.ConfigResource(sdk.ConfigResourceType(int(given.resource_type)), given.name)


def _entry(entry: Any) -> tuple[Any, ...]:
    synonyms = [(one.name, one.value, int(one.source)) for one in entry.synonyms]
    return entry.name, entry.value, entry.is_read_only, int(entry.source), entry.is_sensitive, synonyms


def _topic(described: Any, name: str) -> dict[str, Any]:
    try:
        topic = described[name]
    except errors.BrokerResponseError as error:
        return {"error_code": error.code, "topic": name, "is_internal": False, "partitions": []}
    return {
        "error_code": 0,
        "topic": name,
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "error_code": 0,
                "partition": one.partition,
                "leader": -1 if one.leader is None else one.leader.node_id,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "offline_replicas": list(one.offline_replicas),
            }
            for one in topic.partitions
        ],
    }
