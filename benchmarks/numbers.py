"""``python -m benchmarks --save-numbers``: the measured figures of README.md and the pages, in a quarter of an hour.

Each table is measured in its most telling case only, and written to ``docs/numbers/TABLE.json``: the date, the machine,
the versions, the command, how many rounds, the medians, and the figures that pages may name. ``docs.measured`` then
writes the figures into the pages. Two machines differ more than two rounds, so all tables should be measured on one.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.report import PEERS
from docs import measured
from triokafka import kernels
from triokafka.cli.load.brokers import MeasurementError

_MEASURED_PEERS: Final = (*PEERS, "uvloop", "pyspark")
_KAFKA: Final = "4.3.0"


class Figure(NamedTuple):
    """A figure that pages may name: its value, and what it is."""

    value: float
    what: str


def _rows_of_list(found: Any) -> list[dict[str, Any]]:
    return [row._asdict() for row in found]


class Source(NamedTuple):
    """A table for the pages: how to measure it, its figures, and its description."""

    about: str
    rounds: int
    measure: Callable[[int], Any]
    """Measures the table with a number of rounds."""
    figures: Callable[[Any], dict[str, Figure]]
    rows: Callable[[Any], list[dict[str, Any]]] = _rows_of_list


class Stall(NamedTuple):
    """How long a call waited after the connections of its client had gone silent."""

    fault: str
    work: str
    client: str
    seconds: float


def shown(value: float) -> str:
    """Return a figure as pages show it: with two or three significant digits."""
    if value >= 100:
        step = 10 ** max(0, len(str(int(value))) - 3)
        return f"{round(value / step) * step:,}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _module(name: str) -> Any:
    """Return the module of a table. It is imported only then: some tables need Spark or Java."""
    return import_module(f"benchmarks.{name}")


# ---- producing

_PRODUCING: Final = (
    "triokafka send",
    "triokafka send plain",
    "triokafka send_many",
    "confluent produce",
    "confluent produce_batch",
    "aiokafka send",
    "kafka-python send",
)


def _measure_produce(rounds: int) -> Any:
    from benchmarks.produce_plan import Plan, Scenario

    plan = Plan(
        (Scenario("sink", 100, "none"),), _PRODUCING, rounds={"sink": rounds}, latency_seconds=3, stall_seconds=3
    )
    return _module("produce").run(plan)


def _figures_of_produce(found: Any) -> dict[str, Figure]:
    speed = {row.client: row.records_per_second for row in found.rows}
    cpu = {row.client: row.cpu_seconds_per_million for row in found.rows}
    p99 = {row.client: row.p99_ms for row in found.latency}
    peak = {row.client: row.peak_mib for row in found.memory}
    figures = {
        "records_per_second": Figure(speed["triokafka send"], "records a second with send"),
        "many_records_per_second": Figure(speed["triokafka send_many"], "records a second with send_many"),
        "latency_p99_ms": Figure(p99["triokafka send"], "p99 latency at 5,000 records a second, ms"),
        "librdkafka_latency_p99_ms": Figure(p99["confluent produce"], "the same for confluent-kafka"),
        "stalled_mib": Figure(peak["triokafka send"], "peak MiB while the broker does not answer, 32 of them buffers"),
    }
    for name, ours, theirs in (
        ("librdkafka", "triokafka send", "confluent produce"),
        ("librdkafka_batch", "triokafka send_many", "confluent produce_batch"),
        ("aiokafka", "triokafka send", "aiokafka send"),
        ("kafka_python", "triokafka send", "kafka-python send"),
        ("plain_kafka_python", "triokafka send plain", "kafka-python send"),
    ):
        figures[name] = Figure(speed[ours] / speed[theirs], f"{ours} over {theirs}, records a second")
        figures[f"{name}_processor"] = Figure(cpu[theirs] / cpu[ours], f"{theirs} over {ours}, processor time")
    return figures


def _rows_of_produce(found: Any) -> list[dict[str, Any]]:
    return [row._asdict() for part in (found.rows, found.latency, found.memory) for row in part]


# ---- consuming

_CONSUMING: Final = (
    ("librdkafka", "triokafka poll", "confluent consume(1000)"),
    ("librdkafka_single", "triokafka async for", "confluent poll"),
    ("librdkafka_arrow", "triokafka poll_arrow", "confluent consume(1000)"),
    ("aiokafka", "triokafka poll", "aiokafka getmany"),
    ("kafka_python", "triokafka poll", "kafka-python poll"),
)


def _figures_of_consume(found: Sequence[Any]) -> dict[str, Figure]:
    rows = {row.client: row for row in found}
    figures = {
        "records_per_second": Figure(rows["triokafka poll"].records_per_second, "records a second with poll"),
        "arrow_records_per_second": Figure(rows["triokafka poll_arrow"].records_per_second, "the same with poll_arrow"),
    }
    for name, ours, theirs in _CONSUMING:
        speed = rows[ours].records_per_second / rows[theirs].records_per_second
        figures[name] = Figure(speed, f"{ours} over {theirs}, records a second")
        processor = rows[theirs].cpu_seconds_per_million / rows[ours].cpu_seconds_per_million
        figures[f"{name}_processor"] = Figure(processor, f"{theirs} over {ours}, processor time")
    return figures


# ---- the interfaces of other clients

_BLOCKING: Final = {
    "produce, defaults": "send",
    "produce, 128 KiB batches": "send_batches",
    "produce, callback each": "send_callbacks",
    "consume, poll": "poll",
    "consume, iteration": "iteration",
}
_ASYNCIO: Final = {
    "send, awaited later": "send",
    "send_and_wait, 1,000 in flight": "send_and_wait",
    "one send at a time, p50": "latency_p50",
    "one send at a time, p99": "latency_p99",
    "getmany": "getmany",
    "async for": "async_for",
    "200 consumers in one loop": "many_consumers",
}


def _figures_of_blocking(found: Sequence[Any]) -> dict[str, Figure]:
    return {
        _BLOCKING[row.scenario]: Figure(row.cpu_ratio, f"{row.scenario}: kafka-python over ours, processor time")
        for row in found
    }


def _figures_of_asyncio(found: Sequence[Any]) -> dict[str, Figure]:
    return {
        f"{_ASYNCIO[row.scenario]}{'_uvloop' if row.loop == 'uvloop' else ''}": Figure(
            row.ratio,
            f"{row.scenario}, {row.loop}: aiokafka over ours,"
            f" {'time until acknowledged' if row.unit == 'microseconds' else 'processor time'}",
        )
        for row in found
    }


# ---- Spark, mirror, cluster, broker, Java


def _measure_spark(rounds: int) -> Any:
    spark = _module("spark")
    readers = (spark.OURS, "connector", *spark.TUPLES[:1])
    return spark.run(
        spark.Plan(2_000_000, rounds, 10, 0, ("triokafka",), (100,), ("none",), ("noop",), ("batch",), readers)
    )


_SPARK: Final = {
    "connector": "Spark's own connector",
    "kafka_python_tuples": "a data source that yields kafka-python's records",
}


def _figures_of_spark(found: Any) -> dict[str, Figure]:
    figures = {}
    for ratio in found.ratios:
        name = "connector" if ratio.against == "connector" else "kafka_python_tuples"
        what = f"our reader over {_SPARK[name]}, rows a second"
        figures[name] = Figure(ratio.ratio, what)
        figures[f"{name}_processor"] = Figure(ratio.cpu_ratio, f"{what} of processor time")
    return figures


def _figures_of_mirror(found: Sequence[Any]) -> dict[str, Figure]:
    rows = {row.tool: row for row in found}
    return {
        "mirror_maker": Figure(rows["triokafka"].ratio, "records a processor second over MirrorMaker 2's"),
        "mirror_maker_exactly_once": Figure(rows["triokafka, exactly once"].ratio, "the same, exactly once"),
    }


_CLUSTER: Final = {
    "memory at rest, all nodes": "memory",
    "memory under load, all nodes": "memory_under_load",
    "produce, 1024 B": "produce",
    "produce, 1024 B, all nodes": "produce_processor",
    "consume, 1024 B": "consume",
    "consume, 1024 B, all nodes": "consume_processor",
    "acknowledgement, p50": "acknowledgement_p50",
    "acknowledgement, p99": "acknowledgement_p99",
    "longest pause, leader killed": "leader_killed",
    "longest pause, controller killed": "controller_killed",
    "longest pause, leader and controller killed": "leader_and_controller_killed",
    "longest pause, nodes restarted in turn": "rolling_restart",
    "disk to socket, one fetch at a time": "disk_to_socket",
    "catch-up of a follower": "catch_up",
    "catch-up over disk to socket": "catch_up_share",
}


def _measure_cluster(rounds: int) -> Any:
    cluster = _module("cluster")
    return cluster.run(cluster.QUICK._replace(rounds=rounds))


def _figures_of_cluster(found: Any) -> dict[str, Figure]:
    figures = {}
    for row in found.rows:
        name = _CLUSTER[row.measurement]
        figures[name] = Figure(row.ours, f"{row.measurement}, {row.unit}")
        figures[f"kafka_{name}"] = Figure(row.kafka, f"{row.measurement}, {row.unit}, of Apache Kafka")
        figures[f"{name}_ratio"] = Figure(row.better, f"{row.measurement}: how many times better than Apache Kafka")
    return figures


def _measure_transactions(rounds: int) -> Any:
    transactions = _module("transactions")
    clients = ("triokafka", "confluent-kafka", "aiokafka", "kafka-python", transactions.JAVA)
    return transactions.run(transactions.Plan(rounds, clients=clients))


def _figures_of_transactions(found: Any) -> dict[str, Figure]:
    brokers = {"triokafka": "ours", "Apache Kafka": "kafka"}
    figures = {}
    for row in found.rows:
        name, case = f"{brokers[row.broker]}.{row.client}", f"{row.client} on {row.broker}"
        figures[f"{name}.{row.records}"] = Figure(row.commit_ms, f"{case}: ms for a transaction of {row.records:,}")
        figures[f"{name}.{row.records}.flush"] = Figure(row.flush_ms, f"{case}: ms for {row.records:,}, no transaction")
    for row in found.copies:
        name, case = f"{brokers[row.broker]}.{row.client}", f"{row.client} on {row.broker}"
        figures[f"{name}.copy_p50"] = Figure(row.p50_ms, f"{case}: ms until a record is copied, p50")
        figures[f"{name}.copy_p99"] = Figure(row.p99_ms, f"{case}: ms until a record is copied, p99")
    return figures


_TLS: Final = {"small": (500_000, 100), "large": (200_000, 1_000)}
"""How many records of how many bytes."""


def _measure_tls(rounds: int) -> Any:
    run = _module("tls").run
    return {
        name: run(records=records, rounds=rounds, size=size, **({} if name == "small" else {"connections": 0}))
        for name, (records, size) in _TLS.items()
    }


def _figures_of_tls(found: Any) -> dict[str, Figure]:
    figures = {}
    for name, part in found.items():
        rates = {(row.client, row.what, row.protocol): row.per_processor_second for row in part.rows}
        for (client, what, protocol), theirs in rates.items():
            ratio = rates["triokafka", what, protocol] / theirs
            if client != "triokafka" and what != "connect":
                case = f"{what}, {_TLS[name][1]} bytes, {protocol}: our records a processor second over {client}'s"
                figures[f"{name}.{what}.{protocol}.{client}"] = Figure(ratio, case)
    for row in found["small"].rows:
        if row.what == "connect":
            case = f"{row.client}, {row.protocol}: to connect and list topics"
            name = f"{row.client}.{row.protocol}"
            figures[f"connect.{name}"] = Figure(1000 / row.per_second, f"{case}, ms")
            figures[f"connect_processor.{name}"] = Figure(
                1000 / row.per_processor_second, f"{case}, ms of processor time"
            )
    for name, (p99, worst) in found["small"].sessions.items():
        case = f"a record every 2 ms over SASL_SSL, sessions {name}: ms until acknowledged"
        figures[f"sessions.{name.replace(' ', '_')}.p99"] = Figure(p99, f"{case}, p99")
        figures[f"sessions.{name.replace(' ', '_')}.worst"] = Figure(worst, f"{case}, worst of 2,000")
    return figures


def _rows_of_tls(found: Any) -> list[dict[str, Any]]:
    return [{"bytes": _TLS[name][1]} | row._asdict() for name, part in found.items() for row in part.rows]


def _measure_silence(rounds: int) -> Any:
    silence = import_module("tests.hostile.silence")
    return [
        Stall(fault, work, client, silence.PATIENCE if seconds is None else max(0.0, seconds))
        for fault in silence.FAULTS
        for work, stalls in silence.longest_stalls(fault).items()
        for client, seconds in stalls.items()
    ]


def _figures_of_silence(found: Sequence[Stall]) -> dict[str, Figure]:
    clients = {"ours": "triokafka", "theirs": "librdkafka"}
    return {
        f"{row.fault}.{row.work}.{row.client}".replace(" ", "_"): Figure(
            row.seconds, f"{row.fault}: seconds until {row.work} of {clients[row.client]} continues, at most 90"
        )
        for row in found
    }


_TOPICS: Final = {
    "creation, until answered": "created",
    "creation, until all brokers serve them": "served",
    "creation, processor time of all nodes": "creation_processor",
    "one more topic, until all brokers serve it": "one_more",
    "idle, processor time of all nodes": "idle",
    "memory, all nodes": "memory",
    "controlled shutdown of a node": "shutdown",
    "start of the node, until in sync": "start",
    "failover of a killed node's leaders": "failover",
    "start of the killed node, until in sync": "start_after_kill",
}


def _figures_of_topics(found: Any) -> dict[str, Figure]:
    figures = {}
    for row in found.rows:
        name = _TOPICS[row.measurement]
        figures[f"{name}_few"] = Figure(row.smallest, f"{row.measurement}, {row.unit}, 100 topics")
        figures[f"{name}_many"] = Figure(row.largest, f"{row.measurement}, {row.unit}, 1,000 topics")
    return figures


def _measure_broker(rounds: int) -> Any:
    broker = _module("broker")
    plan = broker.QUICK._replace(only=("starting", "in-process"), brokers=("triokafka", "Apache Kafka"), starts=rounds)
    return broker.run(plan)


def _figures_of_broker(found: Any) -> dict[str, Figure]:
    rows = {row.broker: row for row in found.starting}
    ours, kafka = rows["triokafka"], rows["Apache Kafka"]
    return {
        "start_seconds": Figure(ours.empty_seconds, "seconds from the start to the first response"),
        "kafka_start_seconds": Figure(kafka.empty_seconds, "the same for Apache Kafka"),
        "start": Figure(kafka.empty_seconds / ours.empty_seconds, "Apache Kafka's start over ours"),
        "mib": Figure(ours.empty_mib, "MiB after the start"),
        "kafka_mib": Figure(kafka.empty_mib, "the same for Apache Kafka"),
        "memory": Figure(kafka.empty_mib / ours.empty_mib, "Apache Kafka's memory over ours"),
        "running_broker_ms": Figure(found.in_process[0].median_ms, "milliseconds until running_broker is ready"),
    }


def _rows_of_parts(found: Any) -> list[dict[str, Any]]:
    parts = (part for name, part in found._asdict().items() if name not in ("failures", "targets", "jars"))
    return [row._asdict() for part in parts for row in part]


def _figures_of_java(found: Sequence[Any]) -> dict[str, Figure]:
    ours, java = found
    return {
        "records_per_second": Figure(java.records_per_second, "records a second of the Java producer"),
        "send": Figure(ours.records_per_second / java.records_per_second, "triokafka send over the Java producer"),
    }


SOURCES: Final[dict[str, Source]] = {
    "produce": Source(
        "100-byte values to a broker that only acknowledges, one partition, acks=all, linger 5 ms, batches of 128 KiB",
        5,
        _measure_produce,
        _figures_of_produce,
        _rows_of_produce,
    ),
    "java_producer": Source(
        "triokafka's send and Kafka's own ProducerPerformance, once warmed up; settings and broker as in produce",
        3,
        lambda rounds: _module("java_producer").run(rounds=rounds),
        _figures_of_java,
    ),
    "consume": Source(
        "100-byte values of one partition, no group, checksums verified",
        3,
        lambda rounds: _module("consume").run(rounds=rounds),
        _figures_of_consume,
    ),
    "blocking": Source(
        "the same program with triokafka.blocking and with kafka-python: 100-byte values, one partition",
        3,
        lambda rounds: _module("blocking").run(rounds=rounds, share=2),
        _figures_of_blocking,
    ),
    "asyncio": Source(
        "the same program with triokafka.asyncio and with aiokafka: 100-byte values, one partition",
        3,
        lambda rounds: _module("asyncio").run(rounds=rounds, share=2),
        _figures_of_asyncio,
    ),
    "spark": Source(
        "one batch of 2 million records of 100 bytes into noop, ten partitions, two task slots",
        3,
        _measure_spark,
        _figures_of_spark,
        _rows_of_parts,
    ),
    "mirror": Source(
        "a topic of 1 million records of 500 bytes, six partitions, into a new cluster",
        2,
        lambda rounds: _module("mirror").run(records=1_000_000, rounds=rounds),
        _figures_of_mirror,
    ),
    "broker": Source(
        "start of a broker process after a clean stop, and its memory after the start",
        3,
        _measure_broker,
        _figures_of_broker,
        _rows_of_parts,
    ),
    "cluster": Source(
        "three nodes, each broker and controller, on this machine; replication factor 3, clients of librdkafka",
        1,
        _measure_cluster,
        _figures_of_cluster,
        _rows_of_parts,
    ),
    "transactions": Source(
        "transactions of 1, 100 and 10,000 records of 100 bytes, one after the other, the same records without"
        " transactions, and transactional copies; one partition",
        3,
        _measure_transactions,
        _figures_of_transactions,
        _rows_of_parts,
    ),
    "tls": Source(
        "one partition, acks=all, batches of 128 KiB, with and without TLS; records for each second of processor time",
        3,
        _measure_tls,
        _figures_of_tls,
        _rows_of_tls,
    ),
    "silence": Source(
        "one broker behind a proxy; clients with default options, whose connections all go silent at the same time."
        " Half-open: both directions lose everything, new connections work. Requests lost, answers lost: one direction"
        " loses everything. Black hole: everything is lost for five seconds, and the time counts from then on. Drip:"
        " three bytes a second pass",
        1,
        _measure_silence,
        _figures_of_silence,
    ),
    "topics": Source(
        "100 and 1,000 topics of three partitions with three replicas, on three nodes that are broker and controller",
        1,
        lambda rounds: _module("topics").run(ours_only=True),
        _figures_of_topics,
        _rows_of_parts,
    ),
}


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line[:10] == "model name"]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "load_before": round(os.getloadavg()[0], 1),
    }


def save(name: str, rounds: int | None = None) -> list[str]:
    """Measure a table, write its file, and return the failures. With failures the file stays unchanged.

    ``rounds`` replaces the table's own number of rounds.
    """
    source = SOURCES[name]
    rounds = rounds or source.rounds
    print(f"== {name}: {source.about}", flush=True)
    before, began = machine(), time.monotonic()
    try:
        found = source.measure(rounds)
    except MeasurementError as error:
        return [f"{name}: {error}"]
    failures = list(getattr(found, "failures", []))
    if failures:
        return failures
    try:
        figures = source.figures(found)
    except (KeyError, ValueError) as error:
        return [f"{name}: not everything was measured: {error!r}"]
    document = {
        "table": name,
        "about": source.about,
        "command": f"python -m benchmarks --save-numbers {name}",
        "date": datetime.now(UTC).date().isoformat(),
        "seconds": round(time.monotonic() - began),
        "rounds": rounds,
        "machine": before,
        "python": platform.python_version(),
        "kernels": kernels.implementation(),
        "versions": {"triokafka": metadata.version("triokafka"), "Apache Kafka": _KAFKA, **_versions()},
        "figures": {
            key: {"value": float(f"{one.value:.4g}"), "text": shown(one.value), "what": one.what}
            for key, one in figures.items()
        },
        "rows": [{key: _short(value) for key, value in row.items()} for row in source.rows(found)],
    }
    measured.NUMBERS.mkdir(exist_ok=True)
    (measured.NUMBERS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for key, one in figures.items():
        print(f"  {key:32} {shown(one.value):>12}  {one.what}")
    print(f"  {document['seconds']} s", flush=True)
    return []


def _versions() -> dict[str, str]:
    found = {}
    for peer in _MEASURED_PEERS:
        try:
            found[peer] = metadata.version(peer)
        except metadata.PackageNotFoundError:
            continue
    return found


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main(tables: Sequence[str], rounds: int | None = None) -> int:
    """Measure the tables, all by default, and bring the pages up to date; 1 when something failed."""
    failures = [failure for name in tables or SOURCES for failure in save(name, rounds)]
    for failure in failures:
        print(f"FAILED: {failure}")
    measured.main()
    return 1 if failures else 0
