"""The group coordinator of one broker: consumer groups and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterator

from triokafka.coordinator.group.config import GroupCoordinatorConfig, GroupSettings, no_settings
from triokafka.coordinator.group.group_administration import GroupAdminRequests
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.group_shards import GroupShards
from triokafka.coordinator.group.members import KnownMember, end_session, known_members
from triokafka.coordinator.group.membership_requests import MembershipRequests
from triokafka.coordinator.group.metrics import GroupCounts, GroupPositions, count_groups, group_positions
from triokafka.coordinator.group.offset_requests import OffsetRequests
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.group.transactional_offset_requests import TransactionRequests
from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog
from triokafka.world import World


class GroupCoordinator:
    """Groups and their offsets, on the partitions of ``__consumer_offsets`` that this broker leads.

    The broker reports leadership and committed records to `runtime`, and runs `run` in its nursery. Requests go to
    `membership`, `offsets`, `transactions` and `admin`, from protocol message to protocol message. Every answer waits
    until the state behind it is committed.

    Cancelling a waiting request (its client disconnected) undoes nothing: a member that has joined stays in the group
    until its session expires.

    Args:
        log: the partitions of ``__consumer_offsets``.
        topics: the current names, ids and partition counts of topics.
        own_settings: configuration overrides per group, under Kafka's names.
    """

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        topics: TopicsView,
        config: GroupCoordinatorConfig | None = None,
        own_settings: GroupSettings = no_settings,
    ) -> None:
        self.config = config or GroupCoordinatorConfig()
        self._shards = GroupShards(world, log, topics, self.config, own_settings)
        self.runtime = self._shards.runtime
        self.run = self._shards.task.run
        self.counters = self._shards.counters
        self.membership = MembershipRequests(self._shards)
        self.offsets = OffsetRequests(self._shards)
        self.admin = GroupAdminRequests(self._shards)
        self.transactions = TransactionRequests(self._shards)

    def check_coordinates(self, group_id: str) -> None:
        """Check that this broker coordinates a group.

        Raises:
            NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError: see
                `CoordinatorRuntime.write`.
        """
        self._shards.read(group_id, lambda shard: None)

    def members(self, group_id: str) -> list[KnownMember]:
        """Return the members of a group, sorted by member id; an empty list when the group does not exist.

        Raises:
            NotCoordinatorError: this broker does not coordinate the group.
            CoordinatorLoadInProgressError: the group's partition is still loading.
        """
        return self._shards.read(group_id, lambda shard: known_members(shard, group_id))

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Expire a member's session now, as if the member had been silent for its session timeout; for tests.

        A member whose JoinGroup waits for an answer counts as alive and gets a new session, as on a real expiry.

        Raises:
            UnknownMemberIdError: the group has no such member.
            NotCoordinatorError: this broker does not coordinate the group.
            CoordinatorLoadInProgressError: the group's partition is still loading.
        """
        self._shards.begin(group_id, lambda shard, effects: end_session(shard, group_id, member_id, effects))
        self.runtime.fire_due()

    def group_positions(self) -> Iterator[GroupPositions]:
        """Yield committed offsets and numbers of members of the groups of this broker, each as they are then."""
        return group_positions(self._active_shards())

    def count_groups(self) -> GroupCounts:
        """Count groups by state, and offsets, in the shards of this broker. Takes time linear in the groups."""
        return count_groups(self._active_shards())

    def _active_shards(self) -> list[GroupShard]:
        partitions = self.runtime.active_partitions()
        return [self.runtime.read(partition, lambda shard: shard) for partition in partitions]
