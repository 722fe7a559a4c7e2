"""`AdminClient`: the methods of all areas on one object."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, Unpack
from weakref import WeakKeyDictionary

from triokafka.client.admin.acls import AclAdmin
from triokafka.client.admin.arguments import checked
from triokafka.client.admin.cluster import ClusterAdmin
from triokafka.client.admin.configs import ConfigAdmin
from triokafka.client.admin.delete_records import RecordAdmin
from triokafka.client.admin.group_offsets import GroupOffsetAdmin
from triokafka.client.admin.groups import GroupAdmin
from triokafka.client.admin.log_dirs import LogDirAdmin
from triokafka.client.admin.offsets import OffsetAdmin
from triokafka.client.admin.partitions import PartitionAdmin
from triokafka.client.admin.quotas import QuotaAdmin
from triokafka.client.admin.replica_logs import ReplicaLogAdmin
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.tokens import TokenAdmin
from triokafka.client.admin.topics import TopicAdmin
from triokafka.client.admin.transactions import TransactionAdmin
from triokafka.client.admin.users import UserAdmin
from triokafka.client.config import AdminOptions
from triokafka.client.keywords import AdminKeywords
from triokafka.client.metrics.client_metrics import ClientMetrics
from triokafka.client.metrics.telemetry import MetricsPusher
from triokafka.metrics import MetricName
from triokafka.network.network_client import NetworkClient
from triokafka.network.traffic import Traffic
from triokafka.trio_context import require_trio
from triokafka.world import World
from triokafka.world.system import RealWorld

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")

_NUMBERS: Final[WeakKeyDictionary[World, itertools.count[int]]] = WeakKeyDictionary()


def _method(
    area: type[A], function: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[AdminClient, P], Coroutine[Any, Any, R]]:
    """Return a method of `AdminClient` that checks its arguments, then calls ``function`` of the client's ``area``.

    Signature and docstring are those of ``function``.
    """

    @functools.wraps(function)
    async def method(client: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await function(client._areas[area], *args, **kwargs)

    return checked(method)


class AdminClient:
    """Manages a cluster. Use it as ``async with AdminClient(bootstrap_servers=…) as admin``.

    The keyword arguments are the options of `AdminOptions`; an invalid one raises `ConfigurationError`. No connection
    is opened before the first call. Every call takes ``timeout_ms`` (default ``default_api_timeout_ms``) and retries
    retriable errors until then. A cancelled call may leave its work half done at the brokers.

    Errors: a call that changes several items tries all of them, then raises the error of the item that failed, or an
    `ExceptionGroup` if several failed. A call that describes several items returns `Results`: reading an item that
    failed raises its error.
    """

    def __init__(self, *, world: World | None = None, **options: Unpack[AdminKeywords]) -> None:
        self.options = AdminOptions.parse(options)
        world = world if world is not None else RealWorld()
        number = next(_NUMBERS.setdefault(world, itertools.count(1)))
        traffic = Traffic()
        client_id = self.options.client_id or f"triokafka-admin-{number}"
        network = self.options.network(client_id=client_id, allow_auto_create_topics=False, traffic=traffic)
        self._client = NetworkClient(network, world=world)
        metrics = self.options.metrics()
        self._metrics = ClientMetrics("admin-client", client_id, clock=world.now, traffic=traffic, **metrics)
        self._metrics.watch(self._client)
        self._pusher: MetricsPusher | None = None
        if self.options.enable_metrics_push:
            tasks = self._client.background
            self._pusher = MetricsPusher(self._client, traffic, tasks, self._metrics.values, {})
        retries = AdminRetries(self._client, self.options, world)
        areas = (
            TopicAdmin,
            OffsetAdmin,
            RecordAdmin,
            ReplicaLogAdmin,
            PartitionAdmin,
            ConfigAdmin,
            GroupAdmin,
            GroupOffsetAdmin,
            TransactionAdmin,
            TokenAdmin,
            QuotaAdmin,
            AclAdmin,
            UserAdmin,
            LogDirAdmin,
            ClusterAdmin,
        )
        self._areas: dict[type, Any] = {area: area(retries) for area in areas}

    async def __aenter__(self) -> Self:
        require_trio("AdminClient")
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._pusher is not None:
            await self._pusher.close()
        await self._client.__aexit__(*raised)
        self._metrics.close()

    @property
    def network(self) -> NetworkClient:
        """The client's connections, for the adapters of other libraries' interfaces."""
        return self._client

    def kafka_metrics(self) -> dict[MetricName, float]:
        """Return Kafka's metrics by name, group and tags: rates and averages of the last minute, and totals."""
        return self._metrics.values()

    create_topics = _method(TopicAdmin, TopicAdmin.create_topics)
    delete_topics = _method(TopicAdmin, TopicAdmin.delete_topics)
    list_topics = _method(TopicAdmin, TopicAdmin.list_topics)
    describe_topics = _method(TopicAdmin, TopicAdmin.describe_topics)
    describe_topic_partitions = _method(TopicAdmin, TopicAdmin.describe_topic_partitions)
    create_partitions = _method(TopicAdmin, TopicAdmin.create_partitions)

    list_offsets = _method(OffsetAdmin, OffsetAdmin.list_offsets)
    delete_records = _method(RecordAdmin, RecordAdmin.delete_records)

    read_replica = _method(ReplicaLogAdmin, ReplicaLogAdmin.read_replica)

    elect_leaders = _method(PartitionAdmin, PartitionAdmin.elect_leaders)
    alter_partition_reassignments = _method(PartitionAdmin, PartitionAdmin.alter_partition_reassignments)
    list_partition_reassignments = _method(PartitionAdmin, PartitionAdmin.list_partition_reassignments)
    describe_producers = _method(PartitionAdmin, PartitionAdmin.describe_producers)

    describe_configs = _method(ConfigAdmin, ConfigAdmin.describe_configs)
    incremental_alter_configs = _method(ConfigAdmin, ConfigAdmin.incremental_alter_configs)
    alter_configs = _method(ConfigAdmin, ConfigAdmin.alter_configs)
    reset_configs = _method(ConfigAdmin, ConfigAdmin.reset_configs)
    list_config_resources = _method(ConfigAdmin, ConfigAdmin.list_config_resources)

    list_groups = _method(GroupAdmin, GroupAdmin.list_groups)
    list_groups_by_broker = _method(GroupAdmin, GroupAdmin.list_groups_by_broker)
    describe_groups = _method(GroupAdmin, GroupAdmin.describe_groups)
    delete_groups = _method(GroupAdmin, GroupAdmin.delete_groups)
    remove_all_group_members = _method(GroupAdmin, GroupAdmin.remove_all_group_members)
    remove_group_members = _method(GroupAdmin, GroupAdmin.remove_group_members)
    assume_coordinator = _method(GroupAdmin, GroupAdmin.assume_coordinator)

    list_group_offsets = _method(GroupOffsetAdmin, GroupOffsetAdmin.list_group_offsets)
    list_offsets_of_groups = _method(GroupOffsetAdmin, GroupOffsetAdmin.list_offsets_of_groups)
    alter_group_offsets = _method(GroupOffsetAdmin, GroupOffsetAdmin.alter_group_offsets)
    delete_group_offsets = _method(GroupOffsetAdmin, GroupOffsetAdmin.delete_group_offsets)

    list_transactions = _method(TransactionAdmin, TransactionAdmin.list_transactions)
    describe_transactions = _method(TransactionAdmin, TransactionAdmin.describe_transactions)
    find_hanging_transactions = _method(TransactionAdmin, TransactionAdmin.find_hanging_transactions)
    abort_transaction = _method(TransactionAdmin, TransactionAdmin.abort_transaction)
    fence_producers = _method(TransactionAdmin, TransactionAdmin.fence_producers)
    force_terminate_transaction = _method(TransactionAdmin, TransactionAdmin.force_terminate_transaction)

    describe_client_quotas = _method(QuotaAdmin, QuotaAdmin.describe_client_quotas)
    alter_client_quotas = _method(QuotaAdmin, QuotaAdmin.alter_client_quotas)

    create_acls = _method(AclAdmin, AclAdmin.create_acls)
    describe_acls = _method(AclAdmin, AclAdmin.describe_acls)
    delete_acls = _method(AclAdmin, AclAdmin.delete_acls)

    describe_user_scram_credentials = _method(UserAdmin, UserAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _method(UserAdmin, UserAdmin.alter_user_scram_credentials)

    create_delegation_token = _method(TokenAdmin, TokenAdmin.create_delegation_token)
    renew_delegation_token = _method(TokenAdmin, TokenAdmin.renew_delegation_token)
    expire_delegation_token = _method(TokenAdmin, TokenAdmin.expire_delegation_token)
    describe_delegation_tokens = _method(TokenAdmin, TokenAdmin.describe_delegation_tokens)

    describe_log_dirs = _method(LogDirAdmin, LogDirAdmin.describe_log_dirs)
    alter_replica_log_dirs = _method(LogDirAdmin, LogDirAdmin.alter_replica_log_dirs)
    unregister_broker = _method(ClusterAdmin, ClusterAdmin.unregister_broker)

    describe_cluster = _method(ClusterAdmin, ClusterAdmin.describe_cluster)
    describe_features = _method(ClusterAdmin, ClusterAdmin.describe_features)
    update_features = _method(ClusterAdmin, ClusterAdmin.update_features)
    describe_metadata_quorum = _method(ClusterAdmin, ClusterAdmin.describe_metadata_quorum)
    add_raft_voter = _method(ClusterAdmin, ClusterAdmin.add_raft_voter)
    remove_raft_voter = _method(ClusterAdmin, ClusterAdmin.remove_raft_voter)
