"""The arguments and results of ``kafka.admin``. Plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar, NamedTuple

from triokafka import RealWorld
from triokafka.blocking.enums import EnumHelper
from triokafka.blocking.errors import IllegalArgumentError
from triokafka.structs import TopicPartition


class NewTopic:
    """A topic to create. ``replica_assignments`` names the brokers of each partition and replaces both counts."""

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str | None] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


@dataclass(eq=False)
class NewPartitions:
    """The new number of a topic's partitions; ``new_assignments`` names the brokers of each added one."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


class AlterConfigOp(EnumHelper, IntEnum):
    """The operation of an incremental change."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigFilterType(EnumHelper, IntEnum):
    """A filter for described values."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4

    def should_skip(self, config_source: ConfigSourceType) -> bool:
        """Return whether the filter excludes values from a source."""
        if self is ConfigFilterType.MODIFIED:
            return not config_source.is_modified()
        if self is ConfigFilterType.DEFAULT:
            return config_source.is_modified()
        return self is ConfigFilterType.STATIC and config_source is not ConfigSourceType.STATIC_BROKER_CONFIG


class ConfigResourceType(EnumHelper, IntEnum):
    """The type of a resource with a configuration."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource:
    """A resource with a configuration. ``configs``: names to describe, or a dict of changes."""

    def __init__(self, resource_type: ConfigResourceType | str, name: str, configs: Any = None) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs

    def __str__(self) -> str:
        return f"ConfigResource {self.name}={self.resource_type}"

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type}, {self.name}, {self.configs})"


class ConfigType(EnumHelper, IntEnum):
    """The data type of a value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSourceType(EnumHelper, IntEnum):
    """The source of a value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    def is_modified(self) -> bool:
        """Whether the value was set for this resource."""
        return self.value not in (3, 4, 5)

    @classmethod
    def dynamic_for_resource_type(cls, resource_type: ConfigResourceType) -> ConfigSourceType:
        """The source of values that were set for a resource of this type."""
        return {
            ConfigResourceType.UNKNOWN: cls.UNKNOWN,
            ConfigResourceType.TOPIC: cls.DYNAMIC_TOPIC_CONFIG,
            ConfigResourceType.BROKER: cls.DYNAMIC_BROKER_CONFIG,
            ConfigResourceType.BROKER_LOGGER: cls.DYNAMIC_BROKER_LOGGER_CONFIG,
            ConfigResourceType.CLIENT_METRICS: cls.DYNAMIC_CLIENT_METRICS_CONFIG,
            ConfigResourceType.GROUP: cls.DYNAMIC_GROUP_CONFIG,
        }[resource_type]


class UpdateFeatureType(EnumHelper, IntEnum):
    """The allowed direction of a feature change."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(slots=True, unsafe_hash=True)
class MemberToRemove:
    """A member of a group, by its id, or a static one by its instance id."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None

    def __repr__(self) -> str:
        return (
            f"<MemberToRemove member_id={self.member_id}, group_instance_id={self.group_instance_id},"
            f" reason={self.reason}>"
        )


class GroupState(EnumHelper, str, Enum):  # noqa: UP042 - str() is kafka-python's
    """The state of a group."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(EnumHelper, str, Enum):  # noqa: UP042 - str() is kafka-python's
    """The protocol of a group."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class TransactionState(EnumHelper, str, Enum):  # noqa: UP042 - str() is kafka-python's
    """The state of a transaction."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"


class TransactionListing(NamedTuple):
    """A transaction of the cluster."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transaction with its producer, partitions and time limit."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class ProducerState(NamedTuple):
    """A producer's state in a partition, as its leader knows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers of a partition."""

    active_producers: list[ProducerState]


class AbortTransactionSpec(NamedTuple):
    """The transaction of a producer in a partition."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


class ScramMechanism(IntEnum):
    """The hash mechanism of a stored password."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def hash_name(self) -> str:
        """The hash function."""
        return {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}[self]


def _mechanism(given: ScramMechanism | str | int) -> ScramMechanism:
    return ScramMechanism[given.upper().replace("-", "_")] if isinstance(given, str) else ScramMechanism(given)


class UserScramCredentialDeletion:
    """The credential of a user to delete."""

    def __init__(self, user: str, mechanism: ScramMechanism | str | int) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)

    def __repr__(self) -> str:
        return f"UserScramCredentialDeletion({self.user}, {self.mechanism.name})"


class UserScramCredentialUpsertion:
    """The credential of a user to set. The object does not keep the password."""

    DEFAULT_ITERATIONS: ClassVar[int] = 4_096

    def __init__(
        self,
        user: str,
        mechanism: ScramMechanism | str | int,
        password: str | bytes,
        iterations: int | None = None,
        salt: bytes | None = None,
    ) -> None:
        self.user = user
        self.mechanism = _mechanism(mechanism)
        if self.mechanism is ScramMechanism.UNKNOWN:
            raise IllegalArgumentError("SCRAM mechanism must not be UNKNOWN")
        self.iterations = self.DEFAULT_ITERATIONS if iterations is None else iterations
        self.salt = RealWorld().random_bytes(24) if salt is None else salt
        secret = password.encode() if isinstance(password, str) else password
        self.salted_password = hashlib.pbkdf2_hmac(self.mechanism.hash_name, secret, self.salt, self.iterations)

    def __repr__(self) -> str:
        return f"UserScramCredentialUpsertion({self.user}, {self.mechanism.name}, iterations={self.iterations})"
