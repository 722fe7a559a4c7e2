"""The tuple readers that the Spark benchmark compares with ours read the requested records, and leak nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import confluent_kafka
import kafka
import pytest

from benchmarks import spark_tuples
from benchmarks.spark_readers import ROWS, PartitionReader, Range, made
from benchmarks.spark_topics import Topic, filled
from benchmarks.spark_tuples import ConfluentKafkaSource, KafkaPythonSource, ReadyTupleSource, TupleSource
from tests.support.broker_process import broker_process
from triokafka.cli.load.payloads import json_values

EACH = 2 * ROWS
END = EACH - 4_655  # more than one poll, and before the end of the log
PEERS = [KafkaPythonSource, ConfluentKafkaSource]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Callable[[str], Topic]:
    found: dict[str, Topic] = {}

    def topic(codec: str) -> Topic:
        if codec not in found:
            found[codec] = filled(bootstrap, 2 * EACH, 2, 100, codec)
        return found[codec]

    return topic


@pytest.fixture
def open_clients(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The clients of others that were made and have not been closed."""
    found: list[Any] = []

    class KafkaPython(kafka.KafkaConsumer):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            found.append(self)

        def close(self, *arguments: Any, **settings: Any) -> None:
            super().close(*arguments, **settings)
            found.remove(self)

    class ConfluentKafka(confluent_kafka.Consumer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self)

        def close(self) -> None:
            super().close()
            found.remove(self)

    monkeypatch.setattr(kafka, "KafkaConsumer", KafkaPython)
    monkeypatch.setattr(confluent_kafka, "Consumer", ConfluentKafka)
    return found


def reader_of(source: Any, bootstrap: str, topic: Topic) -> PartitionReader:
    options = {"bootstrap": bootstrap, "topic": topic.name, "size": "100", "ends": str(topic.ends)}
    reader = source(options).reader(None)
    assert isinstance(reader, PartitionReader)
    return reader


@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("source", [TupleSource, *PEERS])
def test_every_record_before_the_end_comes_once_and_the_client_is_closed(
    source: Any, codec: str, bootstrap: str, topics: Callable[[str], Topic], open_clients: list[Any]
) -> None:
    topic = topics(codec)
    rows = list(reader_of(source, bootstrap, topic).read(Range(1, END)))
    assert [row[4] for row in rows] == list(range(END))
    values = json_values(100)
    assert [(row[0], row[1]) for row in rows] == [
        (b"%08d" % (number % 1_000), values[number % len(values)]) for number in range(END)
    ]
    assert {(row[2], row[3], row[6]) for row in rows} == {(topic.name, 1, 0)}
    assert all(abs((datetime.now(UTC) - row[5]).total_seconds()) < 3_600 for row in rows[:: END // 10])
    assert open_clients == []


@pytest.mark.parametrize("source", PEERS)
def test_reader_that_is_not_wanted_any_more_closes_its_client(
    source: Any, bootstrap: str, topics: Callable[[str], Topic], open_clients: list[Any]
) -> None:
    rows = reader_of(source, bootstrap, topics("none")).read(Range(0, END))
    assert next(rows)[4] == 0
    assert len(open_clients) == 1
    rows.close()
    assert open_clients == []


@pytest.mark.parametrize("source", PEERS)
def test_log_that_ends_before_the_range_is_an_error(
    source: Any,
    bootstrap: str,
    topics: Callable[[str], Topic],
    open_clients: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = reader_of(source, bootstrap, topics("none")).read(Range(0, EACH + 1))
    assert len(list(islice(rows, EACH))) == EACH
    monkeypatch.setattr(spark_tuples, "PATIENCE", 0.1)
    with pytest.raises(RuntimeError, match=f"no record at offset {EACH} for 0.1 s, and the range ends at {EACH + 1}"):
        next(rows)
    assert open_clients == []


def test_tuples_that_are_ready_are_the_batches_that_are_ready() -> None:
    """The transport is measured with both made before."""
    reader = reader_of(ReadyTupleSource, "", Topic("flights", [END]))
    rows = list(reader.read(Range(0, END)))
    assert len(rows) == END
    assert rows[:500] == [tuple(row.values()) for row in made("flights", 0, 100).slice(0, 500).to_pylist()]
