"""The options of a flow: its clusters, topics and groups, and the settings of copying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from triokafka.errors import ConfigurationError, InvalidTopicError
from triokafka.mirror.filters import EXCLUDED_GROUPS, EXCLUDED_TOPICS, NameFilter
from triokafka.mirror.naming import IdentityNaming, Naming, PrefixNaming
from triokafka.security.java_names import with_hidden_secrets
from triokafka.topic_names import check_topic_name

EXCLUDED_CONFIGS: Final = (
    r"follower\.replication\.throttled\.replicas",
    r"leader\.replication\.throttled\.replicas",
    r"message\.timestamp\.difference\.max\.ms",
    r"log\.message\.timestamp\.before\.max\.ms",
    r"log\.message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.before\.max\.ms",
    r"message\.timestamp\.after\.max\.ms",
    r"message\.timestamp\.type",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)
"""Configurations of topics that are not copied: MirrorMaker's ``config.properties.exclude``, and the other two bounds
of timestamps, because mirrored records keep their old ones."""

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "naming": ("prefix", "identity"),
    "start": ("earliest", "latest"),
    "isolation_level": ("read_committed", "read_uncommitted"),
    "offset_syncs": ("source", "target", "none"),
}


@dataclass(frozen=True, kw_only=True)
class MirrorOptions:
    """Options of a flow. Times are milliseconds.

    Raises:
        ConfigurationError: a value is out of range, or the two clusters have the same name.
    """

    source: Mapping[str, Any]
    """Client options for the source cluster: ``bootstrap_servers``, security, and any that all clients have."""
    target: Mapping[str, Any]
    """Client options for the target cluster."""
    source_alias: str = "source"
    """Name of the source cluster: the prefix of mirrored topics."""
    target_alias: str = "target"
    """Name of the target cluster."""
    topics: tuple[str, ...] = (".*",)
    """Regular expressions of the topics to mirror."""
    topics_exclude: tuple[str, ...] = EXCLUDED_TOPICS
    groups: tuple[str, ...] = (".*",)
    """Regular expressions of the groups whose positions are translated."""
    groups_exclude: tuple[str, ...] = EXCLUDED_GROUPS
    naming: Literal["prefix", "identity"] = "prefix"
    """``identity`` keeps the names of topics."""
    separator: str = "."
    """Between alias and topic."""
    exactly_once: bool = False
    """Write records and progress in transactions of the target cluster."""
    shard: int = 0
    shards: int = 1
    """With several processes for one flow: this one mirrors the partitions whose hash falls on ``shard``."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin in a partition that has no stored progress."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    replication_factor: int = -1
    """Of new topics in the target; -1 is the default of its brokers."""
    sync_topic_configs: bool = True
    """Copy the configurations of topics, and their changes."""
    configs_exclude: tuple[str, ...] = EXCLUDED_CONFIGS
    sync_topic_acls: bool = False
    """Copy the access control lists of topics, without permissions to write. Needs DESCRIBE on the source cluster, and
    DESCRIBE and ALTER on the target."""
    sync_group_offsets: bool = False
    """Commit translated positions for groups that have no members in the target."""
    checkpoints: bool = True
    """Write checkpoints of groups to the target."""
    offset_syncs: Literal["source", "target", "none"] = "source"
    """The cluster that has the topic with offset syncs: MirrorMaker's ``offset-syncs.topic.location``."""
    offset_lag_max: int = 100
    """Most records between two offset syncs of a partition."""
    heartbeats: bool = True
    refresh_interval_ms: int = 30_000
    """How often to look for new topics, partitions and configurations."""
    acl_interval_ms: int = 600_000
    """How often to copy access control lists."""
    commit_interval_ms: int = 1_000
    """How often to store progress; with ``exactly_once``, the length of a transaction."""
    checkpoint_interval_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000
    consumer_options: Mapping[str, Any] = field(default_factory=dict)
    """More options of the consumer of the source."""
    producer_options: Mapping[str, Any] = field(default_factory=dict)
    """More options of the producer to the target."""

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            object.__setattr__(self, name, with_hidden_secrets(getattr(self, name)))
        for name in ("source_alias", "target_alias"):
            try:
                check_topic_name(getattr(self, name))
            except InvalidTopicError as error:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} cannot be part of a topic's name") from error
        if self.source_alias == self.target_alias:
            raise ConfigurationError(f"source_alias and target_alias are both {self.source_alias!r}: name them apart")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is not one of {', '.join(allowed)}")
        if not 0 <= self.shard < self.shards:
            raise ConfigurationError(
                f"shard={self.shard}: it must be from 0 to {self.shards - 1} (shards={self.shards})"
            )
        intervals = ("refresh", "acl", "commit", "checkpoint", "heartbeat")
        for name in (f"{interval}_interval_ms" for interval in intervals):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name}={getattr(self, name)}: it must be more than 0")
        if self.offset_lag_max < 0:
            raise ConfigurationError(f"offset_lag_max={self.offset_lag_max}: it must be at least 0")
        self.topic_filter()
        self.group_filter()
        self.config_filter()

    def topic_filter(self) -> NameFilter:
        """Return the filter of topics."""
        return NameFilter("topics", self.topics, self.topics_exclude)

    def group_filter(self) -> NameFilter:
        """Return the filter of groups."""
        return NameFilter("groups", self.groups, self.groups_exclude)

    def config_filter(self) -> NameFilter:
        """Return the filter of topics' configurations."""
        return NameFilter("configs", (".*",), self.configs_exclude)

    def names(self) -> Naming:
        """Return the naming of mirrored topics."""
        return PrefixNaming(self.separator) if self.naming == "prefix" else IdentityNaming()

    @property
    def transactional_id(self) -> str:
        """The transactional id of this flow and shard: a second process with it fences the first."""
        return f"triokafka-mirror.{self.source_alias}.{self.target_alias}.{self.shard}-of-{self.shards}"
