"""The group as others see it: described by another client's admin API, and as stored in ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import TopicPartition as OtherPartition
from confluent_kafka.admin import AdminClient

from triokafka import Consumer, TopicPartition
from triokafka.coordinator.group.records import GroupChange, OffsetChange, decode

_OFFSETS_TOPIC: Final = "__consumer_offsets"
_NOT_YET: Final = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.GROUP_ID_NOT_FOUND,
    # The broker itself may be starting.
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
}
_PATIENCE: Final = 5.0


@dataclass(frozen=True)
class Seen:
    """One description: the state in Kafka's word, and the partitions of each client id."""

    state: str
    shares: Mapping[str, frozenset[int]]


class Observer:
    """Observes one group; remembers the highest committed offsets and fails if one decreases."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        # It must be up again as soon as the broker.
        options = {"reconnect.backoff.max.ms": 200, "log_level": 0}
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **options})
        # Not the admin client: it can end the process when the group changes coordinators (librdkafka issue 5040).
        self._consumer = OtherConsumer({"bootstrap.servers": bootstrap, "group.id": group, **options})
        self._partitions = [OtherPartition(topic, number) for number in range(partitions)]
        self.committed: dict[int, int] = {}

    async def look(self) -> Seen:
        """Describe the group and fetch its offsets."""
        # Never abandoned: the admin client has its own time limit.
        return await trio.to_thread.run_sync(self._look)

    def _look(self) -> Seen:
        try:
            offsets = self._consumer.committed(self._partitions, _PATIENCE)
            for position in offsets:
                if position.error is not None:
                    raise KafkaException(position.error)
            found = self._admin.describe_consumer_groups([self._group], request_timeout=_PATIENCE)[self._group].result()
        except KafkaException as error:
            if error.args[0].code() in _NOT_YET:
                return Seen("Unknown", {})
            raise
        for position in offsets:
            before = self.committed.get(position.partition, OFFSET_INVALID)
            assert position.offset >= before, f"partition {position.partition}: {before} moved to {position.offset}"
            if position.offset != OFFSET_INVALID:
                self.committed[position.partition] = position.offset
        shares: dict[str, frozenset[int]] = {}
        for member in found.members:
            assert member.client_id not in shares, f"{member.client_id} is in the group twice"
            shares[member.client_id] = frozenset(one.partition for one in member.assignment.topic_partitions)
        return Seen(found.state.name, shares)

    async def read_the_log(self) -> int:
        """Check every commit of the group in the order of its log; return their number.

        No offset decreases, and no generation of the group repeats or decreases.
        """
        commits, furthest, generation = 0, dict[int, int](), -1
        async with Consumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False) as consumer:
            numbers = await consumer.partitions_for_topic(_OFFSETS_TOPIC)
            assert numbers is not None
            partitions = [TopicPartition(_OFFSETS_TOPIC, number) for number in numbers]
            ends = await consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while any([await consumer.position(one) < ends[one] for one in partitions]):
                for records in (await consumer.poll(timeout_ms=100)).values():
                    for record in records:
                        change = decode(record.key, record.value)
                        if isinstance(change, OffsetChange) and change.key.group_id == self._group:
                            assert change.value is not None, f"the offset of {change.key} was removed"
                            partition, offset = change.key.partition, change.value.offset
                            before = furthest.get(partition, 0)
                            assert offset >= before, f"{record}: partition {partition} moved from {before} to {offset}"
                            furthest[partition] = offset
                            commits += 1
                        elif isinstance(change, GroupChange) and change.group_id == self._group and change.value:
                            assert change.value.generation >= generation, f"{record}: generation {generation} before"
                            generation = change.value.generation
        return commits
