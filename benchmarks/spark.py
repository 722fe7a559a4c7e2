"""Spark reading Kafka: ours beside Spark's own connector, and beside what could be had at all.

One Spark session (two task slots), one broker after the other, every topic filled once. The readers take turns, round
after round, and the medians are compared, so that a slow moment of the machine hits all. Seconds are the wall time of
one action on a frame that is loaded for it; CPU is that of the JVM and the Python workers together, without the broker.

``python -m benchmarks.spark --quick``
``python -m benchmarks.spark --records 5000000 --broker triokafka --size 100 --compression none --operation noop``
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import report
from benchmarks.broker_kinds import KINDS, Instance
from benchmarks.report import save
from benchmarks.spark_jars import connector_jars
from benchmarks.spark_topics import Topic, filled, idle
from triokafka.cli.measuring.process import MeasurementError

BROKERS: Final = ("triokafka", "Apache Kafka")
SIZES: Final = (100, 1_000)
CODECS: Final = ("none", "lz4")
OPERATIONS: Final = ("noop", "count", "group by")
MODES: Final = ("batch", "available now")
READERS: Final = ("triokafka", "connector", "ceiling", "ready", "tuples")
TARGETS: Final = {"connector": 1.5, "ceiling": 0.85, "tuples": 8.0}
"""How many times as fast as each ours is to be, with 10 partitions, for ``noop``; the connector also for ``count``."""

_STREAMS: Final = ("triokafka", "connector")
_TUPLE_SHARE: Final = 10  # tuples are that much slower: they get a topic of a tenth


class Row(NamedTuple):
    """The medians of one reader in one case."""

    broker: str
    size: int
    compression: str
    mode: str
    operation: str
    reader: str
    rows: int
    seconds: float
    rows_per_second: float
    cpu_seconds_per_million: float


class Ratio(NamedTuple):
    """Ours over another reader."""

    broker: str
    size: int
    compression: str
    mode: str
    operation: str
    against: str
    ratio: float
    target: float | None


class IdleRow(NamedTuple):
    """One read of many partitions with almost nothing in them."""

    broker: str
    reader: str
    mode: str
    partitions: int
    seconds: float


class Findings(NamedTuple):
    """All of a run."""

    rows: list[Row]
    ratios: list[Ratio]
    idle: list[IdleRow]
    jars: list[str]
    failures: list[str]


class Plan(NamedTuple):
    """What to measure."""

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
                            rows += _Case(spark, plan, name, address, failures).measure(size, codec)
                    idles += _idle(spark, plan, name, address, failures)
                finally:
                    instance.kill()
    finally:
        spark.stop()
    return Findings(rows, ratios(rows), idles, [jar.name for jar in jars], failures)


class _Case:
    """The readers on one broker."""

    def __init__(self, spark: Any, plan: Plan, broker: str, address: str, failures: list[str]) -> None:
        self._spark, self._plan, self._broker, self._address = spark, plan, broker, address
        self._failures = failures

    def measure(self, size: int, codec: str) -> list[Row]:
        """All modes, operations and readers on records of one size and compression."""
        plan = self._plan
        # As many bytes of large records as of small ones, about.
        count = plan.records if size <= 100 else plan.records // 5
        topic = filled(self._address, count, plan.partitions, size, codec)
        small = filled(self._address, count // _TUPLE_SHARE, plan.partitions, size, codec)
        found: list[Row] = []
        for mode in plan.modes:
            for operation in plan.operations if mode == "batch" else plan.operations[:1]:
                chosen = [reader for reader in plan.readers if mode == "batch" or reader in _STREAMS]
                taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
                for number in range(plan.rounds + 1):
                    for reader in list(chosen):
                        of = small if reader == "tuples" else topic
                        try:
                            seconds = self._once(reader, of, size, mode, operation)
                        except Exception as error:
                            said = str(error).strip().splitlines()[:1]
                            self._failures.append(f"{self._broker}, {mode}, {operation}, {reader}: {said}")
                            chosen.remove(reader)
                            continue
                        if number:  # the first round warms everything up
                            taken[reader].append(seconds)
                for reader, times in taken.items():
                    records = small.records if reader == "tuples" else topic.records
                    wall = statistics.median(wall for wall, _ in times)
                    cpu = statistics.median(cpu for _, cpu in times)
                    found.append(
                        Row(self._broker, size, codec, mode, operation, reader, records, wall, records / wall,
                            cpu / records * 1e6)
                    )  # fmt: skip
                    print(_line(found[-1]), flush=True)
        return found

    def _once(self, reader: str, topic: Topic, size: int, mode: str, operation: str) -> tuple[float, float]:
        act = _STREAM if mode == "available now" else _OPERATIONS[operation]
        loading = self._spark.readStream if mode == "available now" else self._spark.read
        wall, cpu = time.perf_counter(), spark_cpu()
        act(loading.format(_FORMATS[reader]).options(**_options(reader, self._address, topic, size)).load())
        return time.perf_counter() - wall, spark_cpu() - cpu


_FORMATS: Final = {"triokafka": "triokafka", "connector": "kafka", "ceiling": "ceiling", "ready": "ready",
                   "tuples": "tuples"}  # fmt: skip


def _options(reader: str, address: str, topic: Topic, size: int) -> dict[str, str]:
    if reader in _STREAMS:
        return {"kafka.bootstrap.servers": address, "subscribe": topic.name, "startingOffsets": "earliest"}
    return {"bootstrap": address, "topic": topic.name, "size": str(size), "ends": str(topic.ends)}


def _noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _count(frame: Any) -> None:
    frame.count()


def _group(frame: Any) -> None:
    _noop(frame.groupBy("key").count())


def _stream(frame: Any) -> None:
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )
        query.awaitTermination()


_OPERATIONS: Final[dict[str, Callable[[Any], None]]] = {"noop": _noop, "count": _count, "group by": _group}
_STREAM: Final = _stream


def _idle(spark: Any, plan: Plan, broker: str, address: str, failures: list[str]) -> list[IdleRow]:
    """Many partitions with ten records each: what a task costs, and what putting them together saves."""
    topic = idle(address, plan.idle_partitions)
    found = []
    ways = [("triokafka", "triokafka", {}), ("triokafka maxPartitions=2", "triokafka", {"maxPartitions": "2"})]
    if "connector" in plan.readers:
        ways.append(("connector", "connector", {}))
    for mode in plan.modes:
        times: dict[str, list[float]] = defaultdict(list)
        for number in range(plan.rounds + 1):
            for label, reader, more in ways:
                loading = spark.readStream if mode == "available now" else spark.read
                options = {**_options(reader, address, topic, 100), **more}
                began = time.perf_counter()
                try:
                    frame = loading.format(_FORMATS[reader]).options(**options).load()
                    (_STREAM if mode == "available now" else _noop)(frame)
                except Exception as error:
                    if not number:
                        failures.append(f"{broker}, {mode}, idle, {label}: {str(error).strip().splitlines()[:1]}")
                    continue
                if number:
                    times[label].append(time.perf_counter() - began)
        for label, taken in times.items():
            found.append(IdleRow(broker, label, mode, plan.idle_partitions, statistics.median(taken)))
    return found


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Ours over each other reader, case by case."""
    found = []
    cases: dict[tuple[str, int, str, str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        case = (row.broker, row.size, row.compression, row.mode, row.operation)
        cases[case][row.reader] = row.rows_per_second
    for case, rates in cases.items():
        ours = rates.get("triokafka")
        for reader, rate in rates.items():
            if ours is not None and reader != "triokafka":
                aimed = case[4] == "noop" or (case[4] == "count" and reader == "connector")
                found.append(Ratio(*case, reader, ours / rate, TARGETS.get(reader) if aimed else None))
    return found


def _session(jars: Sequence[Path]) -> Any:
    import triokafka.spark
    from benchmarks import spark_readers

    # Workers import the readers from here.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")))
    triokafka.spark.prepare_java()
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
    for source in (spark_readers.CeilingSource, spark_readers.ReadySource, spark_readers.TupleSource):
        spark.dataSource.register(source)
    return spark


_ticks_seen: Final[dict[int, int]] = {}


def spark_cpu() -> float:
    """CPU seconds so far of this process's JVM and of the Python processes below it, also of those that have ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    below = {pid for pid in parents if parents[pid] == os.getpid() and _is_spark(pid)}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    _ticks_seen.update((pid, ticks[pid]) for pid in below)
    return sum(_ticks_seen.values()) / os.sysconf("SC_CLK_TCK")


def _is_spark(pid: int) -> bool:
    try:
        return b"org.apache.spark" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _line(row: Row) -> str:
    case = f"{row.broker:13} {row.size:5} B {row.compression:5} {row.mode:13} {row.operation:9}"
    return (
        f"{case} {row.reader:10} {row.rows_per_second / 1e6:7.3f} M rows/s {row.seconds:8.2f} s"
        f" {row.cpu_seconds_per_million:7.2f} CPU s/M"
    )


def show(found: Findings) -> None:
    """Print the ratios and what is about many partitions; the rows were printed as they came."""
    print(f"\nours against the others (connector: {', '.join(found.jars) or 'not measured'})")
    for ratio in found.ratios:
        aim = (
            "" if ratio.target is None else f"  (aim {ratio.target}{'' if ratio.ratio >= ratio.target else ', missed'})"
        )
        case = f"{ratio.broker:13} {ratio.size:5} B {ratio.compression:5} {ratio.mode:13} {ratio.operation:9}"
        print(f"{case} / {ratio.against:10} {ratio.ratio:6.2f}{aim}")
    for row in found.idle:
        print(f"{row.broker:13} {row.partitions} idle partitions, {row.mode:13} {row.reader:26} {row.seconds:6.2f} s")
    for failure in found.failures:
        print(f"FAILED: {failure}")


def as_document(found: Findings) -> dict[str, Any]:
    """For JSON."""
    document = report.as_document(found._replace(jars=[]))
    return {**document, "jars": found.jars}


def draw(found: Findings) -> Any:
    """Rows a second of every reader."""
    rows = [row for row in found.rows if row.operation == "noop"] or found.rows
    return report.bars(
        "million rows a second",
        lambda row: (
            f"{row.broker}, {row.size} B, {row.compression}, {row.mode}: {row.reader}",
            row.rows_per_second / 1e6,
        ),
        rows,
    )


def main() -> int:
    """Measure, print, and write JSON and a picture; 1 when something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run that shows that all of it works")
    parser.add_argument("--records", type=int, help="of 100 bytes; a fifth as many of 1,000")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--idle-partitions", type=int)
    parser.add_argument("--broker", dest="brokers", action="append", choices=BROKERS)
    parser.add_argument("--size", dest="sizes", action="append", type=int)
    parser.add_argument("--compression", dest="codecs", action="append", choices=("none", "gzip", "lz4", "zstd"))
    parser.add_argument("--operation", dest="operations", action="append", choices=OPERATIONS)
    parser.add_argument("--mode", dest="modes", action="append", choices=MODES)
    parser.add_argument("--reader", dest="readers", action="append", choices=READERS)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    plan = (QUICK if given.pop("quick") else FULL)._replace(**given)
    found = run(plan)
    show(found)
    save("spark", as_document(found), draw(found))
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
