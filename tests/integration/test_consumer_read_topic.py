"""``read_topic``: Arrow batches for code without Trio, from a broker process."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing

import triokafka
from tests.support.interrupts import interrupt_of_a_wait
from triokafka.client.range_session import RangeLostError
from triokafka.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from triokafka.loop_thread import loop_thread

RECORDS = 1_000


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """Create a topic with numbered records in three partitions."""

    async def fill() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, num_partitions=3, replication_factor=1)])
        async with triokafka.Producer(bootstrap_servers=bootstrap, compression_type="gzip") as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number, partition=number % 3)

    trio.run(fill)
    return topic


def wait_until_nothing_reads() -> None:
    async def wait() -> None:
        with trio.fail_after(20):
            while any(task.name == "iteration" for task in loop_thread().nursery.child_tasks):
                await trio.testing.wait_all_tasks_blocked(0.001)

    loop_thread().call(wait)


def test_a_whole_topic_becomes_one_table(bootstrap: str, filled: str) -> None:
    table = triokafka.read_topic(filled, bootstrap_servers=bootstrap).read_all()
    assert sorted(map(int, table.column("value").to_pylist())) == list(range(RECORDS))
    assert table.column_names[:5] == ["key", "value", "topic", "partition", "offset"]
    wait_until_nothing_reads()


def test_columns_are_chosen_and_a_reader_may_be_left_early(bootstrap: str, filled: str) -> None:
    reader = triokafka.read_topic(filled, bootstrap_servers=bootstrap, columns=["offset", "value"], batch_rows=100)
    assert reader.schema.names == ["offset", "value"]
    assert reader.read_next_batch().num_rows == 100
    reader.close()
    del reader
    wait_until_nothing_reads()


def test_an_interrupt_ends_a_wait_for_records_and_leaves_nothing_behind(bootstrap: str, filled: str) -> None:
    """Ctrl-C arrives in a range whose records are not there yet."""
    reader = triokafka.read_topic(filled, bootstrap_servers=bootstrap, start={0: 0}, end={0: RECORDS}, batch_rows=100)
    read = 0
    interrupt = interrupt_of_a_wait()
    with pytest.raises(KeyboardInterrupt):
        for batch in reader:
            read += batch.num_rows
            if read == 334:  # all existing records: the next read waits for up to a minute
                interrupt.start()
    interrupt.join()
    assert read == 334
    reader.close()
    del reader
    wait_until_nothing_reads()
    assert triokafka.read_topic(filled, bootstrap_servers=bootstrap).read_all().num_rows == RECORDS


@pytest.mark.parametrize("begun", [False, True])
def test_a_reader_from_before_a_fork_is_refused_in_the_child_and_continues_in_the_parent(
    bootstrap: str, filled: str, begun: bool
) -> None:
    """The reader's loop is in the parent: the child used to wait forever."""
    reader = triokafka.read_topic(filled, bootstrap_servers=bootstrap, batch_rows=100)
    read = reader.read_next_batch().num_rows if begun else 0
    child = os.fork()
    if not child:
        signal.alarm(30)  # kills a child that hangs
        status = 1
        try:
            reader.read_next_batch()
        except IllegalStateError as error:
            status = 0 if "forked" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read + reader.read_all().num_rows == RECORDS
    del reader
    wait_until_nothing_reads()


def test_a_missing_topic_is_an_error_of_the_call(bootstrap: str, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        triokafka.read_topic(topic, bootstrap_servers=bootstrap, default_api_timeout_ms=1_000)


def test_offsets_by_partition_select_the_range(bootstrap: str, filled: str) -> None:
    reader = triokafka.read_topic(filled, bootstrap_servers=bootstrap, start={0: 10, 2: "earliest"}, end={0: 12, 2: 1})  # type: ignore[arg-type]
    found = reader.read_all().select(["partition", "offset"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in found) == [(0, 10), (0, 11), (2, 0)]


def test_several_topics_become_one_table(bootstrap: str, filled: str, topic: str) -> None:
    other = f"{topic}-other"

    async def fill() -> None:
        async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_many(other, [b"x", b"y"])

    trio.run(fill)
    table = triokafka.read_topic([filled, other], bootstrap_servers=bootstrap, columns=["topic"]).read_all()
    counted = {
        row["topic"]: row["topic_count"] for row in table.group_by("topic").aggregate([("topic", "count")]).to_pylist()
    }
    assert counted == {filled: RECORDS, other: 2}


def test_a_time_range_is_read_by_the_time_of_records(bootstrap: str, topic: str) -> None:
    async def fill() -> None:
        async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_many(
                topic, [b"%d" % n for n in range(10)], timestamp_ms=[1_000_000 + n for n in range(10)]
            )

    trio.run(fill)
    for start, end in (
        (1_000_003, 1_000_007),
        (datetime.fromtimestamp(1_000.003, UTC), datetime.fromtimestamp(1_000.007, UTC)),
    ):
        table = triokafka.read_topic(topic, bootstrap_servers=bootstrap, start=start, end=end).read_all()
        assert table["value"].to_pylist() == [b"3", b"4", b"5", b"6"]


def test_offsets_beyond_the_log_end_are_an_error_not_a_short_read(bootstrap: str, filled: str) -> None:
    reader = triokafka.read_topic(
        filled, bootstrap_servers=bootstrap, start={0: 0}, end={0: RECORDS}, default_api_timeout_ms=1_000
    )
    with pytest.raises(KafkaTimeoutError, match=f"is at offset 334 of {RECORDS}"):
        reader.read_all()


def test_deleted_offsets_are_an_error_not_a_short_read(bootstrap: str, filled: str) -> None:
    async def delete() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.delete_records({triokafka.TopicPartition(filled, 0): 5})

    trio.run(delete)
    with pytest.raises(OffsetOutOfRangeError):
        triokafka.read_topic(filled, bootstrap_servers=bootstrap, start={0: 0}).read_all()


async def recreate_and_fill(bootstrap: str, topic: str, prefix: str) -> None:
    """Delete the topic if it exists, create it, and write numbers with the prefix."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        if prefix == "new":
            await admin.delete_topics([topic])
        await admin.create_topics([triokafka.NewTopic(topic, num_partitions=1, replication_factor=1)])
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, f"{prefix} {number:0300d}".encode())


def test_topic_recreated_midway_is_an_error_and_no_other_record(bootstrap: str, topic: str) -> None:
    """KIP-516: its offsets exist again, with other records. Records fetched before are returned first."""
    trio.run(recreate_and_fill, bootstrap, topic, "old")
    little: dict[str, Any] = {"prefetch_max_bytes": 20_000, "max_partition_fetch_bytes": 10_000}
    reader = triokafka.read_topic(topic, bootstrap_servers=bootstrap, batch_rows=10, columns=["value"], **little)
    values = reader.read_next_batch().column(0).to_pylist()
    trio.run(recreate_and_fill, bootstrap, topic, "new")
    with pytest.raises(RangeLostError, match="deleted and recreated after the range 0 to 1000 was chosen") as lost:
        for batch in reader:
            values += batch.column(0).to_pylist()
    assert values == [f"old {number:0300d}".encode() for number in range(len(values))]
    assert (lost.value.is_recreated, lost.value.position) == (True, len(values))


def test_topic_recreated_before_the_first_batch_is_an_error_and_no_record(bootstrap: str, topic: str) -> None:
    """KIP-516: the bounds belong to the topic that existed when they were requested."""
    trio.run(recreate_and_fill, bootstrap, topic, "old")
    reader = triokafka.read_topic(topic, bootstrap_servers=bootstrap, start={0: 3}, columns=["value"])
    trio.run(recreate_and_fill, bootstrap, topic, "new")
    with pytest.raises(RangeLostError, match="deleted and recreated after the range 3 to 1000 was chosen") as lost:
        reader.read_next_batch()
    assert (lost.value.is_recreated, lost.value.position) == (True, 3)
    assert triokafka.read_topic(topic, bootstrap_servers=bootstrap).read_all().num_rows == RECORDS
