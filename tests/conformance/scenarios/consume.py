"""Consuming: where to begin, seeking, sizes of fetches, waiting, what happens to a topic meanwhile."""

from __future__ import annotations

import time

from tests.conformance.catalogue import Case, scenario
from tests.conformance.driver import Message, Record, Refused


@scenario
def from_an_offset(case: Case) -> None:
    """A partition is read from the offset that is asked for."""
    topic = case.topic()
    case.fill(topic, 30)
    assert [record.offset for record in case.take(case.reader(topic, {0: 12}), 18)] == list(range(12, 30))


@scenario
def earliest(case: Case) -> None:
    """auto.offset.reset=earliest begins with the first record."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 10)
    consumer = case.client.consumer(group, auto_offset_reset="earliest")
    consumer.assign(topic, {0: None})
    assert [record.offset for record in case.take(consumer, 10)] == list(range(10))


@scenario
def latest(case: Case) -> None:
    """auto.offset.reset=latest sees only what comes later."""
    topic, group = case.topic(), case.name()
    case.fill(topic, 10)
    consumer = case.client.consumer(group, auto_offset_reset="latest")
    consumer.assign(topic, {0: None})
    found: list[Record] = []

    def came() -> bool:
        case.fill(topic, 1)
        found.extend(consumer.poll())
        return bool(found)

    case.until(came)
    assert found[0].offset >= 10


@scenario
def reset_none(case: Case) -> None:
    """auto.offset.reset=none is an error where nothing was committed."""
    topic = case.topic()
    case.fill(topic, 3)
    consumer = case.client.consumer(case.name(), auto_offset_reset="none")
    consumer.assign(topic, {0: None})
    assert case.until_refused(consumer).code in (None, 1)


@scenario
def seeking(case: Case) -> None:
    """A consumer seeks back and forth."""
    topic = case.topic()
    case.fill(topic, 50)
    consumer = case.reader(topic)
    case.take(consumer, 50)
    for offset in (40, 10, 25):
        consumer.seek((topic, 0), offset)
        assert [record.offset for record in case.take(consumer, 50 - offset)] == list(range(offset, 50))


@scenario
def seeking_to_the_ends(case: Case) -> None:
    """Seeking to the beginning reads all again; seeking to the end waits for what is new."""
    topic = case.topic()
    case.fill(topic, 20)
    consumer = case.reader(topic)
    case.take(consumer, 20)
    consumer.seek_to_beginning((topic, 0))
    assert [record.offset for record in case.take(consumer, 20)] == list(range(20))
    consumer.seek((topic, 0), 3)
    consumer.seek_to_end((topic, 0))
    found: list[Record] = []

    def came() -> bool:
        case.fill(topic, 1)
        found.extend(consumer.poll())
        return bool(found)

    case.until(came)
    assert found[0].offset >= 20


@scenario
def position(case: Case) -> None:
    """The position is behind the last record that was handed out."""
    topic = case.topic()
    case.fill(topic, 15)
    consumer = case.reader(topic)
    case.take(consumer, 15)
    assert consumer.position((topic, 0)) == 15


@scenario
def pausing(case: Case) -> None:
    """A paused partition gives nothing until it is resumed; the other goes on."""
    topic = case.topic(partitions=2)
    consumer = case.reader(topic, {0: 0, 1: 0})
    consumer.pause((topic, 0))
    case.fill(topic, 10, partition=0)
    case.fill(topic, 10, partition=1)
    assert {record.partition for record in case.take(consumer, 10)} == {1}
    consumer.resume((topic, 0))
    assert {record.partition for record in case.take(consumer, 10)} == {0}


@scenario
def max_poll_records(case: Case) -> None:
    """max.poll.records bounds a poll, and nothing is lost."""
    topic = case.topic()
    case.fill(topic, 40)
    consumer = case.reader(topic, max_poll_records=7)
    found: list[Record] = []

    def enough() -> bool:
        some = consumer.poll()
        assert len(some) <= 7
        found.extend(some)
        return len(found) >= 40

    case.until(enough)
    assert [record.offset for record in found] == list(range(40))


@scenario
def above_the_end_earliest(case: Case) -> None:
    """An offset above the end is out of range: earliest begins anew."""
    topic = case.topic()
    case.fill(topic, 5)
    consumer = case.reader(topic, {0: 1000}, auto_offset_reset="earliest")
    assert [record.offset for record in case.take(consumer, 5)] == list(range(5))


@scenario
def above_the_end_none(case: Case) -> None:
    """An offset above the end is OFFSET_OUT_OF_RANGE (1) for one who has no reset policy."""
    topic = case.topic()
    case.fill(topic, 5)
    consumer = case.reader(topic, {0: 1000}, auto_offset_reset="none")
    assert case.until_refused(consumer).code in (None, 1)


@scenario
def below_the_start(case: Case) -> None:
    """An offset of deleted records is out of range: earliest begins with what is left."""
    topic = case.topic()
    case.fill(topic, 20)
    case.client.delete_records(topic, {0: 8})
    consumer = case.reader(topic, {0: 2}, auto_offset_reset="earliest")
    assert [record.offset for record in case.take(consumer, 12)] == list(range(8, 20))


@scenario
def at_the_end(case: Case) -> None:
    """The end itself is in range: a reader waits there for the next record."""
    topic = case.topic()
    case.fill(topic, 5)
    consumer = case.reader(topic, {0: 5}, auto_offset_reset="none")
    assert consumer.poll() == []
    case.fill(topic, 1)
    assert [record.offset for record in case.take(consumer, 1)] == [5]


@scenario
def small_fetch_max_bytes(case: Case) -> None:
    """A batch larger than fetch.max.bytes is still given, alone."""
    topic = case.topic()
    values = [b"x" * 5000 + b"%d" % i for i in range(10)]
    for value in values:
        case.send(topic, [Message(value)])
    assert [record.value for record in case.read(topic, 10, fetch_max_bytes=1000)] == values


@scenario
def small_max_partition_fetch_bytes(case: Case) -> None:
    """A batch larger than max.partition.fetch.bytes is still given."""
    topic = case.topic(partitions=2)
    case.send(topic, [Message(b"x" * 20_000, partition=i % 2) for i in range(20)], batch_size=100_000)
    assert len(case.read(topic, 20, partitions=2, max_partition_fetch_bytes=500)) == 20


@scenario
def min_bytes_and_max_wait(case: Case) -> None:
    """A fetch that waits for more bytes than there are is answered after fetch.max.wait.ms with what there is."""
    topic = case.topic()
    case.fill(topic, 3)
    found = case.read(topic, 3, fetch_min_bytes=100_000, fetch_max_wait_ms=300)
    assert [record.offset for record in found] == [0, 1, 2]


@scenario
def waiting_reader_is_woken(case: Case) -> None:
    """A fetch that waits at the end is answered when a record comes, long before its wait is over."""
    topic, wait = case.topic(), 20.0
    consumer = case.reader(topic, fetch_max_wait_ms=int(wait * 1000))
    assert consumer.poll() == []
    began = time.monotonic()
    for number in range(3):
        case.fill(topic, 1)
        assert [record.offset for record in case.take(consumer, 1)] == [number]
    assert time.monotonic() - began < wait, "three records took as long as one unanswered fetch"
    # Leave no fetch behind, as the Java client's close waits for it.
    consumer.pause((topic, 0))
    case.fill(topic, 1)
    consumer.poll()


@scenario
def read_committed(case: Case) -> None:
    """isolation.level=read_committed sees all records that belong to no transaction."""
    topic = case.topic()
    case.fill(topic, 25)
    assert [r.offset for r in case.read(topic, 25, isolation_level="read_committed")] == list(range(25))


@scenario
def unknown_topic(case: Case) -> None:
    """A topic that does not exist gives no records and is not created by a consumer that may not."""
    topic = case.name()
    consumer = case.client.consumer(case.name(), allow_auto_create_topics=False)
    consumer.subscribe([topic])
    for _ in range(3):
        try:
            assert consumer.poll() == []
        except Refused as refusal:
            assert refusal.code == 3
    assert topic not in case.client.topics()


@scenario
def two_readers(case: Case) -> None:
    """Readers without a group each get everything."""
    topic = case.topic()
    case.fill(topic, 20)
    readers = [case.reader(topic) for _ in range(2)]
    for reader in readers:
        assert [record.offset for record in case.take(reader, 20)] == list(range(20))


@scenario
def large_records(case: Case) -> None:
    """Records of a mebibyte come back whole where the topic allows them."""
    topic = case.topic(max_message_bytes=2_000_000)
    values = [bytes([i]) * 1_048_576 for i in range(4)]
    for value in values:
        case.send(topic, [Message(value)])
    assert [record.value for record in case.read(topic, 4)] == values


@scenario
def new_partitions_are_noticed(case: Case) -> None:
    """A group takes over partitions that its topic gains."""
    topic = case.topic(partitions=1)
    consumer = case.client.consumer(case.name(), metadata_max_age_ms=300, heartbeat_interval_ms=200)
    consumer.subscribe([topic])
    case.together([consumer], lambda shares, records: shares[0] == {(topic, 0)})
    case.client.create_partitions(topic, 3)
    case.together([consumer], lambda shares, records: shares[0] == {(topic, p) for p in range(3)})


@scenario
def recreated_topic(case: Case) -> None:
    """A topic that was deleted and created again begins at 0, with none of the old records."""
    topic = case.topic()
    case.fill(topic, 9)
    case.client.delete_topic(topic)
    case.until(lambda: topic not in case.client.topics())

    def created() -> bool:
        case.client.create_topic(topic)
        return True

    case.until(created)
    case.until(lambda: 0 in case.client.describe_topic(topic).partitions)
    case.send(topic, [Message(b"new")])
    assert [(record.offset, record.value) for record in case.read(topic, 1)] == [(0, b"new")]
