"""Forms one group, adds a member, and records the messages and the partitions without a reader.

The members are our consumers in this process; the world may be a simulated one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

import triokafka
from triokafka import TopicPartition
from triokafka.hooks import Hooks
from triokafka.structs import Node
from triokafka.world import World

TOPIC: Final = "rebalanced"
MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}
"""The rebalance protocols, and the consumer options that select them; "consumer" is KIP-848."""
_OF_GROUPS: Final = frozenset({"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"})
_POLL_MS: Final = 1_000
_FETCH_WAIT_MS: Final = 10_000
"""A long interval between fetches of the topic, which has no records."""
_SECONDS: Final = 600
_SPREAD_SECONDS: Final = 12
"""Seconds after a rebalance until heartbeats are spread out. Classic members choose intervals around the usual one;
under KIP-848 the broker sets one interval for all, and heartbeats keep the order in which members joined."""


def _heartbeat(mode: str, number: int) -> dict[str, Any]:
    return {} if mode == "consumer" else {"heartbeat_interval_ms": 2_500 + number * 381 % 1_000}


class Cost(NamedTuple):
    """The cost until the new member owned its share. Messages and bytes are those of membership, in both directions."""

    messages: int
    size: int
    seconds: float
    stopped: int
    """Partitions that had no reader for a while."""
    must_move: int
    """Partitions that moved to another member."""
    partition_seconds: float
    """Seconds without a reader, summed over all partitions."""
    longest: float
    """The longest time without a reader of one partition, in seconds."""
    members_stopped: int
    """Members that read no partition for a while."""


class Watch:
    """Records the reader of each partition and the messages."""

    def __init__(self, now: Callable[[], float], partitions: int) -> None:
        self.readers: dict[TopicPartition, str] = {}
        self.held: Counter[str] = Counter()
        self.changed = trio.Event()
        self._now = now
        self._partitions = partitions
        self.begin()

    def begin(self) -> None:
        """Start counting."""
        self.messages = self.size = 0
        self.gaps: dict[TopicPartition, float] = {}
        self.idle: set[str] = set()
        self._since = self._now()
        self._before = dict(self.readers)
        self._stopped_at: dict[TopicPartition, float] = {}

    def cost(self) -> Cost:
        """Return the cost since `begin`."""
        return Cost(
            self.messages,
            self.size,
            self._now() - self._since,
            len(self.gaps),
            sum(reader != self._before.get(partition) for partition, reader in self.readers.items()),
            sum(self.gaps.values()),
            max(self.gaps.values(), default=0.0),
            len(self.idle),
        )

    def sent(self, api: str, size: int) -> None:
        """Count a message."""
        if api in _OF_GROUPS:
            self.messages += 1
            self.size += size

    def gave_up(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        """Note partitions that a member stopped reading."""
        for partition in partitions:
            if self.readers.get(partition) == member:
                del self.readers[partition]
                self.held[member] -= 1
                self._stopped_at[partition] = self._now()
        if not self.held[member]:
            self.idle.add(member)

    def took(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        """Note partitions that a member started to read."""
        for partition in partitions:
            if self.readers.get(partition) != member:
                self.held[member] += 1
            self.readers[partition] = member
            if partition in self._stopped_at:
                gap = self._now() - self._stopped_at.pop(partition)
                self.gaps[partition] = self.gaps.get(partition, 0.0) + gap
        self.changed.set()
        self.changed = trio.Event()

    async def shared(self, members: int) -> None:
        """Wait until ``members`` members read all partitions, evenly."""
        while not self._is_shared(members):
            await self.changed.wait()

    def _is_shared(self, members: int) -> bool:
        counts = [count for count in self.held.values() if count]
        few, more = divmod(self._partitions, members)
        return sorted(counts) == [few] * (members - more) + [few + 1] * more


class _Hooks(Hooks):
    def __init__(self, watch: Watch, member: str) -> None:
        self._watch = watch
        self._member = member

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        self._watch.sent(api, size)

    def on_response(self, node: Node, api: str, size: int, seconds: float, error: Exception | None) -> None:
        self._watch.sent(api, size)

    def on_partitions_revoked(self, group_id: str, partitions: Sequence[TopicPartition], seconds: float) -> None:
        self._watch.gave_up(self._member, partitions)

    def on_partitions_lost(self, group_id: str, partitions: Sequence[TopicPartition]) -> None:
        self._watch.gave_up(self._member, partitions)

    def on_partitions_assigned(self, group_id: str, partitions: Sequence[TopicPartition], seconds: float) -> None:
        self._watch.took(self._member, partitions)


async def add_one(address: str, mode: str, members: int, partitions: int, world: World | None = None) -> Cost:
    """Let ``members`` consumers share a topic, start one more, and return the cost.

    Raises:
        trio.TooSlowError: the group did not become stable.
    """
    in_world: dict[str, Any] = {} if world is None else {"world": world}
    async with triokafka.AdminClient(bootstrap_servers=address, **in_world) as admin:
        await admin.create_topics([triokafka.NewTopic(TOPIC, num_partitions=partitions, replication_factor=1)])
    watch = Watch(trio.current_time if world is None else world.now, partitions)

    async def read(number: int) -> None:
        member = f"member-{number:04}"
        async with triokafka.Consumer(
            TOPIC,
            bootstrap_servers=address,
            group_id="rebalanced",
            client_id=member,
            hooks=_Hooks(watch, member),
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            enable_auto_commit=False,
            **MODES[mode],
            **_heartbeat(mode, number),
            **in_world,
        ) as consumer:
            while True:
                await consumer.poll(timeout_ms=_POLL_MS)

    with trio.fail_after(_SECONDS):
        async with trio.open_nursery() as nursery:
            for number in range(members):
                nursery.start_soon(read, number)
            await watch.shared(members)
            await trio.sleep(_SPREAD_SECONDS)
            watch.begin()
            nursery.start_soon(read, members)
            await watch.shared(members + 1)
            cost = watch.cost()
            nursery.cancel_scope.cancel()
    return cost
