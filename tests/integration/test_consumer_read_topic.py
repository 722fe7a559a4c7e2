"""``read_topic``: Arrow batches for code without Trio, from a broker process."""

from __future__ import annotations

import threading

import pytest
import trio

import triokafka
from triokafka.errors import UnknownTopicOrPartitionError

RECORDS = 1_000


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with numbered records in three partitions."""

    async def fill() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, num_partitions=3, replication_factor=1)])
        async with triokafka.Producer(bootstrap_servers=bootstrap, compression_type="gzip") as producer:
            for number in range(RECORDS):
                await producer.send(topic, b"%d" % number, partition=number % 3)

    trio.run(fill)
    return topic


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "triokafka iteration"]


def test_a_whole_topic_becomes_one_table(bootstrap: str, filled: str) -> None:
    table = triokafka.read_topic(filled, bootstrap_servers=bootstrap).read_all()
    assert sorted(map(int, table.column("value").to_pylist())) == list(range(RECORDS))
    assert table.column_names[:5] == ["key", "value", "topic", "partition", "offset"]
    assert not reading_threads()


def test_columns_are_chosen_and_a_reader_may_be_left_early(bootstrap: str, filled: str) -> None:
    reader = triokafka.read_topic(filled, bootstrap_servers=bootstrap, columns=["offset", "value"], batch_rows=100)
    assert reader.schema.names == ["offset", "value"]
    assert reader.read_next_batch().num_rows == 100
    reader.close()
    del reader
    assert not reading_threads()


def test_a_missing_topic_is_an_error_of_the_call(bootstrap: str, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        triokafka.read_topic(topic, bootstrap_servers=bootstrap, default_api_timeout_ms=1_000)
