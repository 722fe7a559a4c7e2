"""kafka-python's consumer over the SDK, against a real broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from triokafka.blocking import (
    ConsumerRebalanceListener,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from triokafka.blocking.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
)
from triokafka.testing.blocking import running_broker


@pytest.fixture
def filled(bootstrap: str, topic: str) -> TopicPartition:
    """Return a partition with 3,000 records, whose values are their offsets."""
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for number in range(3_000):
            producer.send(topic, b"%d" % number, timestamp_ms=1_000 + number)
    return TopicPartition(topic, 0)


@pytest.fixture
def consumer(bootstrap: str, filled: TopicPartition) -> Iterator[KafkaConsumer]:
    """A consumer at the beginning of ``filled``."""
    with KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=1_000, fetch_max_wait_ms=50) as made:
        made.assign([filled])
        made.seek(filled, 0)
        yield made


def offsets_of(polled: dict[TopicPartition, list[Any]]) -> list[int]:
    """Return the offsets of all records."""
    return [record.offset for records in polled.values() for record in records]


def test_poll_returns_at_most_max_records_in_order(consumer: KafkaConsumer, filled: TopicPartition) -> None:
    assert offsets_of(consumer.poll(10_000)) == list(range(500))
    assert offsets_of(consumer.poll(max_records=7)) == list(range(500, 507))
    assert consumer.position(filled) == 507
    assert consumer.highwater(filled) == 3_000


def test_iterating_and_polling_continue_where_the_other_stopped(
    consumer: KafkaConsumer, filled: TopicPartition
) -> None:
    assert next(consumer).offset == 0
    assert next(consumer).offset == 1
    assert consumer.position(filled) == 2
    assert offsets_of(consumer.poll(max_records=3)) == [2, 3, 4]
    assert [record.offset for record in consumer] == list(range(5, 3_000))
    assert consumer.position(filled) == 3_000


def test_seek_drops_prefetched_records(consumer: KafkaConsumer, filled: TopicPartition) -> None:
    consumer.poll(10_000, max_records=1)
    consumer.seek(filled, 2_990)
    assert [record.offset for record in consumer] == list(range(2_990, 3_000))
    consumer.seek_to_beginning()
    assert next(consumer).offset == 0
    consumer.seek_to_end(filled)
    assert consumer.poll(100) == {}
    assert consumer.position(filled) == 3_000


def test_paused_partitions_return_nothing_and_retain_their_position(
    consumer: KafkaConsumer, filled: TopicPartition
) -> None:
    consumer.poll(10_000, max_records=10)
    consumer.pause(filled)
    assert consumer.paused() == {filled}
    assert consumer.poll(100) == {}
    assert consumer.position(filled) == 10
    consumer.resume(filled)
    assert offsets_of(consumer.poll(10_000, max_records=1)) == [10]


def test_lookups_have_kafka_pythons_types(consumer: KafkaConsumer, filled: TopicPartition) -> None:
    assert consumer.beginning_offsets([filled]) == {filled: 0}
    assert consumer.end_offsets([filled]) == {filled: 3_000}
    found = consumer.offsets_for_times({filled: 1_500})[filled]
    assert found is not None
    assert (found.offset, found.timestamp) == (500, 1_500)
    assert consumer.offsets_for_times({filled: 9_999_999}) == {filled: None}
    assert consumer.partitions_for_topic(filled.topic) == {0}
    assert consumer.partitions_for_topic("no-such-topic") == set()
    assert filled.topic in consumer.topics()
    assert consumer.assignment() == {filled}
    assert consumer.subscription() is None
    with pytest.raises(ValueError):
        consumer.offsets_for_times({filled: -5})


def test_wrong_use_raises_kafka_pythons_errors(consumer: KafkaConsumer, filled: TopicPartition) -> None:
    other = TopicPartition(filled.topic, 7)
    for error, call in [
        (ValueError, lambda: consumer.poll(-1)),
        (ValueError, lambda: consumer.poll(max_records=0)),
        (TypeError, lambda: consumer.poll(max_records=1.5)),  # type: ignore[arg-type]
        (TypeError, lambda: consumer.position("topic")),  # type: ignore[arg-type]
        (IllegalStateError, lambda: consumer.position(other)),
        (IllegalStateError, lambda: consumer.highwater(other)),
        (ValueError, lambda: consumer.seek(other, 1)),
        (ValueError, lambda: consumer.seek(filled, -1)),
        (ValueError, lambda: consumer.seek_to_end(other)),
        (IllegalStateError, lambda: consumer.subscribe(["topic"])),
        (IllegalStateError, consumer.commit),
        (IllegalStateError, lambda: consumer.committed(filled)),
    ]:
        with pytest.raises(error):
            call()
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.assignment, consumer.topics):  # type: ignore[assignment]
        with pytest.raises(IllegalStateError):
            call()
    assert list(consumer) == []


def test_closing_ends_an_iteration(consumer: KafkaConsumer) -> None:
    got = []
    for record in consumer:
        got.append(record.offset)
        if len(got) == 3:
            consumer.close()
    assert got == [0, 1, 2]


@pytest.mark.timeout(60)
def test_questions_about_topics_end_when_no_broker_answers() -> None:
    """The calls once waited for a day; kafka-python's end with ``request_timeout_ms``, too.

    The request and the call have the same time limit, so either may end first.
    """
    with (
        running_broker() as broker,
        KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300, fetch_max_wait_ms=50
        ) as consumer,
    ):
        broker.drop_replies("Metadata", times=-1)
        for ask in (consumer.topics, lambda: consumer.partitions_for_topic("unknown")):
            with pytest.raises(KafkaTimeoutError, match=r"has not answered|no answer in time"):
                ask()


def test_only_offsets_with_metadata_can_be_committed(bootstrap: str, filled: TopicPartition, group: str) -> None:
    """An int as an offset, which other clients accept, was once ignored silently."""
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        wrong: Any
        for wrong in ({filled: 2}, {filled.topic: OffsetAndMetadata(2, "")}, [filled], {filled: None}):
            for commit in (consumer.commit, consumer.commit_async):
                with pytest.raises(TypeError, match="OffsetAndMetadata"):
                    commit(wrong)
        consumer.commit({filled: OffsetAndMetadata(2, "mine")})
        assert consumer.committed(filled, metadata=True) == OffsetAndMetadata(2, "mine")


@pytest.mark.parametrize("form", ["PLAINTEXT://{}", "{0}, {0}"])
def test_bootstrap_servers_may_have_a_scheme(bootstrap: str, form: str) -> None:
    given = form.format(bootstrap)
    for servers in (given, given.split(","), set(given.split(","))):
        KafkaConsumer(bootstrap_servers=servers).close()


def test_deserializers_run_in_the_polling_thread_and_stop_at_unreadable_values(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in (b"1", b"2", b"no json", b"4"):
            producer.send(topic, value)
    threads: set[int] = set()

    def load(data: bytes) -> Any:
        threads.add(threading.get_ident())
        return json.loads(data)

    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=bootstrap, value_deserializer=load) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        assert [record.value for record in consumer.poll(10_000)[partition]] == [1, 2]
        with pytest.raises(json.JSONDecodeError):
            consumer.poll(10_000)
        assert consumer.position(partition) == 2
        consumer.seek(partition, 3)
        assert [record.value for record in consumer.poll(10_000)[partition]] == [4]
    assert threads == {threading.get_ident()}


def test_a_group_continues_where_the_last_consumer_committed(
    bootstrap: str, filled: TopicPartition, group: str
) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with KafkaConsumer(filled.topic, **options) as first:
        for record in first:
            if record.offset == 99:
                break
        first.commit()
        assert first.committed(filled) == 100
        assert first.committed(filled, metadata=True) == OffsetAndMetadata(100, "", -1)
        first.poll(1_000)  # not committed
        assert first.group_metadata().generation_id >= 1
    with KafkaConsumer(filled.topic, **options) as second:
        assert next(second).offset == 100
        second.commit({filled: OffsetAndMetadata(50, "note", -1)})
        assert second.committed(filled, metadata=True) == OffsetAndMetadata(50, "note", -1)


def test_auto_commit_commits_only_returned_records(bootstrap: str, filled: TopicPartition, group: str) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 10,
    }
    with KafkaConsumer(filled.topic, **options) as first:
        assert offsets_of(first.poll(20_000, max_records=10)) == list(range(10))
    with KafkaConsumer(filled.topic, **options) as second:
        assert next(second).offset == 10
        with pytest.raises(RuntimeError), second:
            raise RuntimeError("record 10 was not processed")
    with KafkaConsumer(filled.topic, **options) as third:
        assert next(third).offset == 10


def test_commit_async_settles_its_future_and_calls_back_in_a_later_poll(
    bootstrap: str, filled: TopicPartition, group: str
) -> None:
    calls: list[Any] = []
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([filled])
        settled = threading.Event()
        offsets = {filled: OffsetAndMetadata(5, "", -1)}
        future = consumer.commit_async(offsets, callback=lambda *got: calls.append((threading.get_ident(), *got)))
        future.add_both(lambda _: settled.set())
        assert settled.wait(20)
        assert future.succeeded()
        assert calls == []
        consumer.poll()
        assert calls == [(threading.get_ident(), offsets, None)]


def test_listeners_run_in_the_polling_thread_and_may_use_the_consumer(
    bootstrap: str, filled: TopicPartition, group: str
) -> None:
    calls: list[tuple[str, int, Any]] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(("revoked", threading.get_ident(), set(revoked)))
            if revoked:
                consumer.commit()  # type: ignore[attr-defined]

        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(("assigned", threading.get_ident(), set(assigned)))
            for partition in assigned:
                consumer.seek(partition, 2_000)  # type: ignore[attr-defined]

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    consumer.subscribe([filled.topic], listener=Listener())
    polled: list[int] = []
    while not polled:
        polled = offsets_of(consumer.poll(1_000, max_records=5))
    assert polled == [2_000, 2_001, 2_002, 2_003, 2_004]
    assert ("assigned", threading.get_ident(), {filled}) in calls
    consumer.close()
    assert calls[-1] == ("revoked", threading.get_ident(), {filled})
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group) as other:
        assert other.committed(filled) == 2_005


def test_poll_raises_the_error_of_a_rebalance_listener(bootstrap: str, filled: TopicPartition, group: str) -> None:
    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            raise RuntimeError("not today")

    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([filled.topic], listener=Listener())
        with pytest.raises(KafkaError, match="rebalance callback") as caught:
            for _ in range(50):
                consumer.poll(1_000)
        assert isinstance(caught.value.__cause__, RuntimeError)


def test_two_consumers_share_a_topic_and_the_second_takes_over(bootstrap: str, topic: str, group: str) -> None:
    from triokafka.blocking import KafkaAdminClient
    from triokafka.blocking.admin import NewTopic

    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 4, 1)], wait_for_metadata=True)
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "heartbeat_interval_ms": 100}
    first, second = KafkaConsumer(topic, **options), KafkaConsumer(topic, **options)
    try:
        for _ in range(300):
            first.poll(50)
            second.poll(50)
            if len(first.assignment()) == len(second.assignment()) == 2:
                break
        assert first.assignment() | second.assignment() == {TopicPartition(topic, number) for number in range(4)}
        first.close()
        for _ in range(300):
            second.poll(50)
            if len(second.assignment()) == 4:
                break
        assert len(second.assignment()) == 4
    finally:
        first.close()
        second.close()


def test_patterns_match_prefixes_of_names(bootstrap: str, filled: TopicPartition, group: str) -> None:
    with KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(pattern=filled.topic[:-2])
        polled: list[int] = []
        while not polled:
            polled = offsets_of(consumer.poll(1_000, max_records=1))
        assert consumer.subscription() == {filled.topic}


def test_without_reset_an_unknown_position_is_an_error(bootstrap: str, filled: TopicPartition) -> None:
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([filled])
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(10_000)


@pytest.mark.parametrize(
    "options",
    [
        {"no_such_name": 1},
        {"request_timeout_ms": 1, "fetch_max_wait_ms": 2},
        {"group_instance_id": "me"},
        {"group_id": "g", "group_instance_id": "no spaces"},
        {"security_protocol": "TLS"},
        {"partition_assignment_strategy": [object()]},
    ],
)
def test_configurations_are_checked_as_kafka_python_does(bootstrap: str, options: dict[str, Any]) -> None:
    with pytest.raises(KafkaConfigurationError):
        KafkaConsumer(bootstrap_servers=bootstrap, **options)


def test_rebalance_revokes_partly_consumed_partitions_and_no_record_is_read_twice(
    bootstrap: str, topic: str, group: str
) -> None:
    """A consumer with thousands of buffered records gives partitions up, and commits the positions of
    returned records.
    """
    from triokafka.blocking import KafkaAdminClient
    from triokafka.blocking.admin import NewTopic

    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)], wait_for_metadata=True)
    with KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for number in range(2_000):
            producer.send(topic, b"%d" % number, partition=number % 2)
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
    }
    read: list[tuple[int, int]] = []

    def take(polled: dict[TopicPartition, list[Any]]) -> int:
        records = [record for records in polled.values() for record in records]
        read.extend((record.partition, record.offset) for record in records)
        return len(records)

    with KafkaConsumer(topic, **options) as first, KafkaConsumer(topic, **options) as second:
        while len(read) < 10:
            take(first.poll(100, max_records=1))
        while not second.assignment():
            # Both have partly consumed partitions: their polls return only a few records at a time.
            take(first.poll(20, max_records=1))
            take(second.poll(20, max_records=1))
        assert len(read) < 1_500
        while len(set(read)) < 2_000:
            assert take(first.poll(20)) + take(second.poll(20)) + take(first.poll(500)) >= 0
        assert len(first.assignment()) == len(second.assignment()) == 1
    assert sorted(read) == [(partition, offset) for partition in (0, 1) for offset in range(1_000)]


@pytest.mark.parametrize("method", ["pause", "resume"])
def test_a_partition_that_is_not_assigned_is_a_key_error_as_in_kafka_python(bootstrap: str, method: str) -> None:
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer, pytest.raises(KeyError):
        getattr(consumer, method)(TopicPartition("nobody-has-it", 0))


def test_waiting_without_a_subscription_ends_in_time_as_in_kafka_python(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=50) as consumer:
        assert consumer.poll() == {}
        assert not [record for record in caplog.records if "without a subscription" in record.getMessage()]
        assert consumer.poll(timeout_ms=20) == {}
        assert list(consumer) == []
        warnings = [record for record in caplog.records if "without a subscription" in record.getMessage()]
        assert [record.levelname for record in warnings] == ["WARNING"]
        consumer.assign([])
        assert consumer.poll(timeout_ms=20) == {}


def test_poll_raises_for_a_batch_that_decompresses_to_more_than_the_limit(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip") as producer:
        producer.send(topic, bytes(200_000))
    partition = TopicPartition(topic, 0)
    with KafkaConsumer(bootstrap_servers=bootstrap, max_decompressed_batch_bytes=100_000) as made:
        made.assign([partition])
        made.seek(partition, 0)
        with pytest.raises(KafkaError, match="max_decompressed_batch_bytes"):
            made.poll(10_000)
    with KafkaConsumer(bootstrap_servers=bootstrap, max_poll_bytes=1) as made:
        made.assign([partition])
        made.seek(partition, 0)
        assert offsets_of(made.poll(10_000)) == [0]
