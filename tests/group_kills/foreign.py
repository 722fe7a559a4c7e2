"""Members with other clients, each in a thread: they read, commit with tags, and report to a `Desk`.

A client may still send a commit after it has failed, so the outcome of such a commit is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.group_kills.history import Attempt, History, Outcome


class Desk:
    """The place where one member records its observations. Its thread calls ``news`` after every commit."""

    def __init__(
        self, history: History, name: str, group: str, bootstrap: str, topic: str, news: Callable[[], None]
    ) -> None:
        self.name = name
        self.group = group
        self.bootstrap = bootstrap
        self.topic = topic
        self.stop = threading.Event()
        self.acknowledged_at = -1.0
        """The start of the newest acknowledged commit."""
        self.errors_seen: list[str] = []
        self.ends = 0
        """The number of consumers so far: one if none of them ended by itself."""
        self.explain: Callable[[], str] = lambda: ""
        """The event that the member waits for, where that is known."""
        self._history = history
        self._news = news
        self._positions: dict[int, int] = {}

    def read(self, number: int, offset: int) -> None:
        """Note a handled record."""
        self._history.handled(self.group, number, [offset])
        self._positions[number] = offset + 1

    def forget(self, numbers: Iterable[int]) -> None:
        """Note that other members own these partitions."""
        for number in numbers:
            self._positions.pop(number, None)

    def forget_all(self) -> None:
        """Note a restart of the client."""
        self._positions.clear()

    def begin(self) -> tuple[Attempt, Mapping[int, int]] | None:
        """Return positions to commit and their tag; None if there are none."""
        if not self._positions:
            return None
        positions = dict(self._positions)
        return self._history.commit(self.name, self.group, -1, positions), positions

    def acknowledged(self, attempt: Attempt, numbers: Iterable[int] | None = None) -> None:
        """Note that the positions are stored, all or these."""
        since = next(iter(attempt.commits.values())).since
        for number in attempt.commits if numbers is None else numbers:
            attempt.done(Outcome.ACKNOWLEDGED, number)
        self.acknowledged_at = since
        self._news()

    def note_error(self, error: object) -> None:
        """Note an error of the client, which must continue."""
        self.errors_seen.append(repr(error))


Client = Callable[[Desk], None]
"""Take part in the group until the end of the test. Runs in a thread."""

SESSION_MS = 6_000
HEARTBEAT_MS = 500
POLL_INTERVAL_MS = 10_000


def confluent(desk: Desk) -> None:
    """librdkafka, classic protocol."""
    _confluent(
        desk,
        {
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        },
    )


def confluent_modern(desk: Desk) -> None:
    """librdkafka, the new protocol."""
    _confluent(desk, {"group.protocol": "consumer"})


def _confluent(desk: Desk, options: Mapping[str, Any]) -> None:
    """Run one consumer after the other: a fatal error ends one.

    With the new protocol, one error occurs with any broker: a consumer whose poll interval ends while the coordinator
    is down (a commit blocks that long) rejoins with a heartbeat in epoch 0 without the required fields, which is an
    INVALID_REQUEST (librdkafka 2.16).
    """
    while not desk.stop.is_set():
        _confluent_once(desk, options)
        desk.forget_all()
        desk.ends += 1


def _confluent_once(desk: Desk, options: Mapping[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    dead = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": desk.bootstrap,
            "group.id": desk.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": POLL_INTERVAL_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            "error_cb": lambda error: dead.set() if error.fatal() else None,
            **options,
        }
    )

    def commit() -> None:
        begun = desk.begin()
        if begun is None:
            return
        attempt, positions = begun
        offsets = [TopicPartition(desk.topic, n, at, metadata=attempt.tag) for n, at in positions.items()]
        try:
            results = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            desk.note_error(error)
            return
        desk.acknowledged(attempt, [one.partition for one in results if one.error is None])

    def gone(_: Any, partitions: list[Any]) -> None:
        desk.forget(one.partition for one in partitions)

    consumer.subscribe([desk.topic], on_revoke=gone, on_lost=gone)
    try:
        while not desk.stop.is_set() and not dead.is_set():
            for message in consumer.consume(200, 0.1):
                if message.error() is None:
                    desk.read(message.partition(), message.offset())
                else:
                    desk.note_error(message.error())
            commit()
    finally:
        consumer.close()


def kafka_python(desk: Desk) -> None:
    """kafka-python."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.structs import OffsetAndMetadata, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=desk.bootstrap,
        group_id=desk.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        reconnect_backoff_max_ms=500,
    )

    class Listener(ConsumerRebalanceListener):  # kafka-python has no types
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            desk.forget(one.partition for one in revoked)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            pass

        def on_partitions_lost(self, lost: Iterable[Any]) -> None:
            desk.forget(one.partition for one in lost)

    def commit() -> None:
        begun = desk.begin()
        if begun is None:
            return
        attempt, positions = begun
        offsets = {TopicPartition(desk.topic, n): OffsetAndMetadata(at, attempt.tag, -1) for n, at in positions.items()}
        consumer.commit(offsets)
        desk.acknowledged(attempt)

    consumer.subscribe([desk.topic], listener=Listener())
    try:
        while not desk.stop.is_set():
            try:
                # It may drop an assignment that arrives just when this time ends, so the time is long.
                for records in consumer.poll(1_000, max_records=200).values():
                    for record in records:
                        desk.read(record.partition, record.offset)
                commit()
            except errors.KafkaError as error:
                desk.note_error(error)
    finally:
        consumer.close()


def aiokafka(desk: Desk) -> None:
    """aiokafka, in its own event loop; restarted if it fails."""
    while not desk.stop.is_set():
        asyncio.run(_aiokafka(desk))
        desk.forget_all()
        desk.ends += 1


async def _aiokafka(desk: Desk) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.structs import OffsetAndMetadata, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=desk.bootstrap,
        group_id=desk.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        rebalance_timeout_ms=POLL_INTERVAL_MS,
        retry_backoff_ms=100,
    )
    in_hand = asyncio.Lock()  # rebalances run in a task of aiokafka: they wait for the present batch

    class Listener(ConsumerRebalanceListener):  # aiokafka has no types
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            async with in_hand:
                desk.forget(one.partition for one in revoked)

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            pass

    async def commit() -> None:
        begun = desk.begin()
        if begun is None:
            return
        attempt, positions = begun
        offsets = {TopicPartition(desk.topic, n): OffsetAndMetadata(at, attempt.tag) for n, at in positions.items()}
        await consumer.commit(offsets)
        desk.acknowledged(attempt)

    def is_dead() -> bool:
        # It cancels its heartbeats at the beginning of a rebalance and, if they have not begun yet, its coordination
        # task with them: then it never joins again, and a call for records waits forever for an assignment.
        return bool(consumer._coordinator._coordination_task.done())

    loop = asyncio.get_running_loop()
    desk.explain = lambda: "\n".join(
        f"{task.get_coro()}: {[str(frame) for frame in task.get_stack()]}" for task in asyncio.all_tasks(loop)
    )
    consumer.subscribe([desk.topic], listener=Listener())
    await consumer.start()
    try:
        while not desk.stop.is_set():
            try:
                asking = asyncio.ensure_future(consumer.getmany(timeout_ms=100, max_records=200))
                while not asking.done() and not is_dead():
                    await asyncio.wait([asking], timeout=1)
                if is_dead():
                    asking.cancel()
                    desk.note_error("aiokafka has given up its coordination by itself")
                    return
                found = await asking
                async with in_hand:
                    mine = consumer.assignment()
                    for partition, records in found.items():
                        if partition in mine:  # else another member got it after these were returned
                            for record in records:
                                desk.read(record.partition, record.offset)
                    await commit()
            except errors.KafkaError as error:
                desk.note_error(error)
    finally:
        with contextlib.suppress(asyncio.CancelledError):  # the cancellation of its coordination task
            await consumer.stop()
