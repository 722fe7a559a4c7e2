"""What an operator can set about groups and offsets, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from triokafka.coordinator.consumer_group.assign import STRATEGIES
from triokafka.errors import ConfigurationError

UPGRADES: Final = frozenset({"upgrade", "bidirectional"})
"""Policies under which a classic group with members may become a consumer group."""
DOWNGRADES: Final = frozenset({"downgrade", "bidirectional"})
"""Policies under which a consumer group may become a classic one."""
POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")

GroupSettings: TypeAlias = Callable[[str], Mapping[str, str]]
"""What is configured for a group alone, by Kafka's names, given the group's id."""


def no_settings(_group_id: str) -> Mapping[str, str]:
    """No group has settings of its own."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorConfig:
    """Limits and delays of the group coordinator. Names are Kafka's broker properties in snake_case.

    Raises:
        ConfigurationError: at construction, when the values contradict each other.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = tuple(STRATEGIES)
    """What members may ask for; the first is for groups of which none does."""
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_assignment_interval_ms: int = 0
    """A group's target assignment is computed at most so often; with 0, for every change."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offset_commit_timeout_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    new_member_join_timeout_ms: int = 300_000
    """How long a joining member that does not know its id yet may stay parked. Fixed in Kafka."""
    group_max_promised_members: int = 10_000
    """How many ids a group may have given out to members that have not joined with them; one more, and the oldest is
    forgotten. Not bounded in Kafka, which does not count them against ``group_max_size`` either."""

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
                f"group_consumer_migration_policy is {self.group_consumer_migration_policy!r}, and must be one of"
                f" {', '.join(POLICIES)}"
            )
        if not self.group_consumer_assignors or not set(self.group_consumer_assignors) <= STRATEGIES.keys():
            raise ConfigurationError(
                f"group_consumer_assignors names {', '.join(self.group_consumer_assignors) or 'none'}; there are"
                f" {', '.join(STRATEGIES)}"
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
