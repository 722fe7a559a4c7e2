"""The group coordinator as a type of coordinator: its topic, its shards, its timers and its expiry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from triokafka.coordinator.classic_group import expired_members, rebalance
from triokafka.coordinator.consumer_group.expired_members import time_over
from triokafka.coordinator.group.config import GroupCoordinatorConfig, GroupSettings
from triokafka.coordinator.group.group_counters import GroupCounters
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.offsets import deleted_topics, expiry
from triokafka.coordinator.runtime.coordinator_type import CoordinatorType
from triokafka.coordinator.runtime.timer_queue import TimerKey
from triokafka.topic_names import GROUP_METADATA_TOPIC


def group_coordinator_type(
    config: GroupCoordinatorConfig,
    new_id: Callable[[], str],
    topics: TopicsView,
    own_settings: GroupSettings,
    counters: GroupCounters,
) -> CoordinatorType[GroupShard]:
    """Return the type for a group coordinator with this configuration. The arguments are those of `GroupShard`."""
    return CoordinatorType(
        name="group",
        topic=GROUP_METADATA_TOPIC,
        new_shard=lambda partition, leader_epoch: GroupShard(config, new_id, topics, own_settings, counters),
        timer_fired=timer_fired,
        expire=expire,
        topics_deleted=topics_deleted,
        commit_timeout_ms=config.offset_commit_timeout_ms,
        expiry_interval_ms=config.offsets_retention_check_interval_ms,
    )


def timer_fired(shard: GroupShard, key: TimerKey, effects: GroupEffects) -> None:
    """Handle an expired timer: a session, a rebalance step, or the removal of offsets of deleted topics."""
    if key.kind == deleted_topics.FORGET:
        deleted_topics.forget(shard, effects)
        return
    consumer_group = shard.consumer_groups.get(key.entity_id)
    if consumer_group is not None:
        time_over(shard, consumer_group, key, effects)
        return
    group = shard.groups.get(key.entity_id)
    if group is None:
        return
    if key.kind == rebalance.SESSION:
        expired_members.session_over(group, key.part_id, shard.config, effects)
    elif key.kind == rebalance.JOIN:
        rebalance.join_time_over(group, shard.config, effects)
    elif key.kind == rebalance.SYNC:
        rebalance.sync_time_over(group, shard.config, effects)


def expire(shard: GroupShard, effects: GroupEffects) -> float | None:
    """Remove expired offsets and unused groups; see `expiry.expire`. Retries the removal for deleted topics."""
    if shard.deleted_topics:
        deleted_topics.schedule(effects)
    return expiry.expire(shard, effects)


def topics_deleted(shard: GroupShard, topics: Mapping[UUID, str], effects: GroupEffects) -> None:
    """Remove the committed offsets of deleted topics, given by id and name."""
    shard.deleted_topics.update(topics)
    deleted_topics.forget(shard, effects)
