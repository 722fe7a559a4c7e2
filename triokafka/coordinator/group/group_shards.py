"""The shards of the group coordinator on one broker, and the routing of a request to the shard of its group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

from triokafka.coordinator.group.config import GroupCoordinatorConfig, GroupSettings
from triokafka.coordinator.group.coordinator_type import group_coordinator_type
from triokafka.coordinator.group.group_counters import GroupCounters
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import Change, GroupEffects
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog
from triokafka.coordinator.runtime.coordinator_task import CoordinatorTask
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to
from triokafka.errors import InvalidGroupIdError, KafkaError
from triokafka.world import World

T = TypeVar("T")

_LONGEST_MESSAGE: Final = 1_000


GroupOperation: TypeAlias = Callable[[GroupShard, GroupEffects], None]
"""A request's change to the shard of its group. It does not wait."""


class GroupShards:
    """The shards of one broker, and the routing of a request to the shard of its group.

    Takes the arguments of `GroupCoordinator`.
    """

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        topics: TopicsView,
        config: GroupCoordinatorConfig,
        own_settings: GroupSettings,
    ) -> None:
        self.config = config
        self.counters = GroupCounters()
        self.world = world
        self.topics = topics
        coordinator_type = group_coordinator_type(
            config, lambda: str(world.uuid()), topics, own_settings, self.counters
        )
        self.task: CoordinatorTask[GroupShard, Change] = CoordinatorTask(
            world, log, coordinator_type, partitions=config.offsets_topic_num_partitions
        )
        self.runtime = self.task.runtime

    def read(self, group_id: str, operation: Callable[[GroupShard], T]) -> T:
        """Run a read-only operation on the shard of the group. Raises like `CoordinatorRuntime.write`."""
        return self.runtime.read(self.runtime.partition_for(group_id), operation)

    def begin(self, group_id: str, operation: GroupOperation) -> None:
        """Run an operation on the shard of the group. The operation's reply arrives later. Raises like
        `CoordinatorRuntime.write`.
        """
        self.runtime.write(self.runtime.partition_for(group_id), operation)

    def ask(self, group_id: str, operation: GroupOperation, reply: Reply[T]) -> Awaitable[T]:
        """Run an operation as `begin` does, and return a coroutine that waits for its reply (`answer_to`)."""
        self.begin(group_id, operation)
        return answer_to(reply)


def check_group_id(group_id: str) -> None:
    """Raise `InvalidGroupIdError` if the group id is empty."""
    if not group_id:
        raise InvalidGroupIdError("the group id is empty")


def client_message(error: KafkaError) -> str:
    """Return the error message for a client, cut to `_LONGEST_MESSAGE` characters: it may quote the client's input."""
    return str(error)[:_LONGEST_MESSAGE]
