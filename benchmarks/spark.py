"""Spark reading from Kafka: our reader beside Spark's own connector, and beside the theoretical limits.

One Spark session with two task slots, one broker after the other; every topic is filled once. The readers take turns,
round after round, and the medians are compared, so that a slow moment of the machine affects all. Seconds are the wall
time of one action on a frame that is loaded for it; CPU is that of the JVM and the Python workers together, without the
broker.

``python -m benchmarks.spark --quick``
``python -m benchmarks.spark --essential``: every target once, in a quarter of an hour
``python -m benchmarks.spark --records 5000000 --broker triokafka --size 100 --compression none --operation noop``

Streams apply the operation to the frame of each micro-batch. The limits are measured only beside the connector:
counting and grouping is the same work of Spark for all readers. Python processes use compiled byte code, as after an
installation.

Before it is measured, each reader must return every record of the topic exactly once. The records of each stream and
the result of each ``count`` are checked as well.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.broker_kinds import KINDS, Instance
from benchmarks.report import save
from benchmarks.spark_jars import connector_jars
from benchmarks.spark_processes import OTHERS, forget_peaks, spark_cpu, worker_peak_mib
from benchmarks.spark_rows import check_count, check_read, read_of
from benchmarks.spark_tables import (
    OURS,
    TUPLES,
    Findings,
    IdleRow,
    MemoryRow,
    Row,
    as_document,
    draw,
    line,
    ratios,
    show,
)
from benchmarks.spark_topics import Topic, filled, idle
from triokafka.cli.load.brokers import MeasurementError

BROKERS: Final = ("triokafka", "Apache Kafka")
SIZES: Final = (100, 1_000)
CODECS: Final = ("none", "lz4")
OPERATIONS: Final = ("noop", "count", "group by")
MODES: Final = ("batch", "available now")
READERS: Final = (OURS, "connector", "ceiling", "ready", *TUPLES, "ready tuples")
_STREAMS: Final = (OURS, "connector")
_MADE: Final = (
    "ceiling",
    "ready",
    "ready tuples",
)  # they yield as many rows as the topic has records, but not the topic's
_WHERE_ALL: Final = ("batch", "noop")  # the operations and modes of all readers
_SLOW: Final = (*TUPLES, "ready tuples")
_TUPLE_SHARE: Final = 10  # readers of tuples are so slow that they get a topic with a tenth of the records
_BEGINNING: Final = (
    OURS,
    "ready",
    *_SLOW,
)  # their start is measured separately, since it matters more with a tenth of the records
_LARGE: Final = 1_000_000  # the least number of records of 1,000 bytes, if there are as many small ones
_LONG: Final = 10.0  # seconds of a read of idle partitions above which only its first run is measured

WORKER_MIB: Final = 256.0
"""The memory limit of a Python worker: about 150 MiB with pyspark and pyarrow before it reads, 64 MB of fetched bytes
(``prefetch.max.bytes``), and the waiting record batches of a megabyte each (``fetchAhead``)."""


class Plan(NamedTuple):
    """The measurements and their sizes."""

    records: int
    rounds: int
    partitions: int
    idle_partitions: int
    brokers: Sequence[str]
    sizes: Sequence[int]
    codecs: Sequence[str]
    operations: Sequence[str]
    modes: Sequence[str]
    readers: Sequence[str]


QUICK: Final = Plan(200_000, 2, 4, 20, BROKERS[:1], SIZES[:1], CODECS[:1], OPERATIONS, MODES, READERS)
ESSENTIAL: Final = Plan(
    1_000_000, 2, 10, 200, BROKERS, SIZES, CODECS, OPERATIONS[:2], MODES, READERS
)  # every target, with the fewest rows that it applies to
FULL: Final = Plan(5_000_000, 5, 10, 200, BROKERS, SIZES, CODECS, OPERATIONS, MODES, READERS)


def run(plan: Plan = FULL) -> Findings:
    """Measure everything in ``plan``."""
    failures: list[str] = []
    jars: list[Path] = []
    if "connector" in plan.readers:
        try:
            jars = connector_jars()
        except MeasurementError as error:
            failures.append(str(error))
            plan = plan._replace(readers=[reader for reader in plan.readers if reader != "connector"])
    spark = _session(jars)
    rows: list[Row] = []
    idles: list[IdleRow] = []
    memory: list[MemoryRow] = []
    try:
        for name in plan.brokers:
            kind = KINDS[name]
            if kind.missing():
                failures.append(f"{name}: {kind.missing()}")
                continue
            with tempfile.TemporaryDirectory() as directory:
                instance = Instance(kind, Path(directory))
                try:
                    address = instance.start().broker.bootstrap
                    for size in plan.sizes:
                        for codec in plan.codecs:
                            case = _Case(spark, plan, name, address, failures)
                            rows += case.measure(size, codec)
                            memory += case.memory(size, codec)
                    if plan.idle_partitions:
                        idles += _idle(spark, plan, name, address, failures)
                finally:
                    instance.kill()
    finally:
        spark.stop()
    return Findings(rows, ratios(rows, plan.partitions), idles, memory, [jar.name for jar in jars], failures)


class _Case:
    """The readers on one broker."""

    def __init__(self, spark: Any, plan: Plan, broker: str, address: str, failures: list[str]) -> None:
        self._spark, self._plan, self._broker, self._address = spark, plan, broker, address
        self._failures = failures
        self._peaks: dict[str, float] = defaultdict(float)

    def measure(self, size: int, codec: str) -> list[Row]:
        """Measure all modes, operations and readers for one record size and compression."""
        plan = self._plan
        # About as many bytes of large records as of small ones.
        count = plan.records if size <= 100 else max(plan.records // 5, min(plan.records, _LARGE))
        topic = filled(self._address, count, plan.partitions, size, codec)
        small = filled(self._address, count // _TUPLE_SHARE, plan.partitions, size, codec)
        topics = {reader: small if reader in _SLOW else topic for reader in plan.readers}
        complete = [reader for reader in plan.readers if self._is_complete(reader, topics[reader], size, codec)]
        few = filled(self._address, plan.partitions, plan.partitions, size, codec)
        found: list[Row] = []
        for mode in plan.modes:
            for operation in plan.operations:
                chosen = [reader for reader in complete if reader in _STREAMS or (mode, operation) == _WHERE_ALL]
                taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
                begun: dict[str, list[tuple[float, float]]] = defaultdict(list)
                for number in range(plan.rounds + 1):
                    # Rotate the order: the state of the JVM depends on the previous reader.
                    for reader in random.Random(number).sample(chosen, len(chosen)):
                        try:
                            seconds = self._once(reader, topics[reader], size, mode, operation)
                            # Only now: workers that Spark has ended meanwhile do not belong to the start.
                            if reader in _BEGINNING and (mode, operation) == _WHERE_ALL:
                                begun[reader].append(self._once(reader, few, size, mode, operation))
                        except Exception as error:
                            said = str(error).strip().splitlines()[:1]
                            self._failures.append(f"{self._broker}, {mode}, {operation}, {reader}: {said}")
                            chosen.remove(reader)
                            continue
                        if number:  # the first round is a warm-up
                            taken[reader].append(seconds)
                for reader in sorted(taken, key=complete.index):
                    records = topics[reader].records
                    wall, cpu = _medians(taken[reader])
                    found.append(
                        Row(self._broker, size, codec, mode, operation, reader, records, wall, records / wall,
                            cpu / records * 1e6, *_medians(begun[reader][1:]))
                    )  # fmt: skip
                    print(line(found[-1]), flush=True)
        return found

    def memory(self, size: int, codec: str) -> list[MemoryRow]:
        """Return the largest workers of `measure`; the connector has none."""
        return [
            MemoryRow(self._broker, size, codec, reader, peak, WORKER_MIB if reader == "triokafka" else None)
            for reader, peak in self._peaks.items()
        ]

    def _is_complete(self, reader: str, topic: Topic, size: int, codec: str) -> bool:
        """Whether a reader returns every record exactly once."""
        options = _options(reader, self._address, topic, size)
        try:
            frame = self._spark.read.format(_format(reader)).options(**options).load()
            check_read(read_of(frame), topic.ends, offsets=reader not in _MADE)
        except Exception as error:
            said = "".join(str(error).strip().splitlines()[:1])
            self._failures.append(f"{self._broker}, {size} B, {codec}, {reader} is not complete: {said}")
            return False
        return True

    def _once(self, reader: str, topic: Topic, size: int, mode: str, operation: str) -> tuple[float, float]:
        loading = self._spark.readStream if mode == "available now" else self._spark.read
        forget_peaks()
        cpu, wall = spark_cpu(), time.perf_counter()
        frame = loading.format(_format(reader)).options(**_options(reader, self._address, topic, size)).load()
        if mode == "available now":
            query = _stream(frame, operation)
        else:
            query, counted = None, _OPERATIONS[operation](frame)
        taken = (time.perf_counter() - wall, spark_cpu() - cpu)
        if query is not None:
            counted = sum(progress.numInputRows for progress in query.recentProgress)
        if counted is not None:
            check_count(counted, topic.records)
        if reader != "connector":
            self._peaks[reader] = max(self._peaks[reader], worker_peak_mib(others=reader != OURS))
        return taken


def _medians(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of wall and processor time; zeros without measurements."""
    if not times:
        return 0.0, 0.0
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)


def _format(reader: str) -> str:
    return "kafka" if reader == "connector" else reader


def _options(reader: str, address: str, topic: Topic, size: int) -> dict[str, str]:
    if reader in _STREAMS:
        return {"kafka.bootstrap.servers": address, "subscribe": topic.name, "startingOffsets": "earliest"}
    return {"bootstrap": address, "topic": topic.name, "size": str(size), "ends": str(topic.ends)}


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _count(frame: Any) -> int:
    return int(frame.count())


def _group(frame: Any) -> None:
    _noop(frame.groupBy("key").count())


def _stream(frame: Any, operation: str) -> Any:
    act = _OPERATIONS[operation]
    writer = frame.writeStream
    to = writer.format("noop") if operation == "noop" else writer.foreachBatch(lambda batch, number: act(batch))
    with tempfile.TemporaryDirectory() as checkpoint:
        query = to.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
    return query


_OPERATIONS: Final[dict[str, Callable[[Any], int | None]]] = {"noop": _noop, "count": _count, "group by": _group}


def _idle(spark: Any, plan: Plan, broker: str, address: str, failures: list[str]) -> list[IdleRow]:
    """Measure many partitions with ten records each: the cost of a task, and the gain of combining partitions."""
    many, two = idle(address, plan.idle_partitions), idle(address, 2)
    found = []
    ways: list[tuple[str, str, Topic, dict[str, str]]] = [
        ("triokafka", "triokafka", many, {}),
        ("triokafka maxPartitions=2", "triokafka", many, {"maxPartitions": "2"}),
        ("triokafka, of two", "triokafka", two, {}),
    ]
    if "connector" in plan.readers:
        ways.append(("connector", "connector", many, {}))
    for mode in plan.modes:
        times: dict[str, list[float]] = defaultdict(list)
        for number in range(plan.rounds + 1):
            for label, reader, topic, more in ways:
                if times[label] and times[label][0] > _LONG:
                    continue
                loading = spark.readStream if mode == "available now" else spark.read
                options = {**_options(reader, address, topic, 100), **more}
                began = time.perf_counter()
                try:
                    frame = loading.format(_format(reader)).options(**options).load()
                    if mode == "available now":
                        _stream(frame, "noop")
                    else:
                        _noop(frame)
                except Exception as error:
                    if not number:
                        failures.append(f"{broker}, {mode}, idle, {label}: {str(error).strip().splitlines()[:1]}")
                    continue
                seconds = time.perf_counter() - began
                if number or seconds > _LONG:
                    times[label].append(seconds)
        for label, _, topic, _ in ways:
            if times[label]:
                found.append(IdleRow(broker, label, mode, len(topic.ends), statistics.median(times[label])))
    return found


def _session(jars: Sequence[Path]) -> Any:
    import triokafka.spark
    from benchmarks import spark_readers, spark_tuples

    # Whatever the environment of this process says: an installed package has byte code, and so has Spark's.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Workers import the readers from here.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")))
    triokafka.spark.prepare_java()
    triokafka.spark.prepare_home()
    from pyspark.sql import SparkSession

    settings = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    builder = SparkSession.builder.master("local[2]").appName("triokafka benchmark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    # Spark stores this with the source; workers with another environment are separate.
    spark.sparkContext.environment[OTHERS] = "1"
    for source in (
        spark_readers.CeilingSource,
        spark_readers.ReadySource,
        spark_tuples.TupleSource,
        spark_tuples.KafkaPythonSource,
        spark_tuples.ConfluentKafkaSource,
        spark_tuples.ReadyTupleSource,
    ):
        spark.dataSource.register(source)
    del spark.sparkContext.environment[OTHERS]
    return spark


def main() -> int:
    """Measure, print, and write JSON and a picture. Return 1 if a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run that shows that all of it works")
    parser.add_argument(
        "--essential", action="store_true", help="every floor once: a quarter of an hour on a quiet machine"
    )
    parser.add_argument(
        "--records", type=int, help="of 100 bytes; a fifth as many of 1,000, but a million if it can be"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--idle-partitions", type=int, help="0 leaves that measurement out")
    parser.add_argument("--broker", dest="brokers", action="append", choices=BROKERS)
    parser.add_argument("--size", dest="sizes", action="append", type=int)
    parser.add_argument("--compression", dest="codecs", action="append", choices=("none", "gzip", "lz4", "zstd"))
    parser.add_argument("--operation", dest="operations", action="append", choices=OPERATIONS)
    parser.add_argument("--mode", dest="modes", action="append", choices=MODES)
    parser.add_argument("--reader", dest="readers", action="append", choices=READERS)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    quick, essential = given.pop("quick"), given.pop("essential")
    plan = (QUICK if quick else ESSENTIAL if essential else FULL)._replace(**given)
    found = run(plan)
    show(found)
    save("spark", as_document(found), draw(found))
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
