"""The admin client: topics, partitions, configurations, groups, offsets and the cluster; one module per area."""

from __future__ import annotations

from triokafka.client.admin.admin_client import AdminClient
from triokafka.client.admin.group_types import GroupDescription, GroupListing, MemberDescription, MemberToRemove
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
from triokafka.client.admin.tokens import DelegationToken
from triokafka.client.admin.transaction_types import (
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from triokafka.client.admin.types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
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
from triokafka.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from triokafka.protocol.configuration import ConfigOperation, ConfigResourceType, ConfigSource
from triokafka.security.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPatternType,
    AclPermissionType,
    ResourceType,
)
from triokafka.security.scram_credentials import ScramMechanism

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermissionType",
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
    "DelegationToken",
    "ElectionType",
    "FeatureDescription",
    "FeatureRange",
    "FeatureUpdate",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "HangingTransaction",
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
    "ResourceType",
    "Results",
    "ScramMechanism",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionPage",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
