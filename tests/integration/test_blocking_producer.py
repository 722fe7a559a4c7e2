"""kafka-python's producer over the SDK, against a real broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

from triokafka.blocking import JsonSerializer, KafkaConsumer, KafkaProducer, TopicPartition
from triokafka.blocking.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from triokafka.blocking.partitioner import Partitioner
from triokafka.testing.blocking import running_broker


def read_all(bootstrap: str, topic: str, count: int, **options: Any) -> list[Any]:
    """Return the first ``count`` records of all partitions."""
    with KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000, **options) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
        consumer.seek_to_beginning()
        return [record for _, record in zip(range(count), consumer, strict=False)]


def test_send_returns_a_future_with_the_records_offset(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        first = producer.send(topic, b"value", key=b"key", headers=[("name", b"1")], timestamp_ms=5)
        metadata = first.get(timeout=60)
        assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 0, 0, 5)
        assert metadata.topic_partition == TopicPartition(topic, 0)
        assert metadata[5:] == (None, 3, 5, 5)
        assert first.is_done and first.succeeded() and not first.failed()
        assert (first.value, first.exception) == (metadata, None)
    (record,) = read_all(bootstrap, topic, 1)
    assert (record.key, record.value, record.headers, record.timestamp) == (b"key", b"value", (("name", b"1"),), 5)


def test_records_with_and_without_key_partition_time_and_headers_keep_their_order(bootstrap: str, topic: str) -> None:
    """Optional fields of some records in a chunk are not applied to others."""
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int | None]] = [
        (b"a", None, [], None),
        (b"b", b"key", [], None),
        (b"c", None, [("h", b"1")], None),
        (b"d", None, [], 77),
        (None, b"key", [("g", b"")], 78),
        (b"", None, [], None),
    ]
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        futures = [
            producer.send(topic, value, key=key, headers=list(headers), timestamp_ms=at, partition=0)
            for value, key, headers, at in sent * 50
        ]
        producer.flush()
        assert [future.value.offset for future in futures] == list(range(len(futures)))
        assert [future.value.serialized_header_size for future in futures[:6]] == [-1, -1, 2, -1, 1, -1]
    records = read_all(bootstrap, topic, 300)
    assert [(r.value, r.key, list(r.headers)) for r in records] == [one[:3] for one in sent * 50]
    assert {r.timestamp for r in records if r.value == b"d"} == {77}


def test_callbacks_run_before_get_and_flush_return_and_may_use_the_producer(bootstrap: str, topic: str) -> None:
    seen: list[Any] = []
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:

        def note(label: str, metadata: Any) -> None:
            seen.append((label, metadata.offset))
            if label == "first":
                producer.send(topic, b"from the callback").get(timeout=60)
                producer.partitions_for(topic)

        future = producer.send(topic, b"1").add_callback(note, "first").add_errback(seen.append)  # type: ignore[arg-type]
        future.get(timeout=60)
        assert seen == [("first", 0)]
        for _ in range(100):
            producer.send(topic, b"n").add_callback(note, "later")  # type: ignore[arg-type]
        producer.flush()
        assert seen[1:] == [("later", offset) for offset in range(2, 102)]
        future.add_callback(seen.append)
        assert seen[-1].offset == 0  # the callback of a settled future runs at once


def test_each_callback_runs_once_with_the_offset_of_its_record(bootstrap: str, topic: str) -> None:
    results: list[tuple[int, Any]] = []
    with KafkaProducer(bootstrap_servers=bootstrap, batch_size=2_000) as producer:
        for index in range(3_000):
            keyed, timed, headed = index % 2 == 0, index % 3 == 0, index % 5 == 0
            future = producer.send(
                topic,
                b"x" * (index % 90),
                key=b"key %d" % (index % 7) if keyed else None,
                timestamp_ms=1_000_000 + index if timed else None,
                headers=[("h", b"value")] if headed else None,
            )
            if index % 4:
                future.add_callback(lambda metadata, index=index: results.append((index, metadata)))  # type: ignore[misc]
    assert sorted(index for index, _ in results) == [index for index in range(3_000) if index % 4]
    for partition in {metadata.partition for _, metadata in results}:
        offsets = [metadata.offset for _, metadata in results if metadata.partition == partition]
        assert offsets == sorted(set(offsets))
    for index, metadata in results:
        assert metadata.topic_partition == (topic, metadata.partition)
        assert metadata.serialized_value_size == index % 90
        assert metadata.serialized_key_size == (5 if index % 2 == 0 else -1)
        assert metadata.serialized_header_size == (6 if index % 5 == 0 else -1)
        assert metadata.timestamp == 1_000_000 + index or index % 3
    with KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=2_000
    ) as c:
        places = {(metadata.partition, metadata.offset): index for index, metadata in results}
        for record in c:
            index = places.get((record.partition, record.offset))  # type: ignore[assignment]
            assert index is None or len(record.value) == index % 90


def test_a_callback_that_is_added_after_the_record_is_known_to_be_settled_runs_at_once(
    bootstrap: str, topic: str
) -> None:
    here: list[int] = []
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        flushed, awaited = producer.send(topic, b"flushed"), producer.send(topic, b"awaited")
        awaited.get(timeout=60)
        awaited.add_callback(lambda _: here.append(threading.get_ident()))
        producer.flush()
        flushed.add_callback(lambda _: here.append(threading.get_ident()))
        assert here == [threading.get_ident()] * 2


def test_flush_without_a_timeout_reports_whether_all_callbacks_have_run(bootstrap: str, topic: str) -> None:
    """kafka-python does the same; a closed producer has no pending records."""
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.flush(0)
        go_on = threading.Event()
        producer.send(topic, b"first").add_callback(lambda _: go_on.wait(20))
        for patience in (0, -1, 0.05):
            with pytest.raises(KafkaTimeoutError):
                producer.flush(patience)
        go_on.set()
        producer.flush()
        producer.flush(timeout=0)
    producer.flush()


def test_headers_of_a_received_record_can_be_sent_again(bootstrap: str, topic: str) -> None:
    headers = [("trace", b"1"), ("trace", b"2")]
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first", headers=headers)
        producer.flush()
        [first] = read_all(bootstrap, topic, 1)
        producer.send(topic, b"second", headers=first.headers)
        producer.flush()
    assert [list(record.headers) for record in read_all(bootstrap, topic, 2)] == [headers, headers]


def test_a_record_that_cannot_be_delivered_goes_to_its_errback(bootstrap: str, topic: str) -> None:
    errors: list[Any] = []
    with KafkaProducer(bootstrap_servers=bootstrap, max_request_size=2_000_000) as producer:
        too_large = producer.send(topic, b"x" * 1_200_000).add_errback(errors.append)
        with pytest.raises(MessageSizeTooLargeError):
            too_large.get(timeout=60)
        assert too_large.failed()
        assert errors == [too_large.exception]
        assert producer.send(topic, b"small").get(timeout=60).offset == 0


def test_sends_from_many_threads_all_arrive_in_the_order_of_each_thread(bootstrap: str, topic: str) -> None:
    failures: list[BaseException] = []
    with KafkaProducer(bootstrap_servers=bootstrap, buffer_memory=1 << 20, linger_ms=1) as producer:

        def work(number: int) -> None:
            try:
                for position in range(2_000):
                    producer.send(topic, b"%d %d" % (number, position), partition=0)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert not failures
    read = [tuple(map(int, record.value.split())) for record in read_all(bootstrap, topic, 16_000)]
    assert Counter(number for number, _ in read) == dict.fromkeys(range(8), 2_000)
    for number in range(8):
        assert [position for thread, position in read if thread == number] == list(range(2_000))


def test_serializers_and_partitioners_of_the_user_are_called_by_the_thread_that_sends(
    bootstrap: str, topic: str
) -> None:
    asked: list[tuple[Any, ...]] = []

    class First(Partitioner):
        def partition(
            self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any
        ) -> int:
            asked.append((threading.get_ident(), key, serialized_key, value, serialized_value))
            return min(cluster.partitions_for_topic(topic))  # type: ignore[no-any-return]

    with KafkaProducer(
        bootstrap_servers=bootstrap,
        key_serializer=JsonSerializer(),
        value_serializer=JsonSerializer(),
        partitioner=First(),
    ) as producer:
        producer.send(topic, {"a": 1}, key=[2]).get(timeout=60)
    assert asked == [(threading.get_ident(), [2], b"[2]", {"a": 1}, b'{"a": 1}')]
    (record,) = read_all(bootstrap, topic, 1, value_deserializer=JsonSerializer())
    assert record.value == {"a": 1}


def test_a_function_as_serializer_is_taken_with_a_warning(bootstrap: str, topic: str) -> None:
    with (
        pytest.warns(DeprecationWarning, match="value_serializer"),
        KafkaProducer(bootstrap_servers=bootstrap, value_serializer=str.encode) as producer,
    ):
        assert producer.send(topic, "text").get(timeout=60).serialized_value_size == 4


def test_wrong_arguments_of_send_are_refused_at_once(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, max_block_ms=20_000) as producer:
        for error, arguments in [
            (ValueError, {}),
            (TypeError, {"value": "text"}),
            (TypeError, {"value": b"", "key": 1}),
            (TypeError, {"value": b"", "headers": {"a": b""}}),
            (TypeError, {"value": b"", "headers": [("a", "text")]}),
            (ValueError, {"value": b"", "partition": 99}),
            (ValueError, {"value": b"", "partition": -1}),
            (ValueError, {"value": b"", "timestamp_ms": -1}),
            (TypeError, {"value": b"", "timestamp_ms": 1.5}),
            (MessageSizeTooLargeError, {"value": b"x" * 1_048_577}),
        ]:
            with pytest.raises(error):
                producer.send(topic, **arguments)  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            producer.send("no topic!", b"")
        with pytest.raises(TypeError):
            producer.send(5, b"")  # type: ignore[arg-type]
        assert producer.send(topic, b"").get(timeout=60).offset == 0
    with pytest.raises(IllegalStateError):
        producer.send(topic, b"")
    producer.close()


def test_configurations_are_checked_as_kafka_python_does(bootstrap: str) -> None:
    for error, options in [
        (ValueError, {"no_such_name": 1}),
        (ValueError, {"compression_type": "zip"}),
        (KafkaConfigurationError, {"enable_idempotence": True, "acks": 1}),
        (KafkaConfigurationError, {"security_protocol": "SASL_SSL"}),
        (KafkaConfigurationError, {"sasl_mechanism": "CRAM-MD5"}),
        (KafkaConfigurationError, {"transactional_id": "me", "enable_idempotence": False}),
        (KafkaConfigurationError, {"transactional_id": "me", "acks": 1}),
    ]:
        with pytest.raises(error):
            KafkaProducer(bootstrap_servers=bootstrap, **options)  # type: ignore[arg-type]
    with KafkaProducer(bootstrap_servers=[bootstrap], acks=1, retries=3, api_version=(2, 6)) as producer:
        assert producer.config["enable_idempotence"] is False
        assert producer.bootstrap_connected()


def test_a_producer_without_brokers_raises_in_time() -> None:
    with pytest.raises(KafkaTimeoutError, match="bootstrap"):
        KafkaProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=200)


def test_full_buffers_make_send_wait_and_then_fail() -> None:
    """No broker listens: the buffers stay full, and no memory beyond them is used."""
    producer = KafkaProducer(
        bootstrap_servers="127.0.0.1:1", api_version=(3, 0), max_block_ms=200, buffer_memory=1 << 20
    )
    with pytest.raises(KafkaTimeoutError):
        producer.send("anything", b"")
    producer.close(timeout=0)


def test_metrics_have_kafkas_names(bootstrap: str, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"")
        producer.flush()
        metrics = producer.metrics()
        assert metrics is not None
        assert metrics["producer-metrics"]["record-send-total"] == 1
    with KafkaProducer(bootstrap_servers=bootstrap, metrics_enabled=False) as producer:
        assert producer.metrics() is None


def test_transactions_are_refused_as_without_transactional_id(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(IllegalStateError):
                call()


def test_a_record_that_is_refused_in_the_middle_of_many_fails_alone(bootstrap: str, topic: str) -> None:
    """The records before and behind it are delivered, in order; its future has the error."""
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first").get(timeout=60)
        futures = [producer.send(topic, b"%d" % number) for number in range(50)]
        # The SDK counts three bytes for each character of a header's name.
        wrong = producer.send(topic, b"x" * 800_000, headers=[("h" * 100_000, b"")])
        futures += [producer.send(topic, b"%d" % number) for number in range(50, 100)]
        producer.flush()
        assert isinstance(wrong.exception, MessageSizeTooLargeError)
        assert [future.value.offset for future in futures] == list(range(1, 101))


def test_a_refused_record_among_others_with_keys_affects_none_of_them(bootstrap: str, topic: str) -> None:
    results: list[tuple[int, Any]] = []
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first").get(timeout=60)
        for number in range(100):
            if number == 50:
                wrong = producer.send(topic, b"x" * 800_000, key=b"wrong", headers=[("h" * 100_000, b"")])
                wrong.add_errback(lambda error: results.append((-1, error)))
            future = producer.send(topic, b"%d" % number, key=b"key %d" % (number % 9))
            future.add_callback(lambda metadata, number=number: results.append((number, metadata)))  # type: ignore[misc]
        producer.flush()
    assert sorted(number for number, _ in results) == list(range(-1, 100))
    assert isinstance(wrong.exception, MessageSizeTooLargeError)
    by_partition: dict[int, list[int]] = {}
    for number, metadata in results:
        if number >= 0:
            assert metadata.serialized_value_size == len(str(number))
            by_partition.setdefault(metadata.partition, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def test_a_sender_waits_for_callbacks_that_are_slower_than_it(bootstrap: str, topic: str) -> None:
    """Pending callbacks are bounded by ``buffer_memory``: otherwise they would fill the memory."""
    go_on, results = threading.Event(), []

    def slow(metadata: Any) -> None:
        go_on.wait(60)
        results.append(metadata.offset)

    producer = KafkaProducer(bootstrap_servers=bootstrap, buffer_memory=1 << 20, max_block_ms=300)
    sent = 0
    with pytest.raises(KafkaTimeoutError, match="callbacks of 1048576 bytes of records"):
        while sent < 100_000:
            producer.send(topic, b"x" * 1000).add_callback(slow)
            sent += 1
            if sent % 100 == 0:
                time.sleep(0.01)  # no hurry: only the callbacks are slow
    assert 500 < sent < 5_000
    go_on.set()
    producer.send(topic, b"there is room again").get(timeout=60)
    producer.flush()
    assert results == list(range(sent))
    producer.close()
    assert producer._staging.staged == 0


def test_closing_without_a_timeout_settles_every_future(topic: str) -> None:
    """This includes records that the loop was accepting when memory ran out."""
    with running_broker() as broker:
        broker.create_topic(topic)  # which may take longer than the producer's timeout
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=1 << 20, max_block_ms=100, batch_size=65_536
        )
        producer.send(topic, b"").get(timeout=60)
        with broker.frozen():
            futures = []
            with pytest.raises(KafkaTimeoutError, match="max_block_ms"):
                while True:
                    futures.append(producer.send(topic, b"x" * 10_000))
            assert 50 < len(futures) < 300
            producer.close(timeout=0.1)
        for future in futures:
            with pytest.raises(KafkaError):
                future.get(timeout=60)


def test_closing_without_a_timeout_settles_the_futures_of_every_chunk(topic: str) -> None:
    """This includes a chunk started while the loop waited for memory for the previous one."""
    with running_broker() as broker:
        broker.create_topic(topic)  # which may take longer than the producer's timeout
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=1 << 20, max_block_ms=100, batch_size=65_536
        )
        producer.send(topic, b"").get(timeout=60)
        futures = []
        with broker.frozen():
            with pytest.raises(KafkaTimeoutError, match="max_block_ms"):
                while True:
                    futures += [producer.send(topic, b"x" * 10_000)]
                    if len(futures) % 12 == 0:
                        with pytest.raises(KafkaTimeoutError, match="waiting"):
                            futures[-1].get(timeout=0.1)
            producer.close(timeout=0)
        for future in futures:
            with pytest.raises(KafkaError):
                future.get(timeout=60)


def test_flush_get_and_close_wait_for_slow_callbacks(bootstrap: str, topic: str) -> None:
    seen: list[int] = []

    def slow(metadata: Any) -> None:
        time.sleep(0.1)
        seen.append(metadata.offset)

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, b"").add_callback(slow).get(timeout=60)
    assert seen == [0]
    producer.send(topic, b"").add_callback(slow)
    producer.flush()
    assert seen == [0, 1]
    producer.send(topic, b"").add_callback(slow)
    producer.close()
    assert seen == [0, 1, 2]
