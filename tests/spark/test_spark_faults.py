"""Faults during queries in Spark: no row is lost or repeated, in a batch or in a sink that identifies batches by
number.

All tests are in the long profile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.changing_topics import Topic
from tests.spark.engine import SparkQuery, values
from tests.spark.topics import Record
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.long

QUICK = {"fetchOffset.retryIntervalMs": "10", "startingOffsets": "earliest"}
# The prefetch is small, so that most of a read happens after the fault in its middle.
LITTLE = {"kafka.prefetch.max.bytes": "1048576", "kafka.max.partition.fetch.bytes": "262144", "batchRows": "500"}
COUNT = 40_000
_PATIENCE = 180  # seconds, for a busy machine


class HeldRead:
    """A batch read whose rows pass through a user's function, which waits at the first of them until `go`."""

    def __init__(self, spark: Any, topic: Topic, place: Path, **options: str) -> None:
        self._place = place
        place.mkdir()
        given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, **LITTLE, **options}
        self._frame = spark.read.format("triokafka").options(**given).load().select("partition", "offset")

    def offsets(self) -> list[tuple[int, int]]:
        """Run it; return partition and offset of every row, sorted."""
        there, go, patience = str(self._place / "there"), str(self._place / "go"), _PATIENCE

        def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches):
                if not number:
                    Path(there).touch()
                    give_up_at = time.monotonic() + patience
                    while not Path(go).exists() and time.monotonic() < give_up_at:
                        time.sleep(0.02)
                yield batch

        found = self._frame.mapInArrow(hold, self._frame.schema).collect()
        return sorted((row["partition"], row["offset"]) for row in found)

    def in_the_middle(self, act: Callable[[], None]) -> threading.Thread:
        """Run ``act`` once rows are being read, and then release them."""

        def wait() -> None:
            until((self._place / "there").exists, "no rows were read", _PATIENCE)
            act()
            (self._place / "go").touch()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread


def large_topic(bootstrap: str) -> Topic:
    """Create two partitions, each with a dozen times as many records as are prefetched."""
    topic = Topic(bootstrap, 2)
    topic.write(Record(b"%0300d" % number, partition=number % 2) for number in range(2 * COUNT))
    return topic


def everything() -> list[tuple[int, int]]:
    """Return partition and offset of every record of `large_topic`."""
    return [(partition, offset) for partition in range(2) for offset in range(COUNT)]


def test_a_batch_continues_when_its_broker_is_killed(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    """broker killed and restarted in mid-query, in a batch: the tasks wait for it, and continue at their offsets"""
    reading = HeldRead(spark, large_topic(broker.bootstrap), tmp_path / "held")

    def restart() -> None:
        broker.kill()
        broker.start()

    killing = reading.in_the_middle(restart)
    found = reading.offsets()
    killing.join()
    assert found == everything()


def test_a_batch_whose_workers_are_killed_fails_and_is_complete_the_next_time(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    """executor's Python worker killed, in a batch: never a short result. (In local mode Spark does not retry tasks.)"""
    reading = HeldRead(spark, large_topic(bootstrap), tmp_path / "held")
    killing = reading.in_the_middle(lambda: [os.kill(pid, signal.SIGKILL) for pid in workers_of(spark)].clear())  # type: ignore[func-returns-value]
    with pytest.raises(Exception, match="Python worker"):
        reading.offsets()
    killing.join()
    assert reading.offsets() == everything()


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("change", ["cut", "made anew"])
def test_a_topic_changed_during_a_batch_is_an_error_or_skipped(
    spark: Any, bootstrap: str, tmp_path: Path, change: str, fails: str
) -> None:
    """topic truncated or recreated under a batch, in the middle of its tasks"""
    topic = large_topic(bootstrap)
    # A task that starts after that finds an empty log, and waits for records.
    patience = {"kafkaConsumer.pollTimeoutMs": "10000"}
    reading = HeldRead(spark, topic, tmp_path / "held", failOnDataLoss=fails, **patience)

    def act() -> None:
        if change == "cut":
            for partition in range(2):
                topic.cut(COUNT - 100, partition)
        else:
            topic.delete()
            topic.create()

    changing = reading.in_the_middle(act)
    if fails == "true":
        with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS\."):
            reading.offsets()
        changing.join()
        return
    found = reading.offsets()
    changing.join()
    assert len(found) == len(set(found)) < 2 * COUNT
    for partition in range(2):
        mine = [offset for number, offset in found if number == partition]
        end = [*range(COUNT - 100, COUNT)] if change == "cut" else []
        before = mine[: len(mine) - len(end)]
        assert before == list(range(len(before)))
        assert mine[len(before) :] == end


@pytest.mark.parametrize("change", ["cut", "made anew", "made anew with more"])
def test_a_topic_changed_during_a_query_is_an_error_or_skipped(
    spark: Any, bootstrap: str, tmp_path: Path, change: str
) -> None:
    """topic truncated or recreated under a running query; its checkpoint resumed with failOnDataLoss=false, and true"""
    topic = Topic(bootstrap, 1)
    topic.add(range(20))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, **QUICK, "maxOffsetsPerTrigger": "5"}
    asked = SparkQuery(spark, tmp_path / "checkpoint", given)

    def after_the_second(number: int) -> None:
        if number == 1 and change == "cut":
            topic.cut(13)
        elif number == 1:
            topic.delete()
            topic.create()
            topic.add(range(100, 103 if change == "made anew" else 130))

    asked.in_batch = after_the_second
    asked.start()
    with pytest.raises(Exception, match="KAFKA_DATA_LOSS"):
        asked.process_all()
    assert values(asked) == list(range(10))
    asked.start(failOnDataLoss="false")
    asked.process_all()
    asked.stop()
    asked.start()
    topic.add([200, 201])
    asked.process_all()
    asked.stop()
    # Records of a recreated topic below the offset already reached are not read.
    left = {"cut": range(13, 20), "made anew": (), "made anew with more": range(110, 130)}[change]
    assert values(asked) == [*range(10), *left, 200, 201]


def test_a_query_continues_when_its_broker_is_killed(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    """broker killed and restarted in mid-query"""
    topic = Topic(broker.bootstrap, 2)
    topic.add(range(3_000))
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic.name, **QUICK}
    asked = SparkQuery(spark, tmp_path / "checkpoint", {**given, "maxOffsetsPerTrigger": "1000"})
    killed: list[int] = []

    def kill(number: int) -> None:
        if number in (1, 3) and number not in killed:
            killed.append(number)
            broker.kill()
            broker.start()

    asked.in_batch = kill
    asked.start()
    asked.process_all()
    topic.add(range(3_000, 6_000))
    asked.process_all()
    asked.stop()
    assert killed == [1, 3]
    assert values(asked) == list(range(6_000))


def test_a_killed_python_worker_loses_and_repeats_no_row(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """executor's Python worker killed: the query fails, or Spark retries the task; then it is restarted"""
    topic = Topic(bootstrap, 2)
    topic.add(range(1_000))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, **QUICK}
    asked = SparkQuery(spark, tmp_path / "checkpoint", {**given, "maxOffsetsPerTrigger": "500"})
    killed: list[int] = []

    def kill(number: int) -> None:
        if number == 1 and not killed:
            killed.extend(workers_of(spark))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    asked.in_batch = kill
    asked.start()
    try:
        asked.process_all()
    except Exception:
        asked.start()
        asked.process_all()
    topic.add(range(1_000, 2_000))
    asked.process_all()
    asked.stop()
    assert killed
    assert values(asked) == list(range(2_000))


def test_a_killed_planning_process_ends_the_query_and_loses_no_row(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """the driver's Python process killed, which requests offsets and plans batches: after a restart, the query
    continues
    """
    topic = Topic(bootstrap, 2)
    topic.add(range(1_000))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, **QUICK}
    asked = SparkQuery(spark, tmp_path / "checkpoint", {**given, "maxOffsetsPerTrigger": "300"})
    killed: list[int] = []

    def kill(number: int) -> None:
        if number == 1 and not killed:
            killed.extend(planners_of(spark))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    asked.in_batch = kill
    asked.start()
    with pytest.raises(Exception, match=r"(?i)python|EOF|broken pipe|reset"):
        asked.process_all()
    assert killed
    topic.add(range(1_000, 2_000))
    asked.start()
    asked.process_all()
    asked.stop()
    assert values(asked) == list(range(2_000))


def test_a_query_stopped_in_mid_read_reads_its_batch_again(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """Spark kills the workers during the reads; the batch is in the log of offsets, and not in that of commits."""
    topic = large_topic(bootstrap)
    there, go, patience = str(tmp_path / "there"), str(tmp_path / "go"), _PATIENCE
    found: dict[int, list[tuple[int, int]]] = {}

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            Path(there).touch()
            give_up_at = time.monotonic() + patience
            while not Path(go).exists() and time.monotonic() < give_up_at:
                time.sleep(0.02)
            yield batch

    def keep(frame: Any, number: int) -> None:
        found[number] = sorted((row["partition"], row["offset"]) for row in frame.collect())

    def start() -> Any:
        given = {"kafka.bootstrap.servers": topic.bootstrap, "subscribe": topic.name, **QUICK, **LITTLE}
        frame = spark.readStream.format("triokafka").options(**given).load().select("partition", "offset")
        writer = frame.mapInArrow(hold, frame.schema).writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()

    query = start()
    until(Path(there).exists, "no rows were read", _PATIENCE)
    query.stop()
    assert found == {}
    Path(go).touch()
    assert start().awaitTermination(_PATIENCE)
    assert found == {0: everything()}


def workers_of(spark: Any) -> list[int]:
    """Return the process ids of the Python workers of this session: the children of its daemon."""
    jvm = spark.sparkContext._gateway.proc.pid
    return [worker for daemon in children(jvm) for worker in children(daemon)]


def planners_of(spark: Any) -> list[int]:
    """Return the process ids of the Python processes that plan the streaming queries of this session."""
    jvm = spark.sparkContext._gateway.proc.pid
    return [
        pid for pid in children(jvm) if b"python_streaming_source_runner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            found += [int(word) for word in (task / "children").read_text().split()]
    return found
