"""Transactions on a real broker: the SDK, the blocking producer, the admin client, the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio
from click.testing import CliRunner, Result

import triokafka
from triokafka.blocking import KafkaConsumer, KafkaProducer
from triokafka.blocking.errors import IllegalStateError as BlockingIllegalStateError
from triokafka.blocking.errors import ProducerFencedError as BlockingProducerFencedError
from triokafka.cli.app import commands
from triokafka.client.admin import NewTopic
from triokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionalIdNotFoundError,
)
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


async def create(bootstrap: str, topic: str, partitions: int = 3) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions)])


async def read(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[bytes]:
    """Return all records that a consumer receives, up to the reported end offset."""
    values: list[bytes] = []
    async with triokafka.Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
    ) as consumer:
        partitions = [TopicPartition(topic, n) for n in await consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for records in (await consumer.poll(timeout_ms=500)).values():
                values += [record.value for record in records if record.value is not None]
    return sorted(values)


def run(bootstrap: str, *words: str) -> Result:
    return CliRunner().invoke(commands, ["transactions", *words, "-b", bootstrap], catch_exceptions=False)


# ---------------------------------------------------------------- the SDK


async def test_committed_records_are_read_and_aborted_ones_are_not(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic)
    async with triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for number in range(6):
            try:
                async with producer.transaction():
                    for partition in range(3):
                        await producer.send(topic, b"%d" % number, partition=partition)
                    await producer.flush()
                    if number % 2:
                        raise LookupError
            except LookupError:
                pass
    assert await read(bootstrap, topic) == [b"%d" % n for n in (0, 0, 0, 2, 2, 2, 4, 4, 4)]
    assert len(await read(bootstrap, topic, "read_uncommitted")) == 18


async def test_open_transaction_is_not_read_until_it_is_committed(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, 1)
    async with triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        async with producer.transaction():
            await (await producer.send(topic, b"a"))
            assert await read(bootstrap, topic) == []
            assert await read(bootstrap, topic, "read_uncommitted") == [b"a"]
        assert await read(bootstrap, topic) == [b"a"]


async def test_restarted_producer_aborts_the_open_transaction_of_the_older_one_and_fences_it(
    bootstrap: str, topic: str
) -> None:
    await create(bootstrap, topic, 1)
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as old,
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as new,
    ):
        with pytest.raises(ProducerFencedError):
            async with old.transaction():
                await (await old.send(topic, b"old"))
                await new.init_transactions()
        async with new.transaction():
            await new.send(topic, b"new")
    assert await read(bootstrap, topic) == [b"new"]


async def test_offsets_are_committed_with_the_transaction_only(bootstrap: str, topic: str, group: str) -> None:
    await create(bootstrap, topic, 1)
    async with triokafka.Producer(bootstrap_servers=bootstrap) as plain:
        for number in range(4):
            await (await plain.send(topic, b"in-%d" % number))
    output = f"{topic}-out"
    await create(bootstrap, output, 1)
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        triokafka.Consumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=2,
        ) as consumer,
    ):
        partition = TopicPartition(topic, 0)
        taken = 0
        for aborts in (True, False):
            records: list[triokafka.ConsumerRecord] = []
            while len(records) < 2:
                for found in (await consumer.poll(timeout_ms=1_000)).values():
                    records += found
            taken += len(records)
            try:
                async with producer.transaction() as transaction:
                    for record in records:
                        await producer.send(output, record.value)
                    await transaction.send_offsets(consumer)
                    if aborts:
                        raise LookupError
            except LookupError:
                assert await consumer.committed(partition) is None
        committed = await consumer.committed(partition)
        assert committed is not None and committed.offset == taken == 4
    assert await read(bootstrap, output) == [b"in-2", b"in-3"]


async def test_offsets_of_a_former_member_abort_the_transaction(bootstrap: str, topic: str, group: str) -> None:
    await create(bootstrap, topic, 1)
    async with triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        with pytest.raises(CommitFailedError):
            async with producer.transaction() as transaction:
                await producer.send(topic, b"zombie")
                await transaction.send_offsets(
                    offsets={TopicPartition(topic, 0): 1}, group=ConsumerGroupMetadata(group, 7, "nobody", None)
                )
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert await read(bootstrap, topic) == [b"next"]


async def test_consumer_with_auto_commit_is_refused(bootstrap: str, topic: str, group: str) -> None:
    await create(bootstrap, topic, 1)
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
        triokafka.Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer,
    ):
        with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(consumer)


async def test_coordinator_aborts_a_transaction_that_takes_too_long(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, 1)
    async with (
        triokafka.Producer(
            bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=1_000
        ) as producer,
        triokafka.AdminClient(bootstrap_servers=bootstrap) as admin,
    ):
        with pytest.raises((ProducerFencedError, TransactionAbortedError)):
            async with producer.transaction():
                await (await producer.send(topic, b"late"))
                with trio.fail_after(30):
                    while (await admin.describe_transactions([topic]))[topic].state != "CompleteAbort":
                        await trio.sleep(0.2)
                await producer.send(topic, b"later")
    assert await read(bootstrap, topic) == []


async def test_timeout_above_the_brokers_maximum_fails_the_producer(bootstrap: str, topic: str) -> None:
    async with triokafka.Producer(
        bootstrap_servers=bootstrap, transactional_id=topic, transaction_timeout_ms=2**31 - 1
    ) as producer:
        with pytest.raises(InvalidTransactionTimeoutError):
            await producer.init_transactions()


# ---------------------------------------------------------------- the blocking producer


def test_blocking_producer_commits_and_aborts(bootstrap: str, topic: str, group: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a")
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(3)}, group)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"b")
        producer.abort_transaction()
        producer.begin_transaction()
        future = producer.send(topic, b"c")
        producer.commit_transaction()
        assert future.get(timeout=1).offset > 0, "records are acknowledged when the commit returns"
        producer.begin_transaction()
        producer.send(topic, b"open")
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=2_000,
    ) as consumer:
        assert [record.value for record in consumer] == [b"a", b"c"], "leaving the block aborts an open transaction"
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) == 3


def test_blocking_producer_refuses_calls_in_the_wrong_order(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(BlockingIllegalStateError):
                call()
        with pytest.raises(BlockingIllegalStateError):
            producer.send(topic, b"a")
        producer.init_transactions()
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(BlockingIllegalStateError):
            producer.begin_transaction()
        producer.send(topic, b"a").get(timeout=60)
        producer.commit_transaction()
        with pytest.raises(BlockingIllegalStateError):
            producer.send(topic, b"a")


def test_blocking_producer_is_fenced_by_a_newer_one(bootstrap: str, topic: str) -> None:
    with (
        KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as old,
        KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"a").get(timeout=60)
        new.init_transactions()
        with pytest.raises(BlockingProducerFencedError):
            old.commit_transaction()


# ---------------------------------------------------------------- the admin client and the command line


async def test_admin_client_describes_an_open_transaction_and_aborts_it(bootstrap: str, topic: str) -> None:
    await create(bootstrap, topic, 2)
    partition = TopicPartition(topic, 1)
    async with (
        triokafka.AdminClient(bootstrap_servers=bootstrap) as admin,
        triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
    ):
        with pytest.raises(ProducerFencedError):
            async with producer.transaction():
                await (await producer.send(topic, b"a", partition=1))
                described = (await admin.describe_transactions([topic]))[topic]
                assert (described.state, described.partitions) == ("Ongoing", (partition,))
                assert described.start_ms is not None and described.timeout_ms == 60_000
                listed = await admin.list_transactions(states=["Ongoing"], producer_ids=[described.producer_id])
                assert [one.transactional_id for broker in listed for one in listed[broker]] == [topic]
                (remembered,) = (await admin.describe_producers([partition]))[partition]
                assert remembered.current_transaction_start_offset == 0
                assert await admin.find_hanging_transactions([partition]) == [], (
                    "the transaction is too young to count as hanging"
                )
                assert await admin.find_hanging_transactions([partition], max_transaction_timeout_ms=-60_000) == [], (
                    "the coordinator will abort the transaction"
                )
                await admin.force_terminate_transaction(topic)
        assert (await admin.describe_transactions([topic]))[topic].partitions == ()
        with pytest.raises(TransactionalIdNotFoundError):
            await admin.force_terminate_transaction(f"{topic}-unknown")
        fenced = (await admin.fence_producers([f"{topic}-new"]))[f"{topic}-new"]
        assert fenced.producer_id >= 0
    assert await read(bootstrap, topic) == []


def test_command_line_lists_describes_and_terminates(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0).get(timeout=60)

        def table(*words: str) -> Sequence[dict[str, object]]:
            result = run(bootstrap, *words, "--json")
            assert result.exit_code == 0, result.output
            found: list[dict[str, object]] = json.loads(result.stdout)
            return found

        (mine,) = [one for one in table("list") if one["transactional_id"] == topic]
        assert mine["state"] == "Ongoing"
        (described,) = table("describe", "--transactional-id", topic)
        assert described["partitions"] == [f"{topic}-0"]
        (remembered,) = table("describe-producers", "--topic", topic, "--partition", "0")
        assert (remembered["producer_id"], remembered["transaction_start_offset"]) == (mine["producer_id"], 0)
        assert run(bootstrap, "find-hanging", "--topic", topic).exit_code == 0
        unknown = run(bootstrap, "describe", "--transactional-id", "no-such-id")
        assert unknown.stdout == "" and "no-such-id" in unknown.stderr, "an empty table has no header"
        refused = run(bootstrap, "abort", "--topic", topic, "--partition", "0", "--start-offset", "77")
        assert refused.exit_code == 1 and "no open transaction that begins at offset 77" in refused.output
        ended = run(bootstrap, "force-terminate", "--transactional-id", topic)
        assert ended.exit_code == 0 and topic in ended.output
        with pytest.raises(BlockingProducerFencedError):
            producer.commit_transaction()


@pytest.mark.parametrize(
    "words",
    [
        ["abort", "--topic", "t", "--partition", "0"],
        ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
        ["abort", "--topic", "t", "--partition", "0", "--start-offset", "1", "--producer-id", "1"],
        ["find-hanging", "--partition", "0"],
    ],
)
def test_options_that_do_not_fit_together_are_usage_errors(words: list[str]) -> None:
    assert run("localhost:1", *words).exit_code == 2


def test_abort_command_ends_an_open_transaction_in_one_partition(bootstrap: str, topic: str) -> None:
    """This is the remedy for a transaction that find-hanging reports.

    Here an open transaction stands in for a hanging one, which a client cannot produce.
    """
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"a", partition=0).get(timeout=60)
        done = run(bootstrap, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert done.exit_code == 0, done.output
        found = run(bootstrap, "describe-producers", "--topic", topic, "--partition", "0", "--json")
        assert [one["transaction_start_offset"] for one in json.loads(found.stdout)] == [None]
        run(bootstrap, "force-terminate", "--transactional-id", topic)
