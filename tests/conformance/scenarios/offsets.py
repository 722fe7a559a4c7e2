"""Offsets: the ends of a partition, times, deleting records."""

from __future__ import annotations

from tests.conformance.catalogue import FIRST_TIMESTAMP, Case, scenario
from tests.conformance.driver import Message


@scenario
def both_ends(case: Case) -> None:
    """Beginning and end of an empty and of a filled partition."""
    topic = case.topic()
    consumer = case.client.consumer()
    assert (consumer.beginning((topic, 0)), consumer.end((topic, 0))) == (0, 0)
    case.fill(topic, 12)
    assert (consumer.beginning((topic, 0)), consumer.end((topic, 0))) == (0, 12)


@scenario
def by_time(case: Case) -> None:
    """A time finds the first record that is not before it."""
    topic = case.topic()
    case.send(topic, [Message(b"%d" % i, timestamp=FIRST_TIMESTAMP + 10 * i) for i in range(50)])
    consumer = case.client.consumer()
    asked = {0: 0, FIRST_TIMESTAMP: 0, FIRST_TIMESTAMP + 100: 10, FIRST_TIMESTAMP + 101: 11}
    assert {at: consumer.offset_for_time((topic, 0), at) for at in asked} == asked


@scenario
def by_time_behind_all(case: Case) -> None:
    """A time behind all records finds nothing."""
    topic = case.topic()
    case.fill(topic, 5)
    assert case.client.consumer().offset_for_time((topic, 0), FIRST_TIMESTAMP + 100_000) is None


@scenario
def by_time_of_nothing(case: Case) -> None:
    """A time in an empty partition finds nothing."""
    topic = case.topic()
    assert case.client.consumer().offset_for_time((topic, 0), FIRST_TIMESTAMP) is None


@scenario
def by_time_out_of_order(case: Case) -> None:
    """Where times go back and forth, the first offset that has the time or a later one is found."""
    topic = case.topic()
    case.send(topic, [Message(b"v", timestamp=FIRST_TIMESTAMP + after) for after in (10, 50, 20, 60, 30)])
    consumer = case.client.consumer()
    asked = {15: 1, 50: 1, 55: 3, 60: 3}
    assert {after: consumer.offset_for_time((topic, 0), FIRST_TIMESTAMP + after) for after in asked} == asked


@scenario
def by_time_over_segments(case: Case) -> None:
    """A time is found in whichever segment it lies."""
    topic = case.topic(segment_ms=1000)
    for second in range(5):
        case.send(topic, [Message(b"v", timestamp=FIRST_TIMESTAMP + 5000 * second + i) for i in range(4)])
    consumer = case.client.consumer()
    asked = {0: 0, 3: 3, 4: 4, 5002: 6, 10_000: 8, 20_003: 19}
    assert {after: consumer.offset_for_time((topic, 0), FIRST_TIMESTAMP + after) for after in asked} == asked


@scenario
def listed(case: Case) -> None:
    """ListOffsets of the admin client: earliest, latest, at a time, behind all."""
    topic = case.topic(partitions=4)
    for partition in range(4):
        case.fill(topic, 10, partition=partition)
    case.client.delete_records(topic, {0: 4})
    asked: dict[int, str | int] = {0: "earliest", 1: "latest", 2: FIRST_TIMESTAMP + 6, 3: FIRST_TIMESTAMP + 60}
    found = case.client.list_offsets(topic, asked)
    assert {partition: offset for partition, (offset, _) in found.items()} == {0: 4, 1: 10, 2: 6, 3: -1}
    assert found[2] == (6, FIRST_TIMESTAMP + 6)


@scenario
def max_timestamp(case: Case) -> None:
    """The record with the latest time is found, wherever it lies (KIP-734)."""
    topic = case.topic(partitions=2)
    case.send(topic, [Message(b"v", timestamp=FIRST_TIMESTAMP + after) for after in (10, 70, 20)])
    found = case.client.list_offsets(topic, {0: "max_timestamp", 1: "max_timestamp"})
    assert found == {0: (1, FIRST_TIMESTAMP + 70), 1: (-1, -1)}


@scenario
def listed_of_unknown_topic(case: Case) -> None:
    """ListOffsets of a topic that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION (3)."""
    name = case.name()
    case.client.topics()
    assert case.refusal(lambda: case.client.list_offsets(name, {0: "latest"})) in (3, None)


@scenario
def delete_records(case: Case) -> None:
    """Deleting records moves the beginning, and the rest stays where it is."""
    topic = case.topic(partitions=2)
    case.fill(topic, 20, partition=0)
    case.fill(topic, 20, partition=1)
    assert case.client.delete_records(topic, {0: 7, 1: 13}) == {0: 7, 1: 13}
    consumer = case.client.consumer()
    assert [consumer.beginning((topic, p)) for p in range(2)] == [7, 13]
    assert [consumer.end((topic, p)) for p in range(2)] == [20, 20]
    assert [record.offset for record in case.take(case.reader(topic, {0: 7}), 13)] == list(range(7, 20))


@scenario
def delete_all_records(case: Case) -> None:
    """Deleting before -1 deletes everything; offsets go on from there."""
    topic = case.topic()
    case.fill(topic, 6)
    assert case.client.delete_records(topic, {0: -1}) == {0: 6}
    assert case.fill(topic, 1)[0].offset == 6
    assert [record.offset for record in case.take(case.reader(topic, {0: 6}), 1)] == [6]


@scenario
def delete_records_never_goes_back(case: Case) -> None:
    """Deleting before an offset that is deleted already changes nothing."""
    topic = case.topic()
    case.fill(topic, 10)
    case.client.delete_records(topic, {0: 6})
    assert case.client.delete_records(topic, {0: 2}) == {0: 6}
    assert case.client.consumer().beginning((topic, 0)) == 6


@scenario
def delete_records_behind_the_end(case: Case) -> None:
    """Deleting behind the end is refused with OFFSET_OUT_OF_RANGE (1)."""
    topic = case.topic()
    case.fill(topic, 5)
    assert case.refusal(lambda: case.client.delete_records(topic, {0: 6})) == 1


@scenario
def delete_records_of_compacted_topic(case: Case) -> None:
    """Deleting records of a topic that is only compacted is refused with POLICY_VIOLATION (44)."""
    topic = case.topic(cleanup_policy="compact")
    case.send(topic, [Message(b"v", b"k")])
    assert case.refusal(lambda: case.client.delete_records(topic, {0: 1})) == 44


@scenario
def times_before_deleted_records(case: Case) -> None:
    """A time that lies in deleted records finds the first that is left."""
    topic = case.topic()
    case.fill(topic, 20)
    case.client.delete_records(topic, {0: 9})
    assert case.client.consumer().offset_for_time((topic, 0), FIRST_TIMESTAMP + 3) == 9
