"""The delivery recipes of ``examples/``, killed at each step in turn, until a run completes without a kill.

A step is the code of the recipe's task between two waits; before and after a change of the results there are further
steps. The restarted process is killed a second time, at a step derived from the first; the third run completes the
work.
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio

import triokafka
from tests.support.simulated import host_broker
from triokafka.broker_stub.faults.faults import RequestFault
from triokafka.errors import KafkaError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation, running_broker
from triokafka.testing.simulated_world import SimulatedWorld

EVERY = int(os.environ.get("TRIOKAFKA_EVERY_STEP", "3"))
"""Kills come at the 1st, the 4th, … step; with 1 at each."""
EXAMPLES = Path(__file__).parents[2] / "examples"
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
RECORDS = 5
EVERYTHING = {(partition.partition, offset) for partition in PARTITIONS for offset in range(RECORDS)}
OPTIONS: dict[str, Any] = {
    "bootstrap_servers": "broker:9092",
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "max_poll_records": 4,
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
    "auto_commit_interval_ms": 200,
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Killed(Exception):
    """The process is killed before its next action."""


class Steps(trio.abc.Instrument):
    """Counts the steps of one process, and kills it at one of them."""

    def __init__(self, die: Callable[[], None], at: int | None) -> None:
        self.count = 0
        self._die = die
        self._at = at
        self._task = trio.lowlevel.current_task()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._step()

    def _step(self) -> bool:
        self.count += 1
        if self.count == self._at:
            self._die()
        return self.count == self._at

    def between(self) -> None:
        """Mark a step within code that does not wait."""
        if self._step():
            raise Killed


class Handled:
    """The effects of the recipe's user on an external system."""

    def __init__(self) -> None:
        self.records: Counter[tuple[int, int]] = Counter()
        self.steps: Steps | None = None

    def __call__(self, record: triokafka.ConsumerRecord) -> None:
        assert self.steps is not None
        self.steps.between()
        self.records[record.partition, record.offset] += 1
        self.steps.between()


Recipe = Callable[[SimulatedWorld, Handled], Awaitable[None]]


async def at_least_once(world: SimulatedWorld, handled: Handled) -> None:
    async with triokafka.Consumer("t", world=world, enable_auto_commit=False, **OPTIONS) as consumer:
        await example("consume_at_least_once").process(consumer, handled)


async def at_most_once(world: SimulatedWorld, handled: Handled) -> None:
    async with triokafka.Consumer("t", world=world, enable_auto_commit=False, **OPTIONS) as consumer:
        await example("consume_at_most_once").process(consumer, handled)


async def auto_commit(world: SimulatedWorld, handled: Handled) -> None:
    """The same as in ``examples/consume_group.py``."""
    async with triokafka.Consumer("t", world=world, **OPTIONS) as consumer:
        async for record in consumer:
            handled(record)
            await trio.sleep(0.1)


async def auto_commit_of_batches(world: SimulatedWorld, handled: Handled) -> None:
    async with triokafka.Consumer("t", world=world, **OPTIONS) as consumer:
        while True:
            for records in (await consumer.poll(timeout_ms=1_000)).values():
                for record in records:
                    handled(record)
                    await trio.sleep(0.1)


async def partitions_in_parallel(world: SimulatedWorld, handled: Handled) -> None:
    """The same as in ``examples/consume_partitions.py``, with several records of a partition at a time."""

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(0.3 if record.offset % 3 == 0 else 0.1)
        handled(record)

    async with triokafka.Consumer("t", world=world, enable_auto_commit=False, **OPTIONS) as consumer:
        await triokafka.process_partitions(consumer, handle, tasks_per_partition=2, commit_interval_ms=200)


def start_broker(simulation: Simulation) -> None:
    host_broker(
        simulation,
        num_partitions=len(PARTITIONS),
        offsets_topic_num_partitions=1,
        group_initial_rebalance_delay_ms=0,
    )


def run_with_kills(recipe: Recipe, at: int, done: Callable[[dict[int, int], Handled], bool]) -> tuple[Handled, bool]:
    """Run a recipe, killed at step ``at`` and once more; return the handled records, and whether the kill happened."""

    async def main(simulation: Simulation) -> tuple[Handled, bool]:
        handled = Handled()
        start_broker(simulation)
        async with triokafka.Producer(
            bootstrap_servers="broker:9092", world=simulation.host("producer").world
        ) as producer:
            for partition, offset in sorted(EVERYTHING):
                await producer.send("t", b"%d" % offset, partition=partition)
        host = simulation.host("worker")

        async def work(world: SimulatedWorld, kill_at: int | None) -> None:
            steps = handled.steps = Steps(host.die, kill_at)
            trio.lowlevel.add_instrument(steps)
            try:
                await recipe(world, handled)
            finally:
                trio.lowlevel.remove_instrument(steps)

        async with triokafka.Consumer(
            world=simulation.host("watcher").world, bootstrap_servers="broker:9092", group_id="g"
        ) as watcher:
            kills = [at, random.Random(at).randrange(1, at + 1), None]
            was_killed = False
            for kill_at in kills:
                host.start(lambda world, kill_at=kill_at: work(world, kill_at))  # type: ignore[misc]
                with trio.fail_after(120):
                    while not host.world.is_halted:
                        found = await watcher.committed(PARTITIONS)
                        positions = {p.partition: 0 if o is None else o.offset for p, o in found.items()}
                        if done(positions, handled):
                            break
                        await trio.sleep(0.2)
                was_killed = was_killed or host.world.is_halted
                await host.kill()
                if not was_killed:
                    break
        return handled, was_killed

    return run_simulation(main, at)


def everything_is_committed(positions: dict[int, int], handled: Handled) -> bool:
    return set(positions.values()) == {RECORDS}


def everything_is_handled(positions: dict[int, int], handled: Handled) -> bool:
    return handled.records.keys() >= EVERYTHING


def at_each_step(recipe: Recipe, check: Callable[[Handled, int], None], done: Any) -> int:
    """Kill ``recipe`` at each step in turn; return its number of steps."""
    for at in range(1, 1_000, EVERY):
        handled, was_killed = run_with_kills(recipe, at, done)
        check(handled, at)
        if not was_killed:
            return at
    raise AssertionError("it never gets through")


@pytest.mark.parametrize("recipe", [at_least_once, auto_commit, auto_commit_of_batches, partitions_in_parallel])
def test_at_least_once_never_loses(recipe: Recipe) -> None:
    repeated = 0

    def check(handled: Handled, at: int) -> None:
        nonlocal repeated
        assert handled.records.keys() == EVERYTHING, f"lost, killed at step {at}: {EVERYTHING - handled.records.keys()}"
        repeated += sum(handled.records.values()) > len(EVERYTHING)

    assert at_each_step(recipe, check, everything_is_committed) > 20
    assert repeated  # otherwise no kill had an effect


def test_at_most_once_never_repeats() -> None:
    lost = 0

    def check(handled: Handled, at: int) -> None:
        nonlocal lost
        twice = [record for record, times in handled.records.items() if times > 1]
        assert not twice, f"repeated, killed at step {at}: {twice}"
        lost += len(handled.records) < len(EVERYTHING)

    assert at_each_step(at_most_once, check, everything_is_committed) > 20
    assert lost


def check_stored_once(recipe: Callable[..., Awaitable[None]], module: ModuleType, directory: Path) -> None:
    """Kill ``recipe``, whose first argument is the path of its store, at each step in turn: the store has each record
    once.
    """
    for at in range(1, 1_000, EVERY):
        path = str(directory / f"{at}.sqlite")
        _, was_killed = run_with_kills(partial(recipe, path), at, everything_is_handled)
        with closing(module.Results(path)) as results:
            assert [(partition, offset) for partition, offset, _ in results.all()] == sorted(EVERYTHING), at
        if not was_killed:
            assert at > 10
            return
    raise AssertionError("it never gets through")


def test_results_and_offsets_in_one_transaction_are_exactly_once(tmp_path: Path) -> None:
    module = example("consume_exactly_once")

    async def exactly_once(path: str, world: SimulatedWorld, handled: Handled) -> None:
        class Steady(module.Results):  # type: ignore[name-defined]
            def store(self, partition: TopicPartition, records: Any) -> bool:
                assert handled.steps is not None
                handled.steps.between()
                stored: bool = super().store(partition, records)
                for record in records:
                    handled.records[record.partition, record.offset] += 1
                handled.steps.between()
                return stored

        async with triokafka.Consumer(world=world, enable_auto_commit=False, **OPTIONS) as consumer:
            with closing(Steady(path)) as results:
                await module.process(consumer, "t", results)

    check_stored_once(exactly_once, module, tmp_path)


def test_an_external_offset_store_needs_no_group(tmp_path: Path) -> None:
    """The same recipe, with manually assigned partitions."""
    module = example("consume_exactly_once")

    async def exactly_once(path: str, world: SimulatedWorld, handled: Handled) -> None:
        options = {**OPTIONS, "group_id": None}
        with closing(module.Results(path)) as results:
            async with triokafka.Consumer(world=world, **options) as consumer:
                consumer.assign(PARTITIONS)
                for partition in PARTITIONS:
                    consumer.seek(partition, results.position(partition))
                while True:
                    for partition, records in (await consumer.poll(timeout_ms=1_000)).items():
                        assert handled.steps is not None
                        handled.steps.between()
                        results.store(partition, records)
                        handled.records.update((record.partition, record.offset) for record in records)
                        handled.steps.between()
                        await trio.sleep(0.1)

    check_stored_once(exactly_once, module, tmp_path)


# ---------------------------------------------------------------- producers


def produce_with_lost_answers(
    produce: Callable[[triokafka.Producer, SimulatedWorld], Awaitable[None]], **options: Any
) -> list[triokafka.ConsumerRecord]:
    """Return the records of partition 0 after ``produce``, during which every third response of the broker was lost."""

    async def main(simulation: Simulation) -> list[triokafka.ConsumerRecord]:
        async def broker(world: SimulatedWorld) -> None:
            async with running_broker(world=world, listeners="PLAINTEXT://broker:9092") as running:
                for number in range(10):
                    running.faults.arm(
                        RequestFault(api_key=0, client_id="sender", skip=2 * (number + 1), close="after")
                    )
                await trio.sleep_forever()

        simulation.host("broker").start(broker)
        world = simulation.host("worker").world
        async with triokafka.Producer(
            bootstrap_servers="broker:9092",
            world=world,
            client_id="sender",
            linger_ms=0,
            max_in_flight_requests_per_connection=1,
            **options,
        ) as producer:
            await produce(producer, world)
        records: list[triokafka.ConsumerRecord] = []
        async with triokafka.Consumer(bootstrap_servers="broker:9092", world=world) as consumer:
            consumer.assign(PARTITIONS[:1])
            consumer.seek_to_beginning()
            while polled := await consumer.poll(timeout_ms=1_000):
                records += polled[PARTITIONS[0]]
        return records

    return run_simulation(main, 1)


SENT = [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_repeats_a_record_after_a_lost_response(idempotent: bool) -> None:
    """The record may then be in the log twice; with ``enable_idempotence`` the broker recognizes the duplicate."""

    async def produce(producer: triokafka.Producer, world: SimulatedWorld) -> None:
        for value in SENT:
            await (await producer.send("t", value, partition=0))

    found = [record.value for record in produce_with_lost_answers(produce, enable_idempotence=idempotent, retries=100)]
    assert list(dict.fromkeys(found)) == SENT
    assert (len(found) == len(SENT)) == idempotent


def test_the_only_writer_of_a_partition_checks_the_last_record() -> None:

    async def produce(producer: triokafka.Producer, world: SimulatedWorld) -> None:
        errors = 0
        for value in SENT:
            while True:
                try:
                    await (await producer.send("t", value, partition=0))
                    break
                except KafkaError:
                    errors += 1
                    async with triokafka.Consumer(bootstrap_servers="broker:9092", world=world) as consumer:
                        end = (await consumer.end_offsets(PARTITIONS[:1]))[PARTITIONS[0]]
                        consumer.assign(PARTITIONS[:1])
                        consumer.seek(PARTITIONS[0], max(0, end - 1))
                        if end and (await anext(consumer)).value == value:
                            break
        assert errors

    found = produce_with_lost_answers(produce, enable_idempotence=False, retries=0)
    assert [record.value for record in found] == SENT


def test_unique_keys_reveal_duplicate_records() -> None:

    async def produce(producer: triokafka.Producer, world: SimulatedWorld) -> None:
        for value in SENT:
            await (await producer.send("t", value, key=b"id-" + value, partition=0))

    found = produce_with_lost_answers(produce, enable_idempotence=False, retries=100)
    assert len(found) > len(SENT)
    once = {record.key: record.value for record in found}
    assert list(once.items()) == [(b"id-" + value, value) for value in SENT]
