"""Group coordinator configuration, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from triokafka.coordinator.consumer_group.target_assignment import STRATEGIES
from triokafka.errors import ConfigurationError

UPGRADES: Final = frozenset({"upgrade", "bidirectional"})
"""Policies under which a classic group with members may become a consumer group."""
DOWNGRADES: Final = frozenset({"downgrade", "bidirectional"})
"""Policies under which a consumer group may become a classic group."""
POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")

GroupSettings: TypeAlias = Callable[[str], Mapping[str, str]]
"""Maps a group id to that group's own configuration overrides, under Kafka's configuration names."""


def no_settings(_group_id: str) -> Mapping[str, str]:
    """Return no overrides, for any group."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """Limits and delays of the group coordinator. Names are Kafka's broker properties in snake_case.

    Raises:
        ConfigurationError: at construction, when a value is out of range or two values contradict each other.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = tuple(STRATEGIES)
    """Server-side assignors that members may request. The first is the default for groups that request none."""
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_assignment_interval_ms: int = 0
    """The minimum time between two computations of a group's target assignment; 0 computes it after every change."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_commit_timeout_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    new_member_join_timeout_ms: int = 300_000
    """How long the first JoinGroup of a new member may stay parked. Fixed in Kafka."""
    group_max_promised_members: int = 10_000
    """The maximum number of member ids that a group has handed out and that have not joined yet (KIP-394). One more
    evicts the oldest. Kafka has no such limit, and does not count these ids against ``group_max_size`` either."""

    def __post_init__(self) -> None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigurationError(
                f"group_min_session_timeout_ms ({self.group_min_session_timeout_ms}) is larger than "
                f"group_max_session_timeout_ms ({self.group_max_session_timeout_ms})"
            )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ConfigurationError(
                f"group_consumer_heartbeat_interval_ms ({self.group_consumer_heartbeat_interval_ms}) must be less than "
                f"group_consumer_session_timeout_ms ({self.group_consumer_session_timeout_ms})"
            )
        if self.group_consumer_migration_policy not in POLICIES:
            raise ConfigurationError(
                f"group_consumer_migration_policy is {self.group_consumer_migration_policy!r}; it must be one of"
                f" {', '.join(POLICIES)}"
            )
        if not self.group_consumer_assignors or not set(self.group_consumer_assignors) <= STRATEGIES.keys():
            raise ConfigurationError(
                f"group_consumer_assignors is {', '.join(self.group_consumer_assignors) or 'empty'};"
                f" it must name one or more of {', '.join(STRATEGIES)}"
            )
        for name in (
            "group_max_size",
            "group_max_promised_members",
            "group_consumer_max_size",
            "offsets_topic_num_partitions",
            "offsets_retention_minutes",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in (
            "group_initial_rebalance_delay_ms",
            "offset_metadata_max_bytes",
            "group_min_session_timeout_ms",
            "group_consumer_assignment_interval_ms",
        ):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in (
            "group_consumer_heartbeat_interval_ms",
            "group_consumer_regex_refresh_interval_ms",
            "offsets_retention_check_interval_ms",
            "offset_commit_timeout_ms",
        ):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1 millisecond, not {getattr(self, name)}")
