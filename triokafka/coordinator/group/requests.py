"""The shared base of the group coordinator's request handlers: the shards, and routing of a request to its shard."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol, TypeVar

import trio

from triokafka.coordinator.group.config import GroupCoordinatorConfig, GroupSettings
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.metrics import GroupCounters
from triokafka.coordinator.group.records import Change, GroupEffects
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.coordinator.runtime.partitioning import coordinator_partition
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import InvalidGroupIdError, KafkaError
from triokafka.world import World

T = TypeVar("T")

_LONGEST_MESSAGE: Final = 1_000


class Operation(Protocol):
    """What a request does to the shard of its group."""

    def __call__(self, *, shard: GroupShard, effects: GroupEffects) -> None:
        """Run the operation on ``shard``, without waiting."""


class GroupRequests:
    """The shards of one broker and the routing to them. Takes the arguments of `GroupCoordinator`."""

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        topics: TopicsView,
        config: GroupCoordinatorConfig,
        own_settings: GroupSettings,
    ) -> None:
        self.config = config
        self.partitions = self.config.offsets_topic_num_partitions
        """The number of partitions of ``__consumer_offsets``; the broker sets it when the topic has another number."""
        self.counters = GroupCounters()
        """Event counters since the coordinator was created."""
        self.world = world
        self.topics = topics
        self.runtime: CoordinatorRuntime[GroupShard, Change] = CoordinatorRuntime(
            world,
            log,
            lambda partition: GroupShard(self.config, lambda: str(world.uuid()), topics, own_settings, self.counters),
            commit_timeout_ms=self.config.offset_commit_timeout_ms,
        )

    def partition_for(self, group_id: str) -> int:
        """Return the partition of ``__consumer_offsets`` that stores the group; its leader coordinates the group."""
        return coordinator_partition(group_id, self.partitions)

    def begin(self, group_id: str, operation: Operation) -> None:
        """Run an operation on the shard of the group. The operation's reply arrives later. Raises like
        `CoordinatorRuntime.write`.
        """
        self.runtime.write(self.partition_for(group_id), lambda shard, effects: operation(shard=shard, effects=effects))

    async def ask(self, group_id: str, operation: Operation, reply: Reply[T]) -> T:
        """Run an operation as `begin` does, wait for its reply, and return the reply's value or raise its error."""
        self.begin(group_id, operation)
        return await reply.wait()


async def run_steps(steps: Generator[None, None, T]) -> T:
    """Run all steps, with a checkpoint after each, and return the generator's result. Cancelling skips the remaining
    steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


def check_group_id(group_id: str) -> None:
    """Raise `InvalidGroupIdError` if the group id is empty."""
    if not group_id:
        raise InvalidGroupIdError("the group id is empty")


def client_message(error: KafkaError) -> str:
    """Return the error message for a client, cut to `_LONGEST_MESSAGE` characters: it may quote the client's input."""
    return str(error)[:_LONGEST_MESSAGE]
