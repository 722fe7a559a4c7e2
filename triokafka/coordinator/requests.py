"""What all of the group coordinator's requests share: the shards, and how a request gets to the one it is for."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol, TypeVar

import trio

from triokafka.coordinator.config import GroupCoordinatorConfig, GroupSettings
from triokafka.coordinator.log import CoordinatorLog
from triokafka.coordinator.metrics import GroupCounters
from triokafka.coordinator.partitioning import coordinator_partition
from triokafka.coordinator.runtime import CoordinatorRuntime
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import Change, GroupTurn
from triokafka.coordinator.topics import TopicsView
from triokafka.coordinator.turn import Reply
from triokafka.errors import InvalidGroupIdError, KafkaError
from triokafka.world import World

T = TypeVar("T")

_LONGEST_MESSAGE: Final = 1_000


class Operation(Protocol):
    """What a request does to the shard that keeps its group."""

    def __call__(self, *, shard: GroupShard, turn: GroupTurn) -> None:
        """Decide, without waiting."""


class GroupRequests:
    """The shards of one broker, and the way there for requests; arguments as `GroupCoordinator`'s."""

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
        """How many partitions ``__consumer_offsets`` has; the broker corrects it where the topic was made otherwise."""
        self.counters = GroupCounters()
        """What has happened since the coordinator was made."""
        self.world = world
        self.topics = topics
        self.runtime: CoordinatorRuntime[GroupShard, Change] = CoordinatorRuntime(
            world,
            log,
            lambda partition: GroupShard(self.config, lambda: str(world.uuid()), topics, own_settings, self.counters),
            commit_timeout_ms=self.config.offset_commit_timeout_ms,
        )

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that keeps the group; its leader is the group's coordinator."""
        return coordinator_partition(group_id, self.partitions)

    def begin(self, group_id: str, operation: Operation) -> None:
        """Run an operation on the shard that keeps the group; what it answers comes later. Raises as
        `CoordinatorRuntime.write`.
        """
        self.runtime.write(self.partition_for(group_id), lambda shard, turn: operation(shard=shard, turn=turn))

    async def ask(self, group_id: str, operation: Operation, reply: Reply[T]) -> T:
        """As `begin`, and wait for the answer, or raise the error that is it."""
        self.begin(group_id, operation)
        return await reply.wait()


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Do all steps, with others having their turn in between, and return what they lead to. Cancelled, the rest is not
    done."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await trio.lowlevel.checkpoint()


def check_group_id(group_id: str) -> None:
    """Raise `InvalidGroupIdError` for an empty one."""
    if not group_id:
        raise InvalidGroupIdError("the group id is empty")


def told(error: KafkaError) -> str:
    """What a client is told of an error, which may quote what the client has sent, however long that was."""
    return str(error)[:_LONGEST_MESSAGE]
