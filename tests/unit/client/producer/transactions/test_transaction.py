"""`Producer.transaction`: blocks, steps, failures and cancellation, against a scripted coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import CLOSE, CLOSE_AFTER, SILENCE
from tests.support.scripted_coordinator import REQUESTS, ScriptedCoordinator
from tests.support.scripted_producing import Setup, memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.errors import (
    ConfigurationError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from triokafka.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from triokafka.protocol.api.end_txn import EndTxnRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
from triokafka.structs import TopicPartition

ORDERS = TopicPartition("orders", 0)
LEVELS = pytest.mark.parametrize("level", [1, 2])


@asynccontextmanager
async def coordinated(level: int = 2, **topics: int) -> AsyncIterator[tuple[Setup, ScriptedCoordinator]]:
    async with scripted(**topics) as setup:
        yield setup, ScriptedCoordinator(setup.cluster, level)


def transactional(setup: Setup, **options: Any) -> triokafka.Producer:
    return setup.producer(transactional_id="billing-1", **options)


# ---------------------------------------------------------------- the usual course


@LEVELS
@simulated
async def test_block_commits_everything_that_was_sent_inside(level: int) -> None:
    async with coordinated(level, orders=3) as (s, coordinator), transactional(s) as producer:
        for number in range(3):
            async with producer.transaction() as transaction:
                for partition in range(3):
                    await producer.send("orders", b"%d" % number, partition=partition)
                await transaction.send_offsets(offsets={ORDERS: number + 10}, group="billing")
            assert transaction.committed is True
        for partition in range(3):
            assert coordinator.committed[TopicPartition("orders", partition)] == [b"0", b"1", b"2"]
        assert coordinator.offsets == {"billing": {ORDERS: 12}}
        assert coordinator.ends == [True, True, True]
        assert memory_is_whole(producer)


@LEVELS
@simulated
async def test_exception_aborts_and_leaves_the_block_unchanged(level: int) -> None:
    async with coordinated(level) as (s, coordinator), transactional(s, linger_ms=1_000) as producer:
        problem = ValueError("the body's own")
        with pytest.raises(ValueError) as raised:
            async with producer.transaction() as transaction:
                await (await producer.send("orders", b"written"))
                unsent = await producer.send("orders", b"not sent")
                raise problem
        assert raised.value is problem and transaction.committed is False
        with pytest.raises(TransactionAbortedError):
            await unsent
        assert coordinator.ends == [False] and coordinator.committed == {}
        assert s.cluster.values("orders") == [b"written"], "unsent records are dropped"
        async with producer.transaction():
            await producer.send("orders", b"again")
        assert coordinator.committed == {ORDERS: [b"again"]}
        assert memory_is_whole(producer)


@simulated
async def test_partition_is_registered_before_its_batches_are_sent() -> None:
    async with coordinated(1, orders=2) as (s, coordinator), transactional(s) as producer:
        gate = trio.Event()

        async def late(request: AddPartitionsToTxnRequest) -> Any:
            await gate.wait()
            return coordinator.answer(request, 3)

        s.broker.script(AddPartitionsToTxnRequest, late)
        async with producer.transaction():
            await producer.send("orders", b"a", partition=0)
            await s.broker.wait_for(AddPartitionsToTxnRequest)
            await trio.sleep(1)
            assert not s.produced
            gate.set()
        assert coordinator.committed == {ORDERS: [b"a"]}


@simulated
async def test_produce_is_marked_as_transactional() -> None:
    for level, versions in ((1, {11}), (2, {12, 13})):
        async with coordinated(level) as (s, _), transactional(s) as producer:
            for _ in range(8):  # the last requests are encoded from a template
                async with producer.transaction():
                    await producer.send("orders", b"a")
            assert {request.transactional_id for request in s.produced} == {"billing-1"}
            used = {header.api_version for header in s.broker.headers if header.api_key == 0}
            assert used and used <= versions


# ---------------------------------------------------------------- wrong use


@simulated
async def test_sends_outside_of_a_transaction_are_refused() -> None:
    async with coordinated() as (s, _), transactional(s) as producer:

        async def expect_refusal() -> None:
            with pytest.raises(IllegalStateError, match="outside of a transaction"):
                await producer.send("orders", b"a")
            with pytest.raises(IllegalStateError, match="outside of a transaction"):
                producer.send_nowait("orders", b"a")
            with pytest.raises(IllegalStateError, match="outside of a transaction"):
                await producer.send_many("orders", [b"a", b"b"])

        await expect_refusal()
        stream = await producer.bind("orders", 0)
        async with producer.transaction():
            await producer.send("orders", b"in")
            await stream.send(b"too")
        await expect_refusal()
        with pytest.raises(IllegalStateError, match="outside of a transaction"):
            await stream.send(b"a")
        assert s.cluster.values("orders") == [b"in", b"too"]


@simulated
async def test_second_transaction_at_the_same_time_is_refused() -> None:
    async with coordinated() as (s, coordinator), transactional(s) as producer:
        async with producer.transaction():
            await producer.send("orders", b"a")
            with pytest.raises(IllegalStateError, match="a transaction is open"):
                async with producer.transaction():
                    pass
        assert coordinator.ends == [True], "the first transaction is not affected"


@simulated
async def test_transaction_can_be_used_once() -> None:
    async with coordinated() as (s, _), transactional(s) as producer:
        transaction = producer.transaction()
        async with transaction:
            pass
        for call in (transaction.begin, transaction.commit, transaction.abort):
            with pytest.raises(IllegalStateError):
                await call()


@simulated
async def test_producer_without_transactional_id_has_no_transactions() -> None:
    async with scripted() as s, s.producer() as producer:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            producer.transaction()
        with pytest.raises(IllegalStateError, match="transactional_id"):
            await producer.init_transactions()


@pytest.mark.parametrize(
    "options",
    [{"acks": 1}, {"retries": 0}, {"enable_idempotence": False}, {"max_in_flight_requests_per_connection": 6}],
)
def test_options_that_exclude_idempotence_exclude_transactions(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="transactional_id"):
        triokafka.Producer(transactional_id="t", **options)


# ---------------------------------------------------------------- failures


@LEVELS
@simulated
async def test_failed_record_aborts_the_transaction_and_the_next_one_works(level: int) -> None:
    async with coordinated(level) as (s, coordinator), transactional(s, linger_ms=0) as producer:
        async with producer.transaction():
            await producer.send("orders", b"before")
        s.broker.script(ProduceRequest, s.broker.refuse(87))
        with pytest.raises(TransactionAbortedError) as raised:
            async with producer.transaction():
                await producer.send("orders", b"bad")
        assert "InvalidRecordError" in repr(raised.value.__cause__)
        async with producer.transaction():
            await producer.send("orders", b"after")
        assert coordinator.committed == {ORDERS: [b"before", b"after"]}
        assert memory_is_whole(producer)


@simulated
async def test_error_of_sends_after_a_failure_requires_an_abort() -> None:
    async with coordinated() as (s, _), transactional(s, linger_ms=0) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(87))
        transaction = producer.transaction()
        await transaction.begin()
        delivery = await producer.send("orders", b"bad")
        with pytest.raises(triokafka.KafkaError):
            await delivery
        with pytest.raises(TransactionAbortableError):
            await producer.send("orders", b"more")
        with pytest.raises(TransactionAbortableError):
            await transaction.commit()
        await transaction.abort()
        async with producer.transaction():
            await producer.send("orders", b"good")


@LEVELS
@simulated
async def test_newer_producer_fences_the_older_one(level: int) -> None:
    async with coordinated(level) as (s, coordinator), transactional(s) as old, transactional(s) as new:
        async with old.transaction():
            await old.send("orders", b"old")
        await new.init_transactions()
        with pytest.raises(ProducerFencedError):
            async with old.transaction():
                await old.send("orders", b"zombie")
        with pytest.raises(ProducerFencedError):
            old.transaction() and await old.send("orders", b"zombie")
        async with new.transaction():
            await new.send("orders", b"new")
        assert coordinator.committed == {ORDERS: [b"old", b"new"]}


@LEVELS
@simulated
async def test_lost_responses_of_any_request_lose_and_duplicate_no_record(level: int) -> None:
    for lost in (*REQUESTS, ProduceRequest):
        for how in (CLOSE, CLOSE_AFTER):
            if lost in (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest) and level == 2:
                continue
            async with coordinated(level) as (s, coordinator), transactional(s) as producer:
                s.broker.script(lost, how)
                async with producer.transaction() as transaction:
                    await producer.send("orders", b"a")
                    await transaction.send_offsets(offsets={ORDERS: 1}, group="billing")
                async with producer.transaction():
                    await producer.send("orders", b"b")
                assert coordinator.committed == {ORDERS: [b"a", b"b"]}, (lost, how is CLOSE)
                assert coordinator.offsets == {"billing": {ORDERS: 1}}


@simulated
async def test_commit_without_a_response_is_repeated() -> None:
    async with coordinated() as (s, coordinator), transactional(s, max_block_ms=1_000) as producer:
        s.broker.script(EndTxnRequest, SILENCE)
        transaction = producer.transaction()
        await transaction.begin()
        await producer.send("orders", b"a")
        with pytest.raises(KafkaTimeoutError, match="max_block_ms"):
            await transaction.commit()
        assert transaction.committed is None
        s.broker.cut()
        async with producer.transaction():
            await producer.send("orders", b"b")
        assert transaction.committed is None or transaction.committed is True
        assert coordinator.committed == {ORDERS: [b"a", b"b"]}


@simulated
async def test_send_to_an_unknown_topic_raises_and_the_transaction_aborts() -> None:
    async with coordinated() as (s, coordinator), transactional(s, max_block_ms=500) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            async with producer.transaction():
                await producer.send("nowhere", b"a")
        async with producer.transaction():
            await producer.send("orders", b"b")
        assert coordinator.committed == {ORDERS: [b"b"]}


# ---------------------------------------------------------------- leaving and cancelling


@LEVELS
@simulated
async def test_leaving_the_producers_block_aborts_an_open_transaction(level: int) -> None:
    async with coordinated(level) as (s, coordinator):
        async with transactional(s) as producer:
            await producer.transaction().begin()
            await (await producer.send("orders", b"a"))
        assert coordinator.ends == [False]
        assert not coordinator.open("billing-1")


@LEVELS
@simulated
async def test_transaction_cancelled_at_any_checkpoint_is_committed_or_aborted_as_a_whole(level: int) -> None:
    async with coordinated(level, orders=2) as (s, coordinator), transactional(s) as producer:
        attempt = 0
        transaction = producer.transaction()

        async def work() -> None:
            nonlocal attempt, transaction
            attempt += 1
            transaction = producer.transaction()
            async with transaction:
                for partition in range(2):
                    await producer.send("orders", b"%d" % attempt, partition=partition)
                await transaction.send_offsets(offsets={ORDERS: attempt}, group="billing")

        async def check() -> None:
            committed = [coordinator.committed.get(TopicPartition("orders", n), []) for n in range(2)]
            assert committed[0] == committed[1]
            mine = b"%d" % attempt in committed[0]
            assert mine == (transaction.committed is True)
            assert (coordinator.offsets.get("billing", {}).get(ORDERS) == attempt) == mine

        _, cancelled = await cancelled_at_each_checkpoint(work, check)
        await check()
        assert transaction.committed is True
        assert cancelled > 5
        assert memory_is_whole(producer)


@simulated
async def test_abort_of_a_cancelled_block_is_bounded() -> None:
    async with coordinated() as (s, _), transactional(s, close_timeout_ms=2_000, request_timeout_ms=60_000) as producer:
        s.broker.script(EndTxnRequest, SILENCE)
        started = trio.current_time()
        with trio.move_on_after(1):
            async with producer.transaction():
                await (await producer.send("orders", b"a"))
                await trio.sleep_forever()
        assert trio.current_time() - started == pytest.approx(3, abs=0.1)
        s.broker.cut()


@simulated
async def test_cancelled_wait_for_offsets_keeps_them_in_the_transaction() -> None:
    async with coordinated() as (s, coordinator), transactional(s) as producer:
        s.broker.script(TxnOffsetCommitRequest, CLOSE)
        async with producer.transaction() as transaction:
            with trio.move_on_after(0.01):
                await transaction.send_offsets(offsets={ORDERS: 7}, group="billing")
        assert coordinator.offsets == {"billing": {ORDERS: 7}}


@simulated
async def test_cancelled_initialization_continues() -> None:
    async with coordinated() as (s, _), transactional(s) as producer:

        async def init() -> None:
            await producer.init_transactions()

        async def check() -> None:
            pass

        await cancelled_at_each_checkpoint(init, check)
        assert len(s.broker.seen(InitProducerIdRequest)) == 1
