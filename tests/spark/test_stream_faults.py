"""Streaming queries through faults: no row is lost or repeated in a sink that identifies batches by number.

Brokers are killed with SIGKILL here, so each test with a kill has its own. `test_spark_faults` does the same in Spark.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyspark_triokafka
import triokafka
from tests.spark.changing_topics import Topic
from tests.spark.engine import StandInQuery, values
from tests.spark.frames import frame
from tests.spark.topics import Record
from tests.support.broker_process import BrokerProcess
from triokafka.errors import KafkaError
from triokafka.spark.planning.brokers import Brokers
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.reading.topic_reader import TopicReader
from triokafka.spark.writing.topic_writer import TopicWriter
from triokafka.spark.writing.write_options import WriteOptions

QUICK = {"fetchOffset.retryIntervalMs": "10", "startingOffsets": "earliest"}


def query_of(topic: Topic, place: Path, **options: str) -> StandInQuery:
    return StandInQuery(
        place, {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, **QUICK, **options}
    )


def test_a_broker_killed_while_a_task_reads_loses_no_row(broker: BrokerProcess) -> None:
    """broker killed and restarted in mid-query: the task continues at its offset"""
    topic = Topic(broker.bootstrap, 1)
    count = 20_000
    topic.write(Record(b"%0300d" % number) for number in range(count))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic.name}
    # The prefetch is small, so that most records come from the restarted broker.
    ahead = {"kafka.prefetch.max.bytes": "1048576", "kafka.max.partition.fetch.bytes": "262144", "batchRows": "500"}
    source = pyspark_triokafka.DefaultSource({**options, **ahead})
    reader: Any = source.streamReader(source.schema())
    (task,) = reader.partitions({topic.name: {"0": 0}}, {topic.name: {"0": count}})
    batches = reader.read(task)
    found = next(batches)["offset"].to_pylist()
    broker.kill()
    broker.start()
    for batch in batches:
        found += batch["offset"].to_pylist()
    assert found == list(range(count))


def test_a_broker_that_returns_in_time_does_not_end_the_query(broker: BrokerProcess, tmp_path: Path) -> None:
    """the driver's calls wait for it"""
    topic = Topic(broker.bootstrap, 2)
    topic.add(range(10))
    query = query_of(topic, tmp_path / "checkpoint")
    query.start()
    query.process_all()
    topic.add(range(10, 20))
    broker.kill()
    coming = threading.Thread(target=broker.start)
    coming.start()
    query.process_all()
    coming.join()
    assert values(query) == list(range(20))


def test_a_missing_broker_fails_the_query_in_time_and_a_restart_loses_no_row(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """a checkpoint resumed after a fault; every driver call has a deadline"""
    topic = Topic(broker.bootstrap, 2)
    topic.add(range(10))
    query = query_of(topic, tmp_path / "checkpoint", **{"kafka.default.api.timeout.ms": "800"})
    query.start()
    query.process_all()
    topic.add(range(10, 20))
    broker.kill()
    with pytest.raises(KafkaError):
        query.process_all()
    query.stop()
    broker.start()
    # The client is still backing off, and the machine may be busy, so it has the usual time limit.
    query.start(**{"kafka.default.api.timeout.ms": "60000"})
    query.process_all()
    assert values(query) == list(range(20))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all tests of the matrix kill; it is restarted each time."""
    process = BrokerProcess(tmp_path_factory.mktemp("killed") / "data")
    process.start()
    yield process
    process.close()


@pytest.mark.parametrize("fails", ["true", pytest.param("false", marks=pytest.mark.long)])
@pytest.mark.parametrize("place", ["planning", "reading", "committing"])
@pytest.mark.parametrize("kind", ["batch", "micro-batch", pytest.param("available now", marks=pytest.mark.long)])
def test_a_broker_killed_at_any_place_loses_and_repeats_no_row(
    killed: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, place: str, fails: str
) -> None:
    """broker killed and restarted between two requests of the plan, in the middle of a task, and after the rows are in
    the sink but before Spark records that: in a batch and in micro-batches, for both values of failOnDataLoss
    """
    topic = Topic(killed.bootstrap, 2)
    count = 4_000
    topic.write(Record(b"%0300d" % number, partition=number % 2) for number in range(count))
    times: list[str] = []

    def kill() -> None:
        # Once, after the query has worked for a while.
        times.append(place)
        if len(times) == (1 if kind == "batch" else 2):
            killed.kill()
            killed.start()

    if place == "planning":
        latest = Brokers.latest

        async def killed_in_the_middle(brokers: Brokers, partitions: Any) -> Any:
            kill()
            return await latest(brokers, partitions)

        monkeypatch.setattr(Brokers, "latest", killed_in_the_middle)
    little = {"kafka.prefetch.max.bytes": "65536", "kafka.max.partition.fetch.bytes": "32768", "batchRows": "100"}
    given = {**QUICK, **little, "failOnDataLoss": fails, "commitGroupId": f"group-{topic.name}"}
    found: list[int] = []
    if kind == "batch":
        options = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, **given}
        reader = TopicReader(ReadOptions.parse(options))
        for task in reader.partitions():
            for batch in reader.read(task):
                if place == "reading":
                    kill()
                found += map(int, batch["value"].to_pylist())
        if place == "committing":
            kill()  # a batch commits no offset
    else:
        query = query_of(topic, tmp_path / "checkpoint", **given, maxOffsetsPerTrigger="1000")
        if place == "committing":
            query.in_batch = lambda number: kill()
        if place == "reading":
            query.in_task = lambda number: kill()
        query.start("available now" if kind == "available now" else "continual")
        query.process_all()
        found = values(query)
        assert len(query.batches) == 4
    assert len(times) >= 1
    assert sorted(found) == list(range(count))


def test_a_broker_killed_during_a_writing_task_loses_and_repeats_no_row(killed: BrokerProcess) -> None:
    """The producer is idempotent: retried records are in the log once, in order."""
    topic = Topic(killed.bootstrap, 1)
    given = {"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.name, "kafka.linger.ms": "0"}
    writer = TopicWriter(WriteOptions.parse(given), frame(value="binary"), False)

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            if number in (20, 40):
                killed.kill()
                killed.start()
            yield pa.record_batch({"value": [b"%d" % value for value in range(number * 100, number * 100 + 100)]})

    written = writer.write(rows()).written
    assert written.records == 6_000
    read = triokafka.read_topic(topic.name, bootstrap_servers=topic.bootstrap, columns=["value"]).read_all()
    assert [int(value) for value in read["value"].to_pylist()] == list(range(6_000))


@pytest.mark.parametrize("place", ["before the plan", "after the plan"])
def test_a_topic_truncated_during_a_query_is_an_error_or_skipped(bootstrap: str, tmp_path: Path, place: str) -> None:
    """topic truncated under a running query; failOnDataLoss=false continues at the first existing offset"""
    topic = Topic(bootstrap, 1)
    topic.add(range(5))
    query = query_of(topic, tmp_path / "checkpoint")
    query.start()
    query.process_all()
    topic.add(range(5, 15))
    if place == "before the plan":
        topic.cut(8)
    else:
        query.planned = lambda number: topic.cut(8)
    with pytest.raises(KafkaDataLossError):
        query.process_all()
    query.start(failOnDataLoss="false")
    query.process_all()
    topic.add([15])
    query.process_all()
    assert values(query) == [*range(5), *range(8, 16)]


def test_expired_records_are_skipped_and_none_is_read_twice(bootstrap: str, tmp_path: Path) -> None:
    """KafkaDontFailOnDataLossSuite: failOnDataLoss=false should not return duplicated records: microbatch"""
    topic = Topic(bootstrap, 2)
    for partition in range(2):
        topic.add_to(partition, range(partition * 100, partition * 100 + 50))
    topic.cut(30, 0)
    topic.cut(50, 1)
    topic.add_to(0, range(50, 60))
    starts = json.dumps({topic.name: {"0": 0, "1": 10}})
    query = query_of(topic, tmp_path / "checkpoint", failOnDataLoss="false", startingOffsets=starts)
    query.start()
    query.process_all()
    topic.add_to(1, [190])
    query.process_all()
    assert values(query) == [*range(30, 60), 190]


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 23))])
def test_stress_with_changing_topics_reads_no_record_twice(bootstrap: str, tmp_path: Path, seed: int) -> None:
    """KafkaDontFailOnDataLossSuite: stress test for failOnDataLoss=false; and the micro-batch suite's stress test

    A topic that was never deleted, truncated or recreated is read completely.
    """
    choose = random.Random(seed)
    numbers = iter(range(1_000_000))
    prefix = f"stress-{seed}"
    permanent = Topic(bootstrap, 2, name=f"{prefix}-kept")
    topics = [Topic(bootstrap, 1, name=f"{prefix}-{number}") for number in range(3)]
    gone: list[Topic] = []
    whole: list[int] = []
    options = {"kafka.bootstrap.servers": bootstrap, "subscribePattern": f"{prefix}-.*", "failOnDataLoss": "false"}
    query = StandInQuery(tmp_path / "checkpoint", {**QUICK, **options, "kafkaConsumer.pollTimeoutMs": "5000"})
    query.start()
    for _ in range(25):
        action = choose.choice(("write", "write", "delete", "create", "grow", "cut", "restart", "run", "run"))
        topic = choose.choice([permanent, *topics])
        if action == "write":
            written = [next(numbers) for _ in range(choose.randint(1, 20))]
            if topic is permanent:
                whole += written
            topic.add(written)
        elif action == "delete" and topic is not permanent and len(topics) > 1:
            topic.delete()
            topics.remove(topic)
            gone.append(topic)
        elif action == "create" and gone:
            again = gone.pop()
            again.create()
            topics.append(again)
        elif action == "grow":
            topic.grow(topic.partitions + 1)
        elif action == "cut" and topic is not permanent:
            topic.cut(choose.randint(0, topic.ends()[0]))
        elif action == "restart":
            query.stop()
            query.start(maxOffsetsPerTrigger=str(choose.randint(1, 30)))
        elif action == "run":
            query.process_all()
    query.process_all()
    found = values(query)
    assert len(found) == len(set(found))
    assert set(whole) <= set(found)
