"""``kill -9`` of a real broker during joins, syncs and commits, with groups of real clients.

A classic group (ours, librdkafka, kafka-python, aiokafka) and one of the consumer protocol (ours, librdkafka) read,
handle and commit without a pause, while one member of each group joins and leaves. The process is killed when a member
joins, has just received its assignment, or commits, and is started again on the same data directory and port. After
every kill each member commits again. At the end every acknowledged commit exists, no committed offset has decreased,
every record was handled, and no partition has had two owners in one generation.
"""

from __future__ import annotations

import functools
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests.group_kills import foreign
from tests.group_kills.foreign import HEARTBEAT_MS, POLL_INTERVAL_MS, SESSION_MS, Client, Desk
from tests.group_kills.history import Attempt, History, Outcome
from tests.support.broker_process import BrokerProcess
from triokafka.assignors import Assignment, RangeAssignor
from triokafka.errors import KafkaError
from triokafka.structs import OffsetAndMetadata, TopicPartition

KILLS = 4
LONG_KILLS = 20
PARTITIONS = 8
TOPIC = "orders"
CLASSIC, MODERN = "classic", "modern"
STUCK = 60.0
"""Seconds after which a member that has not committed never will. In the simulated world, where no machine is busy with
something else, it must happen within the rebalance and session timeouts."""
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.num.partitions": "4",
}
FOREIGN: Mapping[str, tuple[str, Client]] = {
    "librdkafka": (CLASSIC, foreign.confluent),
    "kafka-python": (CLASSIC, foreign.kafka_python),
    "aiokafka": (CLASSIC, foreign.aiokafka),
    "librdkafka-modern": (MODERN, foreign.confluent_modern),
}


class SharedHistory(History):
    """A history that several threads write to."""

    def __init__(self) -> None:
        super().__init__(time.monotonic)
        lock = threading.RLock()
        for name in ("commit", "read", "granted", "gave_up", "heard_of", "handled", "note", "violations", "unhandled"):
            setattr(self, name, functools.partial(self._locked, lock, getattr(self, name)))

    @staticmethod
    def _locked(lock: threading.RLock, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with lock:
            return method(*args, **options)


class Signals:
    """Events of our own members: joining, assignment received, committing, commit acknowledged."""

    def __init__(self) -> None:
        self._changed = {name: trio.Event() for name in ("joining", "synced", "committing", "progress")}

    def notify(self, name: str) -> None:
        """Report that the event has happened."""
        event, self._changed[name] = self._changed[name], trio.Event()
        event.set()

    async def wait(self, name: str) -> None:
        """Wait for the next occurrence of the event."""
        await self._changed[name].wait()


class SignallingAssignor(RangeAssignor):
    """An assignor that reports when its member joins, and its assignment in each generation."""

    def __init__(self, member: OurMember) -> None:
        self._member = member

    def user_data(self, topics: Iterable[str]) -> bytes | None:
        self._member.signals.notify("joining")
        return super().user_data(list(topics))

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._member.granted(generation, assignment.partitions)


class OurMember(triokafka.ConsumerRebalanceListener):
    """Our own consumer, as a task."""

    def __init__(self, history: History, signals: Signals, name: str, group: str, bootstrap: str) -> None:
        self.name = name
        self.group = group
        self.signals = signals
        self.acknowledged_at = -1.0
        self._history = history
        self._bootstrap = bootstrap
        self._positions: dict[TopicPartition, int] = {}
        self._consumer: triokafka.Consumer | None = None

    async def run(self) -> None:
        """Read and commit until cancelled, then leave."""
        if self.group == MODERN:
            options: dict[str, Any] = {"group_protocol": "consumer"}
        else:
            options = {
                "partition_assignment_strategy": [SignallingAssignor(self)],
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": HEARTBEAT_MS,
            }
        async with triokafka.Consumer(
            bootstrap_servers=self._bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            retry_backoff_ms=20,
            reconnect_backoff_max_ms=500,
            **options,
        ) as self._consumer:
            self._consumer.subscribe([TOPIC], listener=self)
            while True:
                polled = await self._consumer.poll(timeout_ms=100, max_records=200)
                for partition, records in polled.items():
                    self._history.handled(self.group, partition.partition, [record.offset for record in records])
                    self._positions[partition] = records[-1].offset + 1
                await self._commit(self._consumer)

    async def _commit(self, consumer: triokafka.Consumer) -> None:
        generation = consumer.health().generation
        if not self._positions or generation < 0:
            return
        positions = dict(self._positions)
        attempt: Attempt = self._history.commit(
            self.name, self.group, generation, {partition.partition: at for partition, at in positions.items()}
        )
        since = time.monotonic()
        self.signals.notify("committing")
        try:
            await consumer.commit(
                {p: OffsetAndMetadata(at, attempt.tag) for p, at in positions.items()}, timeout_ms=2_000
            )
        except KafkaError:
            return
        attempt.done(Outcome.ACKNOWLEDGED)
        self.acknowledged_at = since
        self.signals.notify("progress")

    def granted(self, generation: int, partitions: Iterable[TopicPartition]) -> None:
        """Record the assignment of a generation."""
        self._history.granted(self.name, self.group, generation, [partition.partition for partition in partitions])
        self.signals.notify("synced")

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        consumer = self._consumer
        if self.group == MODERN and consumer is not None and consumer.health().generation >= 0:
            self.granted(consumer.health().generation, consumer.assignment())

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        gone = list(revoked)
        self._history.gave_up(self.name, self.group, [partition.partition for partition in gone])
        for partition in gone:
            self._positions.pop(partition, None)


class TemporaryMember:
    """A member of each group that joins and leaves; each time both groups rebalance."""

    def __init__(self, nursery: trio.Nursery, make: Callable[[str, str], OurMember]) -> None:
        self.members: list[OurMember] = []
        self._nursery = nursery
        self._make = make
        self._joins = 0
        self._scope: trio.CancelScope | None = None

    def come_or_go(self) -> None:
        """Join if it is not in the groups, otherwise leave."""
        if self._scope is None:
            self._joins += 1
            self._scope = trio.CancelScope()
            self.members = [self._make(f"guest-{group}-{self._joins}", group) for group in (CLASSIC, MODERN)]
            self._nursery.start_soon(self._run, self._scope, self.members)
        else:
            self._scope.cancel()
            self._scope, self.members = None, []

    async def _run(self, scope: trio.CancelScope, members: list[OurMember]) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for member in members:
                    nursery.start_soon(member.run)


async def produce(bootstrap: str, ends: dict[int, int], stop: trio.Event) -> None:
    """Write a few records to every partition continuously, and record their end offsets."""
    async with triokafka.Producer(
        bootstrap_servers=bootstrap, delivery_timeout_ms=120_000, max_block_ms=120_000, retry_backoff_ms=20
    ) as producer:
        while not stop.is_set():
            for number in range(PARTITIONS):
                delivery = await producer.send(TOPIC, b"record", partition=number)
                ends[number] = (await delivery).offset + 1
            with trio.move_on_after(0.02):
                await stop.wait()


@pytest.mark.timeout(240)
async def test_groups_survive_kills_of_the_coordinator(tmp_path: Path) -> None:
    await kill_and_check(tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(0)
async def test_groups_survive_twenty_kills_of_the_coordinator(tmp_path: Path) -> None:
    """The same, twenty times."""
    await kill_and_check(tmp_path, LONG_KILLS)


async def kill_and_check(tmp_path: Path, kills: int) -> None:
    seed = int(os.environ.get("TRIOKAFKA_TEST_SEED", "0")) or random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    history, signals = SharedHistory(), Signals()
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    ends: dict[int, int] = {}
    desks: list[Desk] = []
    ended = {name: trio.Event() for name in FOREIGN}
    try:
        bootstrap = await trio.to_thread.run_sync(broker.start)
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(TOPIC, PARTITIONS, 1)])
        async with trio.open_nursery() as members:
            try:
                token = trio.lowlevel.current_trio_token()
                for name, (group, client) in FOREIGN.items():
                    news = functools.partial(token.run_sync_soon, signals.notify, "progress")
                    desk = Desk(history, name, group, bootstrap, TOPIC, news)
                    desks.append(desk)
                    members.start_soon(_take_part, client, desk, ended[name])
                ours = [OurMember(history, signals, f"ours-{group}", group, bootstrap) for group in (CLASSIC, MODERN)]
                for member in ours:
                    members.start_soon(member.run)
                await _kills(broker, kills, random.Random(seed), history, signals, ends, [*desks, *ours], bootstrap)
                with trio.fail_after(60):
                    while any(history.unhandled(group, ends) for group in (CLASSIC, MODERN)):
                        await signals.wait("progress")
                await _audit(bootstrap, history)
            finally:
                await _end(desks, ended)
                members.cancel_scope.cancel()
        await trio.to_thread.run_sync(broker.kill)
        await trio.to_thread.run_sync(broker.start)
        await _audit(bootstrap, history)
    except BaseException as error:
        error.add_note(f"seed {seed}; the last events:\n" + "\n".join(history.events[-60:]))
        raise
    finally:
        for desk in desks:
            desk.stop.set()
        broker.close()
    print(f"{kills} kills: {history.counts()}; consumers used up: { {desk.name: desk.ends for desk in desks} }")
    print("\n".join(event for event in history.events if "broker" in event or "again" in event))
    violations = history.violations()
    assert not violations, f"seed {seed}:\n" + "\n".join(violations)


async def _take_part(client: Client, desk: Desk, ended: trio.Event) -> None:
    await trio.to_thread.run_sync(client, desk, abandon_on_cancel=True)
    ended.set()


async def _end(desks: list[Desk], ended: Mapping[str, trio.Event]) -> None:
    """Stop the clients. One that hangs must not hide other failures of the test."""
    for desk in desks:
        desk.stop.set()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
        for event in ended.values():
            await event.wait()
        return
    names = [name for name, event in ended.items() if not event.is_set()]
    raise AssertionError(f"do not leave: {names}; " + "".join(desk.explain() for desk in desks if desk.name in names))


async def _kills(
    broker: BrokerProcess,
    kills: int,
    chance: random.Random,
    history: History,
    signals: Signals,
    ends: dict[int, int],
    residents: list[Desk | OurMember],
    bootstrap: str,
) -> None:
    """Kill the broker so many times, and check each time that all members continue."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce, bootstrap, ends, stop)
        await _all_commit(residents, signals)
        async with trio.open_nursery() as temporary_nursery:
            temporary = TemporaryMember(
                temporary_nursery, lambda name, group: OurMember(history, signals, name, group, bootstrap)
            )
            for number in range(kills):
                moment = ("joining", "synced", "committing")[number % 3]
                temporary.come_or_go()
                with trio.fail_after(STUCK):
                    await signals.wait(moment)
                # Vary the delay, so that other members sometimes know of the join, and sometimes have joined again.
                await trio.sleep(chance.choice((0, chance.uniform(0, 0.02), chance.uniform(0, 1.0))))
                history.note("broker is killed:", moment)
                await trio.to_thread.run_sync(broker.kill)
                await trio.to_thread.run_sync(broker.start)
                history.note("broker is back")
                started = time.monotonic()
                # Wait for the temporary members, too: if one leaves before it was assigned partitions, no other member
                # rejoins.
                await _all_commit([*residents, *temporary.members], signals)
                history.note("all have committed again", f"after {time.monotonic() - started:.1f} s")
                await _audit(bootstrap, history)
            temporary_nursery.cancel_scope.cancel()
        await _all_commit(residents, signals)
        stop.set()


async def _all_commit(residents: list[Desk | OurMember], signals: Signals) -> None:
    """Wait until every member has started a commit after now, and it was acknowledged."""
    since = time.monotonic()
    with trio.move_on_after(STUCK):
        while any(member.acknowledged_at < since for member in residents):
            await signals.wait("progress")
        return
    stuck = [member for member in residents if member.acknowledged_at < since]
    lines = []
    for member in stuck:
        lines.append(f"{member.name} (last one {since - member.acknowledged_at:.1f} s before)")
        if isinstance(member, Desk):
            lines.append(f"  errors {list(dict.fromkeys(member.errors_seen))[-5:]}\n{member.explain()}")
    raise AssertionError(f"no commit within {STUCK} s: " + "\n".join(lines))


async def _audit(bootstrap: str, history: History) -> None:
    """Compare the committed offsets and owners with those that the coordinator reports."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        for group in (CLASSIC, MODERN):
            since = history.clock()
            for partition, position in (await admin.list_group_offsets(group)).items():
                if position is not None:
                    tag = position.metadata.rstrip("\0")  # confluent-kafka includes the terminating zero of its string
                    history.read(group, partition.partition, position.offset, tag, since=since)
            for description in (await admin.describe_groups([group])).values():
                owned = [partition for member in description.members for partition in member.assignment]
                assert len(owned) == len(set(owned)), f"two owners in group {group}: {description}"
