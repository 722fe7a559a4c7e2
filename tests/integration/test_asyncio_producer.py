"""`triokafka.asyncio.AIOKafkaProducer`, against a broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest

from tests.support.asyncio_programs import cancelled_at, run
from triokafka.asyncio import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerStoppedError,
    IllegalOperation,
    TopicPartition,
)
from triokafka.asyncio.errors import (
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    ProducerClosed,
    ProducerFenced,
)
from triokafka.blocking import KafkaAdminClient
from triokafka.blocking.admin import ACL, ACLOperation, ACLPermissionType, NewTopic, ResourcePattern, ResourceType
from triokafka.testing.blocking import running_broker


async def read(bootstrap: str, topic: str, count: int, **options: Any) -> list[Any]:
    """Return the first records of a topic."""
    records: list[Any] = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", **options
    ) as consumer:
        async for record in consumer:
            records.append(record)
            if len(records) == count:
                break
    return records


def test_batch_without_partition_goes_to_any(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            batch = producer.create_batch()
            for value in (b"one", b"two"):
                assert batch.append(key=None, value=value, timestamp=None) is not None
            sending = await producer.send_batch(batch, topic, partition=None)  # type: ignore[arg-type]
            assert (await sending).offset == 0
        assert [record.value for record in await read(bootstrap, topic, 2)] == [b"one", b"two"]

    run(program())


def test_class_can_be_patched_while_a_producer_exists(bootstrap: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with mock.patch.object(AIOKafkaProducer, "send") as send:
                await producer.send("orders", b"x")
            send.assert_awaited_once_with("orders", b"x")

    run(program())


def test_send_and_wait_returns_the_records_offset(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            first = await producer.send_and_wait(topic, b"one", timestamp_ms=1234)
            second = await producer.send_and_wait(topic, b"two", key=b"k", headers=[("h", b"v")])
        assert first[:5] == (topic, 0, TopicPartition(topic, 0), 0, 1234)
        assert (first.timestamp_type, second.offset) == (0, 1)
        one, two = await read(bootstrap, topic, 2)
        assert (one.value, one.key, one.timestamp, one.headers) == (b"one", None, 1234, ())
        assert (two.value, two.key, two.headers) == (b"two", b"k", (("h", b"v"),))

    run(program())


def test_uvloop_runs_the_same_program(bootstrap: str, topic: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            futures = [await producer.send(topic, b"%d" % number) for number in range(3000)]
            offsets = [(await future).offset for future in futures]
        assert offsets == list(range(3000))
        assert [record.value for record in await read(bootstrap, topic, 3000)] == [b"%d" % n for n in range(3000)]

    run(program(), loop=uvloop.new_event_loop)


def test_records_of_a_partition_keep_the_order_of_their_sends(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            keys = [b"a", None, b"b"]
            futures = [
                await producer.send(topic, b"%d" % number, key=keys[number % 3], timestamp_ms=number or None)
                for number in range(5000)
            ]
            await producer.flush()
            assert all(future.done() for future in futures)
        await producer.flush()
        assert [record.value for record in await read(bootstrap, topic, 5000)] == [b"%d" % n for n in range(5000)]

    run(program())


def test_send_and_wait_calls_a_send_that_was_replaced(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instrumentation of OpenTelemetry replaces that of the class, and mocks that of a producer."""

    async def program() -> None:
        sent: list[bytes] = []
        original = AIOKafkaProducer.send

        async def send(producer: AIOKafkaProducer, name: str, value: bytes, *rest: Any) -> Any:
            sent.append(value)
            return await original(producer, name, value, *rest)

        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"before")
            await producer.send_and_wait(topic, b"alone")
            monkeypatch.setattr(AIOKafkaProducer, "send", send)
            await producer.send_and_wait(topic, b"wrapped")
            await producer.send_and_wait(topic, b"again")
            assert sent == [b"wrapped", b"again"]

    run(program())


def test_frameworks_find_the_partitioner_and_the_metadata(bootstrap: str, topic: str) -> None:
    """kstreams chooses the partition of a batch with them, and stops a producer that it has not started.

    The instrumentation of OpenTelemetry reads the client's name and brokers.
    """

    async def program() -> None:
        create(bootstrap, topic, 3)
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.flush()
        async with producer:
            assert producer.client._bootstrap_servers == [bootstrap]
            assert producer.client._client_id.startswith("aiokafka-producer-")
            await producer.partitions_for(topic)
            found = producer._metadata.partitions_for_topic(topic)
            available = producer._metadata.available_partitions_for_topic(topic)
            sent = await producer.send_and_wait(topic, b"x", key=b"key")
            assert producer._partitioner(b"key", sorted(found), sorted(available)) == sent.partition

    run(program())


def test_futures_of_a_producer_without_acknowledgements_resolve_to_none(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=0) as producer:
            assert await producer.send_and_wait(topic, b"x") is None

    run(program())


def test_serializers_and_partitioner_of_the_program_are_called(bootstrap: str, topic: str) -> None:
    def last(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        assert key is None or key.startswith(b"key-")
        assert all_partitions == available == [0, 1, 2]
        return all_partitions[-1]

    async def program() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            key_serializer=lambda key: None if key is None else b"key-%d" % key,
            value_serializer=lambda value: str(value).encode(),
            partitioner=last,
        ) as producer:
            metadata = await producer.send_and_wait(topic, {"a": 1}, key=7)
            assert metadata.partition == 2
            assert (await producer.send_and_wait(topic, "x", partition=1)).partition == 1
            assert await producer.partitions_for(topic) == {0, 1, 2}
            with pytest.raises(AssertionError, match="Unrecognized"):
                await producer.send(topic, "x", partition=3)

    create(bootstrap, topic, 3)
    run(program())


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    admin.close()


def test_send_refuses_records_that_are_invalid(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_request_size=1000) as producer:
            with pytest.raises(AssertionError):
                await producer.send(topic)
            with pytest.raises(TypeError):
                await producer.send(topic, "text")
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send(topic, b"x" * 1001)
            assert (await producer.send_and_wait(topic, bytearray(b"fine"))).offset == 0
            assert (
                await producer.send_and_wait(topic, b"fine", timestamp_ms=cast(Any, 1.7e12 + 0.5))
            ).timestamp == 1_700_000_000_000
        with pytest.raises(ProducerClosed):
            await producer.send(topic, b"x")
        await producer.stop()

    run(program())


def test_sends_interrupted_by_a_stop_raise_that_the_producer_was_closed(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        sends = [asyncio.create_task(producer.send_and_wait(f"unknown-{topic}", b"x")) for _ in range(20)]
        await asyncio.sleep(0)
        await producer.stop()
        for outcome in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(outcome, (ProducerClosed, tuple)), outcome

    run(program())


def test_start_raises_without_a_broker() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        async def program() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=address)
            with pytest.raises(KafkaConnectionError):
                await producer.start()
            await producer.stop()

        run(program())


def test_batch_of_the_program_is_sent_to_one_partition(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=1000) as producer:
            batch = producer.create_batch()
            count = 0
            while batch.append(timestamp=None, key=None, value=b"x" * 90) is not None:
                count += 1
            assert count == batch.record_count() > 5
            assert batch.closed() and 500 < batch.size() <= 1000
            future = await producer.send_batch(batch, topic, partition=0)
            assert (await future).offset == 0
        assert len(await read(bootstrap, topic, count)) == count

    run(program())


def test_transaction_commits_or_aborts(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            with pytest.raises(IllegalOperation):
                await producer.send(topic, b"outside")
            async with producer.transaction():
                await producer.send(topic, b"committed")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise ZeroDivisionError
            await producer.begin_transaction()
            await producer.send(topic, b"committed, too")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 5}, topic)
            await producer.commit_transaction()
        records = await read(bootstrap, topic, 2, isolation_level="read_committed", group_id=None)
        assert [record.value for record in records] == [b"committed", b"committed, too"]
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=topic) as consumer:
            assert await consumer.committed(TopicPartition(topic, 0)) == 5

    run(program())


def test_commit_after_an_error_raises_that_error(topic: str) -> None:
    """As in aiokafka: the transaction must be aborted, and the producer goes on."""

    async def program(bootstrap: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            await producer.begin_transaction()
            with pytest.raises(GroupAuthorizationFailedError):
                await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 0}, "cooks")
            with pytest.raises(GroupAuthorizationFailedError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"x")

    with running_broker(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found=True,
        auto_create_topics_enable=True,
    ) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        group = ResourcePattern(ResourceType.GROUP, "cooks")
        describe = ACL("User:*", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, group)
        assert admin.create_acls([describe])["failed"] == []
        admin.close()
        run(program(broker.bootstrap_servers))


def test_newer_producer_fences_an_older_one(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"old")
            async with (
                AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as new,
                new.transaction(),
            ):
                await new.send_and_wait(topic, b"new")
            with pytest.raises(ProducerFenced):
                await old.send_and_wait(topic, b"late")
                await old.commit_transaction()

    run(program())


def test_fenced_producer_says_so_at_every_later_call(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as old:
            await old.begin_transaction()
            await old.send_and_wait(topic, b"old")
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic):
                pass
            with pytest.raises(ProducerFenced):
                await old.commit_transaction()
            for call in (old.begin_transaction, old.commit_transaction, old.abort_transaction):
                with pytest.raises(ProducerFenced):
                    await call()
            with pytest.raises(ProducerFenced):
                await old.send(topic, b"late")

    run(program())


def test_headers_that_are_a_mapping_are_refused(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(TypeError, match="list of pairs"):
                await producer.send(topic, b"value", headers={"kind": b"late"})  # type: ignore[arg-type]

    run(program())


def test_calls_outside_of_a_loop_and_without_transactional_id_raise(bootstrap: str) -> None:
    with pytest.raises(RuntimeError, match="within an async function"):
        AIOKafkaProducer()

    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            with pytest.raises(IllegalOperation):
                await producer.begin_transaction()

    run(program())


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_client_exposes_the_readiness_of_brokers_and_the_metadata(bootstrap: str, topic: str, kind: str) -> None:
    async def program() -> None:
        create(bootstrap, topic, 2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        opened: Any = (AIOKafkaProducer if kind == "producer" else AIOKafkaConsumer)(bootstrap_servers=bootstrap)
        client = opened.client if kind == "producer" else opened._client
        with pytest.raises((ProducerClosed, ConsumerStoppedError)):
            await client.fetch_all_metadata()
        async with opened:
            node = client.get_random_node()
            assert await client.ready(node) is True
            assert await client.ready(12_345) is False
            cluster = await client.fetch_all_metadata()
            assert topic in cluster.topics()
            assert cluster.partitions_for_topic(topic) == cluster.available_partitions_for_topic(topic) == {0, 1}
            assert (
                cluster.partitions_for_topic("unknown")
                is cluster.leader_for_partition(TopicPartition("unknown", 0))
                is None
            )
            leader = cluster.leader_for_partition(first)
            assert {first} <= cluster.partitions_for_broker(leader)
            assert cluster.broker_metadata(leader) in cluster.brokers()
            assert await client.add_topic(topic) is True
            assert second in client.cluster.partitions_for_broker(client.cluster.leader_for_partition(second))
            assert await client.force_metadata_update() is True
            assert await client._wait_on_metadata(topic) == {0, 1}

    run(program())


def test_cancelled_send_leaves_the_producer_usable(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
            tasks = [asyncio.create_task(producer.send_and_wait(topic, b"%d" % number)) for number in range(10)]
            for steps in range(5):
                for _ in range(steps):
                    await asyncio.sleep(0)
                tasks[steps].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(one).__name__ for one in outcomes[5:]] == ["RecordMetadata"] * 5
            assert {type(one) for one in outcomes[:5]} == {asyncio.CancelledError}

    run(program())


TRANSACTION_CALLS: dict[str, Callable[[AIOKafkaProducer], Any]] = {
    "begin": lambda producer: producer.begin_transaction(),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}


@pytest.mark.parametrize("call", TRANSACTION_CALLS)
def test_transaction_call_that_is_cancelled_leaves_the_producer_usable(bootstrap: str, topic: str, call: str) -> None:
    async def program() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            if call != "begin":
                await producer.begin_transaction()
                await producer.send(topic, b"first")
            assert await cancelled_at(1, TRANSACTION_CALLS[call](producer))
            with pytest.raises(IllegalStateError, match="there is no open transaction to commit"):
                await producer.commit_transaction()
            async with producer.transaction():
                await producer.send(topic, b"second")
            await producer.begin_transaction()
            await producer.send(topic, b"third")
            assert await cancelled_at(1, producer.commit_transaction())  # `stop` waits for it
        records = await read(bootstrap, topic, 3 if call == "commit" else 2, isolation_level="read_committed")
        return [record.value for record in records]

    assert run(program()) == [*([b"first"] if call == "commit" else []), b"second", b"third"]
