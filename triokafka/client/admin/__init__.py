"""The admin client: topics, partitions, configurations, groups, offsets and the cluster; one module per area."""

from __future__ import annotations

from triokafka.client.admin.brokers import BrokerAdmin
from triokafka.client.admin.cluster import ClusterAdmin
from triokafka.client.admin.group_types import GroupDescription, GroupListing, MemberDescription, MemberToRemove
from triokafka.client.admin.groups import GroupAdmin
from triokafka.client.admin.partition_types import (
    ElectionType,
    FeatureDescription,
    FeatureRange,
    FeatureUpdate,
    LogDirDescription,
    PartitionReassignment,
    ProducerDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaInfo,
    TopicPartitionReplica,
    UpgradeType,
)
from triokafka.client.admin.quotas import QuotaEntity, QuotaMatch
from triokafka.client.admin.types import (
    AclOperation,
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    Results,
    TopicDescription,
    TopicListing,
    TopicPartitionPage,
)


class AdminClient(ClusterAdmin, BrokerAdmin, GroupAdmin):
    """Manages a cluster. Use it as ``async with AdminClient(bootstrap_servers=…) as admin``.

    Options are those of `AdminOptions`, by keyword; a wrong one raises `ConfigurationError`. Nothing is connected
    before the first call. Every call takes ``timeout_ms`` (default ``default_api_timeout_ms``) and tries again what
    failed for a passing reason until then; cancelling one may leave its work half done at the brokers.

    Errors: a call that changes something tries all items, then raises the error of the one that failed, or an
    `ExceptionGroup` when several failed. A call that looks something up for several items returns `Results`, where
    reading an item that failed raises its error.
    """


__all__ = [
    "AclOperation",
    "AdminClient",
    "AlterConfig",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "ElectionType",
    "FeatureDescription",
    "FeatureRange",
    "FeatureUpdate",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "PartitionReassignment",
    "ProducerDescription",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaMatch",
    "ReplicaInfo",
    "Results",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionPage",
    "TopicPartitionReplica",
    "UpgradeType",
]
