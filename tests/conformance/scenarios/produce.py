"""Producing: acknowledgements, what a record may hold, timestamps, order, idempotence."""

from __future__ import annotations

import time

from tests.conformance.catalogue import FIRST_TIMESTAMP, Case, scenario
from tests.conformance.driver import Message, Refused


@scenario
def acks_0(case: Case) -> None:
    """With acks=0 nothing is answered, and the record arrives."""
    topic = case.topic()
    case.send(topic, [Message(b"unasked")], acks=0)
    (record,) = case.read(topic, 1)
    assert (record.offset, record.value) == (0, b"unasked")


@scenario
def acks_1(case: Case) -> None:
    """With acks=1 offsets count up from 0."""
    topic = case.topic()
    assert [one.offset for one in case.fill(topic, 20, acks=1)] == list(range(20))


@scenario
def acks_all(case: Case) -> None:
    """With acks=all offsets count up from 0, and go on behind what was there."""
    topic = case.topic()
    assert [one.offset for one in case.fill(topic, 20)] == list(range(20))
    assert [one.offset for one in case.fill(topic, 5)] == list(range(20, 25))


@scenario
def idempotent(case: Case) -> None:
    """An idempotent producer's records are there once, in order, in batches and alone."""
    topic = case.topic()
    assert [one.offset for one in case.fill(topic, 300, enable_idempotence=True)] == list(range(300))
    assert [one.offset for one in case.fill(topic, 3, enable_idempotence=True, linger_ms=0)] == [300, 301, 302]
    assert [record.value for record in case.read(topic, 303)][:300] == [b"%d" % i for i in range(300)]


@scenario
def idempotent_many_partitions(case: Case) -> None:
    """An idempotent producer keeps the order of each of many partitions."""
    topic = case.topic(partitions=8)
    sent = case.send(
        topic, [Message(b"%d" % i, partition=i % 8) for i in range(400)], enable_idempotence=True, batch_size=200
    )
    assert [one.offset for one in sent] == [i // 8 for i in range(400)]


@scenario
def several_producers(case: Case) -> None:
    """Producers that follow each other on a partition get offsets of their own."""
    topic = case.topic()
    found = [one.offset for _ in range(3) for one in case.fill(topic, 7, enable_idempotence=True)]
    assert found == list(range(21))


@scenario
def null_and_empty(case: Case) -> None:
    """Null and empty keys and values stay what they are."""
    topic = case.topic()
    case.send(topic, [Message(b"", b""), Message(None, b"k"), Message(b"v", None)])
    assert [(r.key, r.value) for r in case.read(topic, 3)] == [(b"", b""), (b"k", None), (None, b"v")]


@scenario
def headers(case: Case) -> None:
    """Headers keep their order, their repetitions and their bytes."""
    topic = case.topic()
    some = (("b", b"1"), ("a", b"2"), ("b", b"3"), ("é", b"\x00\xff"), ("", b""))
    case.send(topic, [Message(b"v", headers=some)])
    assert case.read(topic, 1)[0].headers == some


@scenario
def null_header(case: Case) -> None:
    """A header may hold null, which is not the empty text."""
    topic = case.topic()
    case.send(topic, [Message(b"v", headers=(("null", None), ("empty", b"")))])
    assert case.read(topic, 1)[0].headers == (("null", None), ("empty", b""))


@scenario
def create_time(case: Case) -> None:
    """A record keeps the time that its producer gave it."""
    topic = case.topic()
    case.send(topic, [Message(b"a", timestamp=FIRST_TIMESTAMP + 5), Message(b"b", timestamp=FIRST_TIMESTAMP)])
    found = [(r.timestamp, r.timestamp_type) for r in case.read(topic, 2)]
    assert found == [(FIRST_TIMESTAMP + 5, 0), (FIRST_TIMESTAMP, 0)]


@scenario
def log_append_time(case: Case) -> None:
    """With message.timestamp.type=LogAppendTime a record has the broker's time, and its producer is told."""
    topic = case.topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000) - 5_000
    (delivered,) = case.send(topic, [Message(b"a", timestamp=FIRST_TIMESTAMP)])
    (record,) = case.read(topic, 1)
    assert record.timestamp_type == 1
    assert before < record.timestamp < before + 300_000
    if case.client.name != "confluent-kafka":  # It reports what the application said.
        assert delivered.timestamp == record.timestamp


@scenario
def log_append_time_compressed(case: Case) -> None:
    """All records of a compressed batch get the broker's time."""
    topic = case.topic(message_timestamp_type="LogAppendTime")
    case.fill(topic, 50, compression_type="gzip")
    found = case.read(topic, 50)
    assert [record.value for record in found] == [b"%d" % i for i in range(50)]
    assert all(record.timestamp_type == 1 and record.timestamp > FIRST_TIMESTAMP + 10_000 for record in found)


@scenario
def keys_choose_partitions(case: Case) -> None:
    """Records with the same key meet in one partition, which the answer names."""
    topic = case.topic(partitions=4)
    sent = case.send(topic, [Message(b"%d" % i, b"key-%d" % (i % 10), partition=None) for i in range(100)])
    by_key = {i: {one.partition for one in sent[i::10]} for i in range(10)}
    assert all(len(partitions) == 1 for partitions in by_key.values())
    assert len(set().union(*by_key.values())) > 1
    assert len(case.read(topic, 100, partitions=4)) == 100


@scenario
def auto_created(case: Case) -> None:
    """Producing to an unknown topic creates it with the broker's number of partitions."""
    topic = case.name()
    case.send(topic, [Message(b"first", partition=None)])
    assert len(case.client.describe_topic(topic).partitions) == 1


@scenario
def invalid_topic_name(case: Case) -> None:
    """A topic whose name has a bad letter is refused with INVALID_TOPIC_EXCEPTION (17)."""
    (outcome,) = case.client.produce("no good!", [Message(b"v", partition=None)], delivery_timeout_ms=5_000)
    assert isinstance(outcome, Refused)
    # aiokafka goes on asking until its time is over, and then says what it knows: that there is no such topic.
    assert outcome.code in (17, None, 3)


@scenario
def null_key_to_compacted_topic(case: Case) -> None:
    """A compacted topic refuses a record without a key with INVALID_RECORD (87)."""
    topic = case.topic(cleanup_policy="compact")
    # aiokafka does not know the code, and says that.
    assert case.outcome_of(topic, Message(b"v"), delivery_timeout_ms=5_000) in (87, -1)
    assert case.send(topic, [Message(b"v", b"k")])[0].offset == 0


@scenario
def many_small_batches(case: Case) -> None:
    """Many batches in flight at once arrive in order."""
    topic = case.topic()
    assert [one.offset for one in case.fill(topic, 500, batch_size=300, linger_ms=1)] == list(range(500))
    assert [record.value for record in case.read(topic, 500)] == [b"%d" % i for i in range(500)]


@scenario
def one_big_batch(case: Case) -> None:
    """A batch of half a mebibyte arrives whole."""
    topic = case.topic()
    values = [b"%d" % i * 100 for i in range(2000)]
    case.send(topic, [Message(value) for value in values], batch_size=900_000, linger_ms=100)
    assert [record.value for record in case.read(topic, 2000)] == values


@scenario
def many_partitions(case: Case) -> None:
    """One producer and one reader serve fifty partitions."""
    topic = case.topic(partitions=50)
    case.send(topic, [Message(b"%d" % i, partition=i % 50) for i in range(200)], enable_idempotence=True)
    found = case.read(topic, 200, partitions=50)
    assert {(r.partition, r.offset, r.value) for r in found} == {(i % 50, i // 50, b"%d" % i) for i in range(200)}
