"""The groups and offsets of one partition of ``__consumer_offsets``: replay of records, and dispatch of timers.

Durable: which groups exist, their stored metadata, and the offsets. Soft: the `ClassicGroup` objects with their current
rebalance, waiting requests and timers. A group that only has committed offsets has a `ClassicGroup` object and no
metadata. All of a `ConsumerGroup` is durable except its timers. A group id is never in both ``groups`` and
``consumer_groups``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import NEEDS_REBALANCE, group_change, restore_group
from triokafka.coordinator.classic_group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.records import ConsumerGroupChange, EpochChange
from triokafka.coordinator.group.append_errors import group_append_error
from triokafka.coordinator.group.config import GroupCoordinatorConfig, GroupSettings, no_settings
from triokafka.coordinator.group.group_counters import GroupCounters
from triokafka.coordinator.group.records import Change, GroupChange, GroupEffects, OffsetChange, decode, encode
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.offsets.store import OffsetStore
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.journal import Journal
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import TimerQueue
from triokafka.errors import KafkaError
from triokafka.protocol.stored.group_metadata import GroupMetadataValue


class GroupShard:
    """The groups of one partition.

    Args:
        new_id: returns the random part of a new member id.
        topics: the current names, ids and partition counts of topics.
        own_settings: configuration overrides per group, under Kafka's names.
        counters: event counters, shared by all shards of the coordinator.
    """

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        new_id: Callable[[], str],
        topics: TopicsView,
        own_settings: GroupSettings = no_settings,
        counters: GroupCounters | None = None,
    ) -> None:
        self.config = config
        self.counters = counters if counters is not None else GroupCounters()
        self.topics = topics
        self._own_settings = own_settings
        self.new_id = new_id
        self.timers = TimerQueue()
        self.offsets = OffsetStore()
        self.deleted_topics: dict[UUID, str] = {}
        """Deleted topics, by id, whose offsets may not all be removed yet. Soft."""
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self._stored: dict[str, str] = {}
        """Protocol type of each group with metadata in the log, committed or not."""
        self._journal: Journal[str, str] = Journal()
        self.unscanned_groups: list[str] = []
        """Soft: the groups that the expiry scan in progress has still to visit."""
        self._loading: dict[str, GroupMetadataValue] | None = {}

    # --- what the runtime calls ---

    def encode(self, change: Change) -> CoordinatorRecord:
        """Return the record of a change."""
        return encode(change)

    def decode(self, key: bytes | None, value: bytes | None) -> Change | None:
        """Return the change in a record; None for an unknown kind of record."""
        return decode(key, value)

    def replay(self, change: Change, offset: int, *, committed: bool) -> None:
        """Apply a change from the log."""
        if isinstance(change, OffsetChange):
            self.offsets.replay(change.key, change.value, offset, committed=committed)
            group_id = change.key.group_id
            if self._loading is not None:
                pass
            elif change.value is not None:
                self._ensure_group(group_id)
            else:
                self._drop_if_unused(group_id)
            return
        if not isinstance(change, GroupChange):
            self._replay_consumer_group(change, offset, committed=committed)
            return
        group_id, value = change
        self._note_stored(group_id, None if value is None else value.protocol_type, offset, committed=committed)
        if self._loading is None:
            self._drop_if_unused(group_id)
        elif value is None:
            self._loading.pop(group_id, None)
        else:
            self._loading[group_id] = value

    def replay_pending(self, change: Change, offset: int, producer_id: int) -> None:
        """Apply a change of an open transaction: an offset that takes effect when the transaction commits.

        A tombstone removes the offset at once. No other kind of record is written in a transaction.
        """
        if isinstance(change, OffsetChange) and change.value is not None:
            self.offsets.pending.put(producer_id, change.key, change.value, offset)
            if self._loading is None:
                self._ensure_group(change.key.group_id)
        else:
            self.replay(change, offset, committed=False)

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> None:
        """Apply a transaction's end marker."""
        for group_id in self.offsets.end_transaction(producer_id, offset, commits=commits, committed=committed):
            if self._loading is None:
                self._drop_if_unused(group_id)

    def _replay_consumer_group(self, change: ConsumerGroupChange, offset: int, *, committed: bool) -> None:
        group_id = change.group_id
        group = self.consumer_groups.get(group_id)
        if group is None:
            group = ConsumerGroup(group_id)
        group.replay(change)
        if isinstance(change, EpochChange):
            protocol_type = None if change.value is None else CONSUMER_PROTOCOL_TYPE
            self._note_stored(group_id, protocol_type, offset, committed=committed)
            if change.value is not None and self._loading is None:
                self.counters.consumer_group_rebalances += 1
        if group.is_gone:
            self.consumer_groups.pop(group_id, None)
            if self._loading is None and self.offsets.has(group_id):
                self._ensure_group(group_id)
        else:
            self.consumer_groups[group_id] = group
            if isinstance(change, EpochChange) and self._loading is None:
                self.groups.pop(group_id, None)

    def _note_stored(self, group_id: str, protocol_type: str | None, offset: int, *, committed: bool) -> None:
        if not committed:
            self._journal.note(offset, group_id, self._stored.get(group_id))
        if protocol_type is None:
            self._stored.pop(group_id, None)
        else:
            self._stored[group_id] = protocol_type

    def _ensure_group(self, group_id: str) -> None:
        """Create the group's object if it does not exist: a group with committed offsets exists without metadata."""
        if group_id not in self.groups and group_id not in self.consumer_groups:
            self.groups[group_id] = ClassicGroup(group_id)

    def commit(self, high_watermark: int) -> None:
        """Make everything below ``high_watermark`` visible to readers."""
        self.offsets.commit(high_watermark)
        self._journal.commit(high_watermark)

    def loaded(self, effects: GroupEffects) -> None:
        """Build the groups, start a full session for every member."""
        loading, self._loading = self._loading or {}, None
        for group_id, value in loading.items():
            group = self.groups[group_id] = restore_group(group_id, value)
            for member in group.members.values():
                rebalance.start_session(group, member, effects)
        for group_id in self.offsets.groups():
            self._ensure_group(group_id)
        for consumer_group in self.consumer_groups.values():
            timers.start_all(consumer_group, self.session_timeout_ms(consumer_group.group_id), effects)
        for group in list(self.groups.values()):
            if len(group.members) > self.config.group_max_size:
                rebalance.prepare_rebalance(
                    group, "the group has more members than group_max_size", self.config, effects
                )
            elif group.members and group.state_timestamp_ms == NEEDS_REBALANCE:
                rebalance.prepare_rebalance(group, "the group was a consumer group", self.config, effects)

    def unload(self) -> list[Reply[Any]]:
        """Mark all groups Dead, drop them, and return the replies of waiting requests."""
        waiting: list[Reply[Any]] = []
        for group in self.groups.values():
            for member in group.members.values():
                if member.join_reply is not None:
                    waiting.append(member.join_reply)
                if member.sync_reply is not None:
                    waiting.append(member.sync_reply)
                member.join_reply = member.sync_reply = None
            group.transition_to(GroupState.DEAD, group.state_timestamp_ms)
        self.groups.clear()
        self.consumer_groups.clear()
        return waiting

    # --- settings of single groups ---

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of members under the consumer protocol."""
        own = self._own_settings(group_id).get("consumer.session.timeout.ms")
        return self.config.group_consumer_session_timeout_ms if own is None else int(own)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of members under the consumer protocol."""
        own = self._own_settings(group_id).get("consumer.heartbeat.interval.ms")
        return self.config.group_consumer_heartbeat_interval_ms if own is None else int(own)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the minimum interval between two computations of the group's target assignment."""
        own = self._own_settings(group_id).get("consumer.assignment.interval.ms")
        return self.config.group_consumer_assignment_interval_ms if own is None else int(own)

    # --- groups ---

    def create(self, group_id: str, effects: GroupEffects) -> ClassicGroup:
        """Create a group and store its metadata; the group may already have committed offsets.

        If the append fails, the group is discarded and waiting requests are answered with the error.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=effects.at.wall_ms)
        effects.write(group_change(group, {}))

        def not_stored(error: KafkaError, later: GroupEffects) -> None:
            if not effects.appended and self.groups.get(group_id) is group:
                self._discard(group, error, later)

        effects.on_failed = not_stored
        return group

    def exists_committed(self, group_id: str) -> bool:
        """Whether the group exists in committed state."""
        return self.committed_protocol_type(group_id) is not None or self.offsets.read_has(group_id)

    def committed_protocol_type(self, group_id: str) -> str | None:
        """Return the protocol type in the group's committed metadata; None without metadata."""
        return self._journal.committed(group_id, self._stored.get(group_id))

    def group_ids(self) -> list[str]:
        """Return the groups that exist in committed or uncommitted state, sorted by id."""
        return sorted({*self._stored, *self._journal, *self.offsets.groups(), *self.offsets.changing_groups()})

    def is_stored(self, group_id: str) -> bool:
        """Whether the log has metadata of the group, committed or not."""
        return group_id in self._stored

    def _discard(self, group: ClassicGroup, error: KafkaError, effects: GroupEffects) -> None:
        code = group_append_error(error)
        for member_id in [*group.members, *group.pending_members]:
            effects.timers.cancel(rebalance.session_timer(group, member_id))
            member = group.remove(member_id)
            if member is not None:
                rebalance.answer_waiting(group, member, code, effects)
        effects.timers.cancel(rebalance.join_timer(group))
        effects.timers.cancel(rebalance.sync_timer(group))
        del self.groups[group.group_id]
        if self.offsets.has(group.group_id):
            self._ensure_group(group.group_id)

    def _drop_if_unused(self, group_id: str) -> None:
        """Remove a group that has no metadata, no offsets, no members and no pending members."""
        group = self.groups.get(group_id)
        if group is None or group_id in self._stored or self.offsets.has(group_id):
            return
        if group.state is GroupState.EMPTY and not group.members and not group.pending_members:
            group.transition_to(GroupState.DEAD, group.state_timestamp_ms)
            del self.groups[group_id]
