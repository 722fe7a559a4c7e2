"""`triokafka.asyncio.AIOKafkaConsumer`, against a broker."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from typing import Any

import pytest

from tests.integration.test_asyncio_producer import create
from tests.support.asyncio_programs import run, until
from triokafka.asyncio import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerStoppedError,
    IllegalOperation,
    TopicPartition,
)
from triokafka.asyncio.consumer.asyncio_state import AsyncioState
from triokafka.asyncio.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from triokafka.testing.blocking import BlockingBroker, running_broker


async def fill(bootstrap: str, topic: str, count: int, partition: int | None = 0) -> None:
    """Write the numbers from 0 as values."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=partition)


def consumer_of(bootstrap: str, *topics: str, **options: Any) -> AIOKafkaConsumer:
    """Return a consumer that starts at the first record."""
    return AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, **{"auto_offset_reset": "earliest", **options})


def test_getone_getmany_and_async_for_share_one_position(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 20)
        async with consumer_of(bootstrap, topic) as consumer:
            partition = TopicPartition(topic, 0)
            assert consumer.assignment() == {partition}
            assert (await consumer.getone()).value == b"0"
            assert await consumer.position(partition) == 1
            some = await consumer.getmany(timeout_ms=5000, max_records=4)
            assert [record.offset for record in some[partition]] == [1, 2, 3, 4]
            async for record in consumer:
                if record.offset == 10:
                    break
            assert await consumer.position(partition) == 11
            assert (await consumer.getone(partition)).offset == 11
            rest = await consumer.getmany(partition)
            assert [record.offset for record in rest[partition]] == list(range(12, 20))
            assert await consumer.getmany(timeout_ms=10) == {}
            assert consumer.highwater(partition) == 20
            assert consumer.last_stable_offset(partition) == -1
            assert consumer.partitions_for_topic(topic) == {0}

    run(program())


def test_seek_drops_buffered_and_in_flight_records(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 50)
        async with consumer_of(bootstrap, topic) as consumer:
            partition = TopicPartition(topic, 0)
            await consumer.getone()
            for offset in (40, 3, 17):
                consumer.seek(partition, offset)
                assert await consumer.position(partition) == offset
                assert (await consumer.getone()).offset == offset
            assert await consumer.seek_to_beginning(partition)
            assert (await consumer.getone()).offset == 0
            assert await consumer.seek_to_end()
            assert await consumer.position(partition) == 50
            with pytest.raises(IllegalStateError):
                consumer.seek(TopicPartition(topic, 1), 0)
            with pytest.raises(ValueError):
                consumer.seek(partition, -1)

    run(program())


def test_position_and_commit_after_a_change_of_the_subscription_are_those_of_the_new_one(
    bootstrap: str, topic: str
) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 10)
        partition = TopicPartition(topic, 0)
        for number in range(3):
            group = f"{topic}-{number}"
            async with consumer_of(bootstrap, topic, group_id=group, enable_auto_commit=False) as consumer:
                consumer.unsubscribe()
                consumer.assign([partition])
                assert [(await consumer.getone()).offset for _ in range(10)] == list(range(10))
                assert await consumer.position(partition) == 10
                await consumer.commit()
                assert await consumer.committed(partition) == 10

    run(program())


def test_partitions_that_are_assigned_again_begin_again(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 10)
        partition = TopicPartition(topic, 0)
        async with consumer_of(bootstrap) as consumer:
            consumer.assign([partition])
            assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
            consumer.pause(partition)
            consumer.assign([partition])
            assert consumer.paused() == set()
            assert (await consumer.getone()).offset == 0
            consumer.assign([partition])
            consumer.seek(partition, 5)
            assert (await consumer.getone()).offset == 5
        for group in (None, topic):
            async with consumer_of(bootstrap, topic, group_id=group, enable_auto_commit=False) as consumer:
                assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
                consumer.subscribe([topic])
                assert await consumer.getmany(timeout_ms=0) == {}
                assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]

    run(program())


def test_assignment_does_not_become_empty_meanwhile(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`position` and `seek` after `assign` would raise then."""
    seen = []

    class Watched(AsyncioState):
        def set_assignment(
            self, assignment: frozenset[TopicPartition], plan: int, listener_follows: bool = False
        ) -> None:
            seen.append(assignment)
            super().set_assignment(assignment, plan, listener_follows)

    async def program() -> None:
        create(bootstrap, topic, 2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with consumer_of(bootstrap) as consumer:
            for partitions in ([first], [first, second], [second]):
                consumer.assign(partitions)
                assert await consumer.position(second if second in partitions else first) == 0
                assert seen[-1] == consumer.assignment() == set(partitions)
            assert frozenset() not in seen

    monkeypatch.setattr("triokafka.asyncio.consumer.consumer.AsyncioState", Watched)
    run(program())


def test_paused_partition_returns_nothing_until_resumed(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        for number in (0, 1):
            await fill(bootstrap, topic, 5, number)
        zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with consumer_of(bootstrap) as consumer:
            consumer.assign([zero, one])
            consumer.pause(zero)
            assert consumer.paused() == {zero}
            assert {(await consumer.getone()).partition for _ in range(5)} == {1}
            assert await consumer.getmany(timeout_ms=50) == {}
            consumer.resume(zero)
            assert [(await consumer.getone(zero)).offset for _ in range(5)] == list(range(5))

    create(bootstrap, topic, 2)
    run(program())


def test_group_member_continues_at_the_committed_offset(bootstrap: str, topic: str, group: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 30)
        partition = TopicPartition(topic, 0)
        async with consumer_of(bootstrap, topic, group_id=group, enable_auto_commit=False) as consumer:
            for _ in range(7):
                await consumer.getone()
            await consumer.commit()
            assert await consumer.committed(partition) == 7
            await consumer.getone()
            await consumer.commit({partition: (9, "text")})
            with pytest.raises(IllegalStateError):
                await consumer.commit({TopicPartition("other", 0): 1})
            assert await consumer.seek_to_committed() == {partition: 9}
            assert (await consumer.getone()).offset == 9
        async with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert (await consumer.getone()).offset == 9  # and auto-commit commits it on leaving
        async with consumer_of(bootstrap, topic, group_id=group) as consumer:
            assert (await consumer.getone()).offset == 10

    run(program())


class Listener(ConsumerRebalanceListener):
    """Commits and seeks from coroutines."""

    def __init__(self) -> None:
        self.consumer: AIOKafkaConsumer | None = None
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.committed: dict[TopicPartition, int | None] = {}

    async def on_partitions_revoked(self, revoked: Any) -> None:
        assert self.consumer is not None
        self.calls.append(("revoked", set(revoked)))
        if revoked:
            await self.consumer.commit()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        assert self.consumer is not None
        self.calls.append(("assigned", set(assigned)))
        for partition in assigned:
            self.committed[partition] = await self.consumer.committed(partition)
            await self.consumer.position(partition)


def test_listener_of_a_later_subscription_is_called(bootstrap: str, topic: str) -> None:
    class Listener(ConsumerRebalanceListener):
        def __init__(self) -> None:
            self.assigned: list[set[TopicPartition]] = []

        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            self.assigned.append(set(assigned))

    async def program() -> None:
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer:
            listener = Listener()
            consumer.subscribe([topic], listener=listener)
            await until(lambda: listener.assigned == [{TopicPartition(topic, 0)}])

    run(program())


def test_second_member_gets_partitions_and_listeners_may_be_coroutines(bootstrap: str, topic: str, group: str) -> None:
    async def program() -> None:
        both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        for number in (0, 1):
            await fill(bootstrap, topic, 100, number)
        listener = Listener()
        first = listener.consumer = consumer_of(bootstrap, group_id=group)
        first.subscribe([topic], listener=listener)
        async with first:
            assert first.assignment() == both
            assert listener.committed.keys() == both  # `start` waits for the listener, too
            async with consumer_of(bootstrap, topic, group_id=group) as second:
                # The first member rejoins in the background: the program does not poll meanwhile.
                await until(lambda: len(first.assignment()) == 1 and len(second.assignment()) == 1)
                assert first.assignment() | second.assignment() == both
                (mine,) = first.assignment()
                assert (await first.getone()).partition == mine.partition
        assert ("revoked", both) in listener.calls
        assert listener.calls[-1] == ("assigned", {mine}) or ("assigned", {mine}) in listener.calls
        assert set(listener.committed) == both

    create(bootstrap, topic, 2)
    run(program())


def test_stop_ends_waiting_calls_and_iterations(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 1)
        consumer = consumer_of(bootstrap, topic)
        await consumer.start()

        got = []

        async def iterate() -> None:
            async for record in consumer:
                got.append(record.value)

        async def get_one() -> None:
            got.append((await consumer.getone()).value)

        calls = [asyncio.create_task(call()) for call in (iterate, get_one, get_one)]
        await until(lambda: got == [b"0"])  # one call has the only record, the others wait
        await consumer.stop()
        iteration, *waiting = await asyncio.gather(*calls, return_exceptions=True)
        assert iteration is None
        ended = [result for result in waiting if result is not None]
        assert ended
        assert all(isinstance(result, ConsumerStoppedError) for result in ended)
        assert got == [b"0"]
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()
        with pytest.raises(ConsumerStoppedError):
            consumer.__aiter__()
        await consumer.stop()

    run(program())


def test_cancelled_getone_loses_no_record(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with (
            consumer_of(bootstrap, topic) as consumer,
            AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        ):
            got = []
            for number in range(30):
                call = asyncio.create_task(consumer.getone())
                await producer.send(topic, b"%d" % number)
                await asyncio.sleep(0.001 * (number % 5))
                call.cancel()
                try:
                    got.append((await call).offset)
                except asyncio.CancelledError:
                    pass
            while len(got) < 30:
                got.append((await consumer.getone()).offset)
            assert got == list(range(30))

    create(bootstrap, topic, 1)
    run(program())


@pytest.mark.timeout(60)
def test_member_stays_in_its_group_during_a_slow_question(caplog: pytest.LogCaptureFixture) -> None:
    """The consumer polls nothing meanwhile, and left the group after ``rebalance_timeout_ms``."""

    async def program(broker: BlockingBroker) -> None:
        await fill(broker.bootstrap_servers, "orders", 1)
        options = {"group_id": "g", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000}
        async with consumer_of(broker.bootstrap_servers, "orders", **options) as consumer:
            await consumer.getone()
            member = consumer._session.member_id
            broker.delay_replies("ListOffsets", delay_ms=2_500)
            assert await consumer.end_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 1}
            await consumer.commit()
            assert consumer._session.member_id == member
        assert "left group" not in caplog.text

    with running_broker(auto_create_topics_enable=True) as broker:
        run(program(broker))


@pytest.mark.timeout(60)
def test_question_about_topics_ends_when_no_broker_answers() -> None:
    """The call once waited for a day; aiokafka's ends with ``request_timeout_ms``, too."""

    async def program(broker: BlockingBroker) -> None:
        async with consumer_of(broker.bootstrap_servers, request_timeout_ms=300, fetch_max_wait_ms=50) as consumer:
            broker.drop_replies("Metadata", times=-1)
            with pytest.raises(KafkaTimeoutError, match="has not answered"):
                await consumer.topics()

    with running_broker() as broker:
        run(program(broker))


def test_offset_lookups_return_numbers(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for at in (1000, 2000, 3000):
                await producer.send_and_wait(topic, b"x", timestamp_ms=at)
        async with consumer_of(bootstrap) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 3}
            assert await consumer.offsets_for_times({partition: 1500}) == {partition: (1, 2000)}
            assert await consumer.offsets_for_times({partition: 9999}) == {partition: None}
            assert topic in await consumer.topics()
            with pytest.raises(IllegalOperation):
                await consumer.commit()
            with pytest.raises(IllegalOperation):
                await consumer.committed(partition)

    run(program())


def test_calls_before_the_start_raise_and_an_assignment_is_known_at_once(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 1)
        partition = TopicPartition(topic, 0)
        consumer = consumer_of(bootstrap)
        consumer.assign([partition])
        for call in (consumer.getone, consumer.getmany, consumer.topics, lambda: consumer.end_offsets([partition])):
            with pytest.raises(IllegalStateError, match="not started"):
                await call()
        async with consumer:
            assert await consumer.getone()
            consumer.unsubscribe()
            consumer.assign([partition, TopicPartition(topic, 1)])
            assert consumer.highwater(TopicPartition(topic, 1)) is None
            assert consumer.last_poll_timestamp(TopicPartition(topic, 1)) is None

    run(program())


def test_offset_out_of_range_is_raised_without_a_reset_policy(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 3)
        partition = TopicPartition(topic, 0)
        async with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 100)
            with pytest.raises(OffsetOutOfRangeError) as raised:
                await consumer.getone()
            assert raised.value.args == ({partition: 100},)  # programs read the partitions from the arguments
            consumer.seek(partition, 1)
            assert (await consumer.getone()).offset == 1

    run(program())


def test_error_of_a_position_is_raised_by_calls_for_its_partition_only(bootstrap: str, topic: str, group: str) -> None:
    async def program() -> None:
        create(bootstrap, topic, 3)
        await fill(bootstrap, topic, 2)
        first, second, third = (TopicPartition(topic, number) for number in range(3))
        async with consumer_of(bootstrap, topic, group_id=group, auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffsetForPartitionError) as raised:
                await consumer.getmany(timeout_ms=60_000)
            assert raised.value.args[0] in (first, second, third)
            consumer.seek(first, 1)
            assert (await consumer.getone(first)).value == b"1"
            assert await consumer.getmany(first, timeout_ms=10) == {}
            for partition in (second, third, second):
                with pytest.raises(NoOffsetForPartitionError) as raised:
                    await consumer.getone(partition)
                assert raised.value.args == (partition,)
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                await producer.send_and_wait(topic, b"2", partition=0)
            assert (await consumer.getone(first)).value == b"2"

    run(program())


def test_seek_during_a_poll_makes_its_error_void(bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll cannot be cancelled any more, and raises the error that it has found before the seek."""

    async def program() -> None:
        await fill(bootstrap, topic, 2)
        partition, loop = TopicPartition(topic, 0), asyncio.get_running_loop()
        async with consumer_of(bootstrap, auto_offset_reset="none") as consumer:
            session = consumer._session
            poll = session.consumer.poll

            async def first_half_of_a_seek() -> int:
                consumer._local.note_seek()
                return consumer._begin_epoch(partition)

            async def poll_during_a_seek(**options: Any) -> Any:
                try:
                    return await poll(**options)
                except NoOffsetForPartitionError:
                    epoch = asyncio.run_coroutine_threadsafe(first_half_of_a_seek(), loop).result(60)
                    session.seek(partition, 1, epoch)
                    raise

            monkeypatch.setattr(session.consumer, "poll", poll_during_a_seek)
            consumer.assign([partition])
            assert (await consumer.getone()).value == b"1"

    run(program())


def test_getmany_returns_at_most_one_fetch(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        partition, values = TopicPartition(topic, 0), [b"small", b"x" * 50_000, b"another"]
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)
        async with consumer_of(bootstrap, max_partition_fetch_bytes=4_000) as consumer:
            consumer.assign([partition])
            await until(lambda: partition in consumer._buffer.partitions())
            await until(lambda: consumer._buffer.positions()[partition].offset == 0 and consumer._local.received >= 3)
            for value in values:
                (record,) = (await consumer.getmany(timeout_ms=60_000))[partition]
                assert record.value == value

    run(program())


def test_deserializers_run_in_the_loop_and_their_error_keeps_the_position(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 5)
        broken = True

        def number(value: bytes) -> int:
            asyncio.get_running_loop()
            if broken and value == b"2":
                raise ZeroDivisionError
            return int(value)

        async with consumer_of(bootstrap, topic, value_deserializer=number) as consumer:
            assert [(await consumer.getone()).value for _ in range(2)] == [0, 1]
            for _ in range(2):
                with pytest.raises(ZeroDivisionError):
                    await consumer.getone()
            broken = False
            assert [(await consumer.getone()).value for _ in range(3)] == [2, 3, 4]

    run(program())


@pytest.mark.parametrize("flags", ["", "(?i)", "(?x) # all"])
def test_pattern_matches_prefixes_of_names(bootstrap: str, topic: str, flags: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"x")
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        begin, comment = flags[:4], flags[4:]
        consumer.subscribe(pattern=f"{begin}{topic[:-2].upper() if 'i' in flags else topic[:-2]}{comment}")
        async with consumer:
            assert (await consumer.getone()).topic == topic

    run(program())


def test_clearing_the_frames_of_an_error_does_not_end_the_clients_tasks(bootstrap: str, topic: str, group: str) -> None:
    """`unittest.TestCase.assertRaises` clears the frames of the traceback, which closes suspended coroutines."""

    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="none"
        ) as consumer:
            for _ in range(2):
                with pytest.raises(NoOffsetForPartitionError) as raised:
                    await consumer.getone()
                traceback.clear_frames(raised.value.__traceback__)
            await consumer.seek_to_beginning()
            assert (await consumer.getone()).value == b"x"

    run(program())


def test_getmany_that_a_stop_interrupts_returns_nothing(bootstrap: str, topic: str, group: str) -> None:
    async def program() -> None:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group)
        await consumer.start()
        assert consumer._coordinator.member_id
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=30_000))
        await asyncio.sleep(0)
        await consumer.stop()
        assert await waiting == {}
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()

    run(program())


def test_errors_of_positions_are_raised_by_calls_for_records_not_by_start(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"x")
        async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
            with pytest.raises(NoOffsetForPartitionError):
                async for _ in consumer:
                    pass

    run(program())


def test_unknown_isolation_level_is_refused_at_the_start(bootstrap: str) -> None:
    async def program() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="READ_CCC")
        with pytest.raises(ValueError, match="Incorrect isolation level READ_CCC"):
            await consumer.start()
        await consumer.stop()

    run(program())


def test_pattern_subscribes_to_matching_topics(bootstrap: str, topic: str, group: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 2)
        consumer = consumer_of(bootstrap, group_id=group)
        consumer.subscribe(pattern=f"^{topic}$")
        async with consumer:
            assert (await consumer.getone()).topic == topic
            assert consumer.subscription() == {topic}
            consumer.unsubscribe()
            assert consumer.assignment() == set()

    run(program())


def test_record_has_the_attributes_of_aiokafka(bootstrap: str, topic: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def program() -> None:
        await fill(bootstrap, topic, 1)
        async with consumer_of(bootstrap, topic) as consumer:
            record = await consumer.getone()
        for name in inspect.signature(aiokafka.ConsumerRecord).parameters:
            assert hasattr(record, name), name

    run(program())


def test_two_hundred_consumers_share_one_loop(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await fill(bootstrap, topic, 10)
        consumers = [consumer_of(bootstrap, topic) for _ in range(200)]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        try:
            records = await asyncio.gather(*(consumer.getmany(timeout_ms=60_000) for consumer in consumers))
            assert all(records)
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))

    run(program())
