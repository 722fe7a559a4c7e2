"""The argument types of ``aiokafka.admin``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from triokafka.asyncio.errors import IllegalArgumentError


class NewTopic:
    """A topic to create: numbers of partitions and replicas, or the replicas of each partition; not both.

    Raises:
        IllegalArgumentError: neither or both are given.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, Sequence[int]] | None = None,
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        if (num_partitions == -1 or replication_factor == -1) == (replica_assignments is None):
            raise IllegalArgumentError(
                "either num_partitions/replication_factor or replica_assignment must be specified"
            )
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


@dataclass(eq=False)
class NewPartitions:
    """A larger number of partitions, and the replicas of each new one (by default the broker chooses)."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(eq=False)
class RecordsToDelete:
    """The offset before which all records are deleted."""

    before_offset: int


class ConfigResourceType(IntEnum):
    """The type of a resource with configuration."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A topic or broker with configuration: names to look up, or names and values to set."""

    def __init__(
        self, resource_type: ConfigResourceType | str, name: str, configs: Mapping[str, str | None] | None = None
    ) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs
