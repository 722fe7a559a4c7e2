"""`process_transactions`: each input record has its result exactly once, whatever happens to the processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio

import triokafka
from tests.integration.test_transactional_clients import create, read
from triokafka.errors import IllegalStateError, ProducerFencedError, TransactionAbortedError
from triokafka.records import ConsumerRecord
from triokafka.structs import Node, TopicPartition

COUNT = 60
Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]


async def fill(bootstrap: str, topic: str, partitions: int = 3) -> None:
    """Create an input topic, and a topic for the results."""
    await create(bootstrap, topic, partitions)
    await create(bootstrap, f"{topic}-out", 2)
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, partition=number % partitions)


class Copier:
    """One instance of a program that copies the input, with ``batch`` records in each transaction."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, name: str, batch: int = 7, hooks: Sequence[triokafka.Hooks] = ()
    ) -> None:
        self.topic = topic
        self.batch = batch
        self.handled = 0
        self._producer = triokafka.Producer(
            bootstrap_servers=bootstrap, transactional_id=f"{topic}-{name}", linger_ms=0, hooks=hooks
        )
        self._consumer = triokafka.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )

    async def before_results(self) -> None:
        """Called in every transaction, before the results are sent."""

    async def after_results(self) -> None:
        """Called in every transaction, once all results are sent."""

    async def handle(self, records: Records, transaction: triokafka.Transaction) -> None:
        await self.before_results()
        for found in records.values():
            for record in found:
                await self._producer.send(f"{self.topic}-out", record.value)
        await self.after_results()
        self.handled += sum(map(len, records.values()))

    async def run(self, **options: Any) -> None:
        async with self._producer, self._consumer:
            await triokafka.process_transactions(
                self._consumer, self._producer, self.handle, max_records=self.batch, **options
            )


async def copied(bootstrap: str, topic: str) -> list[bytes]:
    """Wait until there are as many results as inputs; return them."""
    with trio.fail_after(60):
        while len(found := await read(bootstrap, f"{topic}-out")) < COUNT:
            await trio.sleep(0.2)
    return found


async def producer_of(bootstrap: str, transactional_id: str) -> tuple[int, int]:
    """Return the id and the epoch of the present producer with a transactional id."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        found = (await admin.describe_transactions([transactional_id]))[transactional_id]
        return found.producer_id, found.producer_epoch


def check(found: list[bytes]) -> None:
    assert Counter(found) == Counter(b"%d" % number for number in range(COUNT))


async def test_each_record_is_copied_once(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Copier(bootstrap, topic, group, "a").run)
        check(await copied(bootstrap, topic))
        nursery.cancel_scope.cancel()


class Registrations(triokafka.Hooks):
    """Counts the requests that were on the wire together with a TxnOffsetCommit."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.together = 0
        self._on_wire: Counter[str] = Counter()

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        if api in ("Produce", "TxnOffsetCommit"):
            self._on_wire[api] += 1
            self.together += all(self._on_wire[each] for each in ("Produce", "TxnOffsetCommit"))

    def on_response(self, node: Node, api: str, size: int, seconds: float, error: Exception | None) -> None:
        if api in self._on_wire:
            self._on_wire[api] -= 1
            self.ended[api] += 1


async def test_partition_and_group_are_registered_one_after_the_other(bootstrap: str, topic: str, group: str) -> None:
    """Apache Kafka refuses one of two registrations that reach its coordinator together."""
    await fill(bootstrap, topic)
    seen = Registrations()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Copier(bootstrap, topic, group, "a", batch=1, hooks=(seen,)).run)
        check(await copied(bootstrap, topic))
        nursery.cancel_scope.cancel()
    assert seen.ended["Produce"] >= COUNT and seen.ended["TxnOffsetCommit"] >= COUNT
    assert seen.together == 0


async def test_copier_that_is_cancelled_repeatedly_loses_and_repeats_no_record(
    bootstrap: str, topic: str, group: str
) -> None:
    await fill(bootstrap, topic)
    for step in range(6):
        copier = Copier(bootstrap, topic, group, "a")
        with trio.CancelScope() as scope:

            async def stop(scope: trio.CancelScope = scope) -> None:
                scope.cancel()
                await trio.lowlevel.checkpoint()

            if step % 2:
                copier.before_results = stop  # type: ignore[method-assign]
            else:
                copier.after_results = stop  # type: ignore[method-assign]
            await copier.run()
        assert scope.cancelled_caught and copier.handled == 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Copier(bootstrap, topic, group, "a").run)
        check(await copied(bootstrap, topic))
        nursery.cancel_scope.cancel()


async def test_handler_that_raises_ends_the_loop_and_its_transaction(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    copier = Copier(bootstrap, topic, group, "a")

    async def fail() -> None:
        raise LookupError("the handler's own")

    copier.after_results = fail  # type: ignore[method-assign]
    with pytest.raises(LookupError):
        await copier.run()
    assert await read(bootstrap, f"{topic}-out") == []


async def test_aborted_transaction_is_repeated(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    copier = Copier(bootstrap, topic, group, "a")
    attempts = 0

    async def abort_sometimes() -> None:
        nonlocal attempts
        attempts += 1
        if attempts % 3 == 1:
            raise TransactionAbortedError("on purpose") from triokafka.errors.RequestTimedOutError("on purpose")

    copier.after_results = abort_sometimes  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(copier.run)
        check(await copied(bootstrap, topic))
        nursery.cancel_scope.cancel()


async def test_aborts_in_a_row_are_bounded(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    copier = Copier(bootstrap, topic, group, "a")

    async def abort() -> None:
        raise TransactionAbortedError("on purpose") from triokafka.errors.RequestTimedOutError("on purpose")

    copier.after_results = abort  # type: ignore[method-assign]
    with pytest.raises(TransactionAbortedError, match="3 transactions in a row"):
        await copier.run(max_attempts=3)


async def test_joining_and_leaving_members_lose_and_repeat_no_record(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    async with trio.open_nursery() as nursery:
        first = Copier(bootstrap, topic, group, "a", batch=2)
        first.after_results = lambda: trio.sleep(0.05)  # type: ignore[method-assign]
        nursery.start_soon(first.run)
        for name in "bc":
            with trio.move_on_after(1.5):
                other = Copier(bootstrap, topic, group, name, batch=2)
                other.after_results = lambda: trio.sleep(0.05)  # type: ignore[method-assign]
                await other.run()
        check(await copied(bootstrap, topic))
        nursery.cancel_scope.cancel()


async def test_zombie_is_fenced_by_its_successor(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    zombie, successor = Copier(bootstrap, topic, group, "a"), Copier(bootstrap, topic, group, "a")
    async with trio.open_nursery() as nursery:

        async def be_replaced() -> None:
            before = await producer_of(bootstrap, f"{topic}-a")
            nursery.start_soon(successor.run)
            with trio.fail_after(60):
                while await producer_of(bootstrap, f"{topic}-a") == before:
                    await trio.sleep(0.02)  # no broker reports a new producer

        zombie.after_results = be_replaced  # type: ignore[method-assign]
        with pytest.raises(ProducerFencedError):
            await zombie.run()
        check(await copied(bootstrap, topic))
        nursery.cancel_scope.cancel()


async def test_wrong_clients_are_refused(bootstrap: str, topic: str, group: str) -> None:
    async def handle(records: Records, transaction: triokafka.Transaction) -> None: ...

    async with (
        triokafka.Producer(bootstrap_servers=bootstrap) as plain,
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        triokafka.Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as automatic,
        triokafka.Consumer(topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False) as consumer,
    ):
        with pytest.raises(IllegalStateError, match="enable_auto_commit"):
            await triokafka.process_transactions(automatic, producer, handle)
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await triokafka.process_transactions(consumer, plain, handle)
