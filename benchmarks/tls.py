"""TLS: triokafka, confluent-kafka and the Java client: producing, consuming, connecting, re-authentication.

One broker process of ours has a plaintext, an SSL and a SASL_SSL listener. Each measurement runs in its own process;
the clients take turns, round after round, and the medians are compared. The Java client needs ``mvn`` and a JDK. Two of
its runs are compared, with `_JAVA_FEW` and `_JAVA_MANY` times the work of the others: the difference has neither the
start of the JVM nor most of its compilation.

``python -m benchmarks.tls --records 500000 --rounds 3 --size 100``
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

import triokafka
from benchmarks.cluster_nodes import FULL_JAVA
from benchmarks.plots import bars
from triokafka.cli.cluster.free_ports import free_ports
from triokafka.cli.load.brokers import MeasurementError

USER: Final = "alice"
PASSWORD: Final = "s3cret"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
GOAL: Final = 1.5
"""Our records per processor second over confluent-kafka's, with TLS."""
_BATCH: Final = 131_072
_CONNECTIONS: Final = 100
_JAVA_FEW: Final = 2
_JAVA_MANY: Final = 5
_JAVA_TOPIC: Final = "java"
_TIMEOUT: Final = 600


class Task(NamedTuple):
    """One measurement, as its process receives it. ``records`` are connections if ``what`` is ``connect``."""

    client: str
    what: str
    protocol: str
    bootstrap: str
    authority: str
    plaintext: str
    records: int
    size: int


class Row(NamedTuple):
    """The medians of one client: records or connections for each second, and for each processor second."""

    client: str
    what: str
    protocol: str
    per_second: float
    per_processor_second: float


class Findings(NamedTuple):
    """All rows, and the times of acknowledgements in ms by session: the 99th percentile and the maximum."""

    rows: list[Row]
    sessions: dict[str, tuple[float, float]]


def _our_options(task: Task) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": task.bootstrap, "security_protocol": task.protocol}
    if task.protocol != "PLAINTEXT":
        options["ssl_cafile"] = task.authority
    if task.protocol == "SASL_SSL":
        options |= {"sasl_mechanism": "PLAIN", "sasl_username": USER, "sasl_password": PASSWORD}
    return options


def _their_options(task: Task) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap.servers": task.bootstrap, "security.protocol": task.protocol}
    if task.protocol != "PLAINTEXT":
        options["ssl.ca.location"] = task.authority
    if task.protocol == "SASL_SSL":
        options |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    return options


class _Meter:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def rates(self, records: int) -> tuple[float, float]:
        return records / (time.perf_counter() - self._wall), records / (time.process_time() - self._cpu)


def _ours(task: Task) -> tuple[float, float]:
    async def produce() -> tuple[float, float]:
        value = os.urandom(task.size)
        async with triokafka.Producer(
            **_our_options(task), acks="all", linger_ms=5, batch_size=_BATCH, buffer_memory=1 << 28
        ) as producer:
            await (await producer.send("bench", value, partition=0))
            stream = await producer.bind("bench", partition=0)
            meter = _Meter()
            for _ in range(task.records):
                await stream.send(value)
            await producer.flush()
            return meter.rates(task.records)

    async def consume() -> tuple[float, float]:
        partition = triokafka.TopicPartition("bench", 0)
        async with triokafka.Consumer(**_our_options(task)) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            got = len((await consumer.poll(timeout_ms=30_000, max_records=1))[partition])
            meter = _Meter()
            while got < task.records:
                for records in (await consumer.poll(timeout_ms=1000, max_records=10_000)).values():
                    for record in records:
                        _ = record.value
                    got += len(records)
            return meter.rates(got)

    async def connect() -> tuple[float, float]:
        async def once() -> None:
            async with triokafka.AdminClient(**_our_options(task)) as admin:
                await admin.list_topics()

        await once()
        meter = _Meter()
        for _ in range(task.records):
            await once()
        return meter.rates(task.records)

    async def paced() -> tuple[float, float]:
        """Send a record every 2 ms; return the 99th percentile and the maximum of the acknowledgements' times."""
        times = []
        async with triokafka.Producer(**_our_options(task), linger_ms=0) as producer:
            await (await producer.send("paced", b"v", partition=0))
            for _ in range(task.records):
                began = time.perf_counter()
                await (await producer.send("paced", b"v", partition=0))
                times.append(time.perf_counter() - began)
                await trio.sleep(0.002)
        times.sort()
        return times[int(len(times) * 0.99)] * 1000, times[-1] * 1000

    found: tuple[float, float] = trio.run(
        {"produce": produce, "consume": consume, "connect": connect, "paced": paced}[task.what]
    )
    return found


def _confluent(task: Task) -> tuple[float, float]:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

    options = _their_options(task)
    if task.what == "connect":
        AdminClient(options).list_topics(timeout=10)
        meter = _Meter()
        for _ in range(task.records):
            AdminClient(options).list_topics(timeout=10)
        return meter.rates(task.records)
    if task.what == "produce":
        value = os.urandom(task.size)
        producer = confluent_kafka.Producer(
            {
                **options, "acks": "all", "linger.ms": 5, "batch.size": _BATCH,
                "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 18,
            }
        )  # fmt: skip
        producer.produce("bench", value, partition=0)
        producer.flush(30)
        meter = _Meter()
        for _ in range(task.records):
            while True:
                try:
                    producer.produce("bench", value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
        return meter.rates(task.records)
    consumer = confluent_kafka.Consumer(
        {
            **options, "group.id": "none", "enable.auto.commit": False, "enable.auto.offset.store": False,
            "check.crcs": True, "fetch.queue.backoff.ms": 1,
        }
    )  # fmt: skip
    consumer.assign([confluent_kafka.TopicPartition("bench", 0, 0)])
    assert consumer.poll(30) is not None
    meter, got = _Meter(), 1
    while got < task.records:
        for message in consumer.consume(1000, 1.0):
            message.value()
            got += 1
    return meter.rates(got)


def _java(task: Task) -> tuple[float, float]:
    if task.what == "produce":  # the consumers read what their producers leave; earlier rounds take no room
        trio.run(_new_java_topic, task.plaintext)
    few, many = _JAVA_FEW * task.records, _JAVA_MANY * task.records
    few_wall, few_cpu = _java_seconds(task, few)
    wall, cpu = _java_seconds(task, many)
    if wall <= few_wall or cpu <= few_cpu:
        raise MeasurementError(f"Java's start takes longer than {many - few:,} x {task.what}: measure more")
    return (many - few) / (wall - few_wall), (many - few) / (cpu - few_cpu)


async def _new_java_topic(bootstrap: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        if any(topic.name == _JAVA_TOPIC for topic in await admin.list_topics()):
            await admin.delete_topics([_JAVA_TOPIC])
        await admin.create_topics([triokafka.NewTopic(_JAVA_TOPIC, 1)])


def _java_seconds(task: Task, records: int) -> tuple[float, float]:
    """Run the Java client; return the seconds and the processor seconds of its process."""
    from tests.interop import jvm

    settings = {"security.protocol": task.protocol, "bootstrap.servers": task.bootstrap}
    if task.protocol != "PLAINTEXT":
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": task.authority}
    if task.protocol == "SASL_SSL":
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        login = f'{module} required username="{USER}" password="{PASSWORD}";'
        settings |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    if task.what == "produce":
        settings |= {"acks": "all", "linger.ms": "5", "batch.size": str(_BATCH), "buffer.memory": str(1 << 28)}
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if task.what == "produce":
            command = ["org.apache.kafka.tools.ProducerPerformance", "--topic", _JAVA_TOPIC]
            command += ["--num-records", str(records), "--record-size", str(task.size), "--throughput", "-1"]
            command += ["--producer.config", str(config)]
        elif task.what == "consume":
            command = ["org.apache.kafka.tools.ConsumerPerformance", "--topic", _JAVA_TOPIC]
            command += ["--messages", str(records), "--consumer.config", str(config)]
            command += ["--bootstrap-server", task.bootstrap]
        else:
            command = ["Connects", str(config), str(records)]
        command = ["java", *FULL_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jvm.compiled(), *command]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, stdout=sys.stderr, check=True, timeout=_TIMEOUT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - began, cpu


_CLIENTS: Final[dict[str, Callable[[Task], tuple[float, float]]]] = {
    "triokafka": _ours,
    "confluent-kafka": _confluent,
    "Java": _java,
}


class Addresses(NamedTuple):
    """A running broker's listeners by protocol, and the file with its authority."""

    by_protocol: dict[str, str]
    authority: str


@contextmanager
def secured_broker(*, reauth_ms: int = 0) -> Iterator[Addresses]:
    """Run a broker with a listener for each protocol."""
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    with tempfile.TemporaryDirectory() as directory:
        store, trust = Path(directory) / "broker.pem", Path(directory) / "ca.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(store))
        authority.cert_pem.write_to_path(str(trust))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(PROTOCOLS, free_ports(3), strict=True)}
        settings = {
            "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": f"{directory}/data",
            "ssl.keystore.location": store,
            "ssl.truststore.location": trust,
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f'PlainLoginModule required user_{USER}="{PASSWORD}";',
            "connections.max.reauth.ms": reauth_ms,
            "log.segment.delete.delay.ms": 1000,
        }
        config = Path(directory) / "broker.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "triokafka", "broker", "--config", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready "), line
            yield Addresses(addresses, str(trust))
        finally:
            process.kill()
            process.communicate()


def _measure(task: Task) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.tls", "--one", json.dumps(task._asdict())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=2 * _TIMEOUT)
    first, second = json.loads(done.stdout.splitlines()[-1])
    return first, second


def run(
    *,
    records: int = 500_000,
    rounds: int = 3,
    size: int = 100,
    clients: tuple[str, ...] = tuple(_CLIENTS),
    connections: int = _CONNECTIONS,
) -> Findings:
    """Measure all clients, taking turns. Without ``connections``, only records."""
    works = [(what, protocol, records) for what in ("produce", "consume") for protocol in ("PLAINTEXT", "SSL")]
    works += [("connect", protocol, connections) for protocol in PROTOCOLS if connections]
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    with secured_broker() as broker:
        for _ in range(rounds):
            for what, protocol, count in works:
                for client in clients:
                    task = _task(broker, client, what, protocol, count, size)
                    found.setdefault((client, what, protocol), []).append(_measure(task))
    sessions = {}
    for name, reauth_ms in (("endless", 0), ("of one second", 1000)) if connections else ():
        with secured_broker(reauth_ms=reauth_ms) as broker:
            sessions[name] = _measure(_task(broker, "triokafka", "paced", "SASL_SSL", 2000, 1))
    rows = [
        Row(*key, statistics.median(one[0] for one in values), statistics.median(one[1] for one in values))
        for key, values in found.items()
    ]
    return Findings(rows, sessions)


def _task(broker: Addresses, client: str, what: str, protocol: str, count: int, size: int) -> Task:
    server, plaintext = broker.by_protocol[protocol], broker.by_protocol["PLAINTEXT"]
    return Task(client, what, protocol, server, broker.authority, plaintext, count, size)


def show(found: Findings) -> None:
    """Print the tables."""
    print(f"{'client':16} {'what':8} {'protocol':10} {'records or':>12} {'the same for':>14}")
    print(f"{'':16} {'':8} {'':10} {'connects/s':>12} {'each CPU s':>14}")
    rates = {(row.client, row.what, row.protocol): row.per_processor_second for row in found.rows}
    for row in found.rows:
        print(
            f"{row.client:16} {row.what:8} {row.protocol:10} {row.per_second:12,.0f} {row.per_processor_second:14,.0f}"
        )
    for (client, what, protocol), rate in rates.items():
        theirs = rates.get(("confluent-kafka", what, protocol))
        if client == "triokafka" and theirs:
            goal = f" (goal: {GOAL})" if protocol == "SSL" and what != "connect" else ""
            print(f"{what} over {protocol}: {rate / theirs:.2f} x confluent-kafka for each processor second{goal}")
    for name, (p99, worst) in found.sessions.items():
        print(f"a record every 2 ms over SASL_SSL, sessions {name}: p99 {p99:.1f} ms, worst {worst:.1f} ms")


def as_document(found: Findings) -> dict[str, Any]:
    """Return the findings for JSON."""
    return {"rows": [row._asdict() for row in found.rows], "sessions": found.sessions}


def draw(found: Findings) -> Any:
    """Return the picture: rates for each processor second."""
    return bars(
        "What encryption costs: records for each second of processor time",
        "million records for each processor second (longer is better)",
        lambda row: (f"{row.client} {row.what} {row.protocol}", row.per_processor_second / 1e6),
        [row for row in found.rows if row.what != "connect"],
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--clients", nargs="*", default=list(_CLIENTS), choices=list(_CLIENTS))
    parser.add_argument("--connections", type=int, default=_CONNECTIONS, help="0: measure only records")
    parser.add_argument("--one", metavar="TASK", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        task = Task(**json.loads(arguments.one))
        print(json.dumps(_CLIENTS[task.client](task)), flush=True)
        os._exit(0)  # some clients need a while to exit
    found = run(
        records=arguments.records,
        rounds=arguments.rounds,
        size=arguments.size,
        clients=tuple(arguments.clients),
        connections=arguments.connections,
    )
    show(found)


if __name__ == "__main__":
    main()
