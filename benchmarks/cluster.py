"""Three nodes of triokafka beside three nodes of Apache Kafka: rates, latency, failover, catch-up and memory.

Every node is broker and controller, both clusters have the same settings, and every client is librdkafka. The clusters
run one after the other, round after round, because two cores do not carry both; the table has medians.

``python -m benchmarks cluster``, or ``python -m benchmarks.cluster --quick``.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import triokafka
from benchmarks import disk_to_socket, free_memory
from benchmarks.broker_load import STRETCH, Load
from benchmarks.broker_load import run as run_load
from benchmarks.clients.comparison import turns
from benchmarks.cluster_nodes import FULL_JAVA, KAFKA_JARS, Member, Node, NodeFailedError, NodeGroup
from benchmarks.plots import bars
from benchmarks.processes import cpu_seconds, private_mib
from benchmarks.report import as_document, save
from triokafka.cli.load.brokers import MeasurementError

__all__ = ["Plan", "as_document", "draw", "main", "run", "show"]

_OURS: Final = "triokafka"
_KAFKA: Final = "Apache Kafka"
_NODES: Final = 3
_TIMEOUT: Final = 120.0
_MILLION: Final = 1_000_000
_SETTINGS: Final = {"unclean.leader.election.enable": "false"}


class Plan(NamedTuple):
    """The measurements and their sizes."""

    rounds: int = 5
    megabytes: int = 400
    """Bytes of values in one measurement of a rate."""
    sizes: tuple[int, ...] = (100, 1024)
    latency_records: int = 2_000
    behind_megabytes: int = 1_000
    """The bytes that the follower misses before it catches up."""
    partitions: int = 6


QUICK: Final = Plan(rounds=1, megabytes=100, sizes=(1024,), latency_records=500)
"""A plan of about three minutes."""


class Row(NamedTuple):
    """The medians of one measurement; ``better`` is triokafka's advantage, above 1 in its favour."""

    measurement: str
    unit: str
    ours: float
    kafka: float
    better: float


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    failures: list[str]


Figures = dict[tuple[str, str, bool], float]
"""Values by measurement, unit, and whether a higher value is better."""


class _Cluster:
    """A running cluster under measurement."""

    def __init__(self, group: NodeGroup, plan: Plan) -> None:
        self.group = group
        self._plan = plan
        self._admin = AdminClient({"bootstrap.servers": group.bootstrap})
        self._topics = 0

    def measure(self) -> Figures:
        """Take every measurement once."""
        found: Figures = {}
        plan = self._plan
        found["memory at rest, all nodes", "MiB", False] = self._memory()
        for size in plan.sizes:
            unit = STRETCH * plan.partitions
            records = max(1, plan.megabytes * _MILLION // size // unit) * unit
            warm_up = Load(self.group.bootstrap, self._topic(plan.partitions), records, size, plan.partitions, 1)
            run_load("produce", warm_up)  # warm up the JVM's compiler
            topic = self._topic(plan.partitions)
            for direction in ("produce", "consume"):
                load = Load(self.group.bootstrap, topic, records, size, plan.partitions, 1)
                before = self._cpu()
                moved = run_load(direction, load)
                spent = (self._cpu() - before) / moved.records * _MILLION
                found[f"{direction}, {size} B", "records/s", True] = moved.per_second
                found[f"{direction}, {size} B, all nodes", "CPU s per million", False] = spent
        found["memory under load, all nodes", "MiB", False] = self._memory()
        p50, p99 = self._latency()
        found["acknowledgement, p50", "ms", False] = p50
        found["acknowledgement, p99", "ms", False] = p99
        for what in ("leader", "controller", "leader and controller"):
            found[f"longest pause, {what} killed", "s", False] = self._failover(what)
        found["longest pause, nodes restarted in turn", "s", False] = self._rolling_restart()
        sent, fetched = self._catch_up()
        found["disk to socket, one fetch at a time", "MB/s", True] = sent
        found["catch-up of a follower", "MB/s", True] = fetched
        found["catch-up over disk to socket", "ratio", True] = fetched / sent
        return found

    def _cpu(self) -> float:
        return sum(cpu_seconds(node.pid) for node in self.group.nodes.values())

    def _memory(self) -> float:
        return sum(private_mib(node.pid) for node in self.group.nodes.values())

    def _topic(self, partitions: int) -> str:
        return self._create(lambda name: NewTopic(name, partitions, _NODES))

    def _topic_led_by(self, leader: int) -> str:
        """Create a topic of one partition whose first replica is on the node ``leader``."""
        others = [number for number in self.group.nodes if number != leader]
        return self._create(lambda name: NewTopic(name, 1, replica_assignment=[[leader, *others]]))

    def _create(self, plan: Callable[[str], NewTopic]) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                self._admin.create_topics([plan(name)])[name].result(_TIMEOUT)
                break
            except KafkaException:  # not all brokers have registered yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self._wait(lambda: self._in_sync(name), f"{name} in sync")
        return name

    def _in_sync(self, topic: str) -> bool:
        found = self._admin.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions.values()
        return bool(found) and all(p.leader >= 0 and len(p.isrs) == _NODES for p in found)

    def _leader(self, topic: str) -> int:
        """Return the leader of partition 0. Ask until a broker that knows the topic answers."""
        leaders: list[int] = []

        def known() -> bool:
            partitions = self._admin.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions
            leaders.extend(partition.leader for number, partition in partitions.items() if number == 0)
            return bool(leaders)

        self._wait(known, f"leader of {topic}")
        return leaders[-1]

    def _wait(self, condition: Callable[[], bool], what: str, *, pause: float = 0.05) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise MeasurementError(f"no {what} within {_TIMEOUT:.0f} s")
            time.sleep(pause)

    def _latency(self) -> tuple[float, float]:
        """Milliseconds from sending a record of 1 KB to its acknowledgement by all replicas, one at a time."""
        topic = self._topic(1)
        producer = Producer({"bootstrap.servers": self.group.bootstrap, "linger.ms": 0, "acks": "all"})
        took = []
        for _ in range(self._plan.latency_records):
            began = time.perf_counter()
            producer.produce(topic, b"v" * 1024, partition=0)
            producer.flush(_TIMEOUT)
            took.append((time.perf_counter() - began) * 1000)
        took = sorted(took[len(took) // 10 :])
        return statistics.median(took), took[int(len(took) * 0.99)]

    def _failover(self, what: str) -> float:
        """Seconds between the acknowledgements before and after the kill of a node; a record is sent every 5 ms.

        The leader and the active controller are on two nodes, or on one for ``leader and controller``.
        """
        controller = self._active_controller()
        other = next(number for number in self.group.nodes if number != controller)
        topic = self._topic_led_by(controller if what == "leader and controller" else other)
        led_by = self._leader(topic)
        if (led_by == controller) != (what == "leader and controller"):
            raise MeasurementError(f"{topic} is led by node {led_by}, the active controller is node {controller}")
        victim = self.group.nodes[other if what == "leader" else controller]
        with _Heart(self.group.bootstrap, topic) as heart:
            heart.beats(200)
            victim.end(signal.SIGKILL)
            heart.beats(400)
        victim.start()
        victim.wait_until_listening()
        self._wait(lambda: self._in_sync(topic), f"{topic} in sync")
        return heart.longest_pause

    def _rolling_restart(self) -> float:
        """The longest pause while the nodes are restarted one after the other, each when the previous one is in
        sync."""
        topic = self._topic(1)
        with _Heart(self.group.bootstrap, topic) as heart:
            heart.beats(200)
            for node in self.group.brokers:
                node.restart(signal.SIGTERM)
                self._wait(lambda: self._in_sync(topic), f"{topic} in sync")
            heart.beats(200)
        return heart.longest_pause

    def _active_controller(self) -> int:
        # Brokers name any broker as the controller to clients: only the quorum's description names the active one.
        async def ask() -> int:
            async with triokafka.AdminClient(bootstrap_servers=self.group.bootstrap) as admin:
                return (await admin.describe_metadata_quorum()).leader_id

        return trio.run(ask)

    def _catch_up(self) -> tuple[float, float]:
        """Megabytes per second at which the leader sends the records of a follower's downtime to one connection, and at
        which the follower then fetches them, until it is in sync.

        The second time begins with the follower's first fetch; the start of the node is a separate measurement. Before,
        the disk writes what the other measurements left, and the follower's page cache gets memory that was used
        before: a measurement after others must not differ from one alone.
        """
        topic = self._topic(1)
        leader = self._leader(topic)
        follower = next(node for node in self.group.brokers if node.number != leader)
        follower.end(signal.SIGTERM)
        records = self._plan.behind_megabytes * _MILLION // 10_240 // STRETCH * STRETCH
        run_load("produce", Load(self._bootstrap_without(follower), topic, records, 10_240, 1, 1))
        os.sync()
        sent = disk_to_socket.megabytes_per_second(self.group.nodes[leader].address, topic, records)
        (log,) = follower.data.glob(f"{topic}-0")
        before, whole = _bytes_of(log), _bytes_of(self.group.nodes[leader].data / log.name)
        free_memory.use_once(3 * self._plan.behind_megabytes * _MILLION)
        follower.start()
        self._wait(lambda: _bytes_of(log) > before, f"fetch of {topic}", pause=0.001)
        began = time.perf_counter()
        # The brokers are asked when it can be true only, and then often: a longer pause would be measured as well.
        self._wait(lambda: _bytes_of(log) >= whole, f"all records of {topic}", pause=0.005)
        self._wait(lambda: self._in_sync(topic), f"{topic} in sync", pause=0.001)
        return sent, records * 10_240 / _MILLION / (time.perf_counter() - began)

    def _bootstrap_without(self, down: Node) -> str:
        return ",".join(node.address for node in self.group.brokers if node is not down)


def _bytes_of(log: Path) -> int:
    """Return the bytes of records in a log directory."""
    return sum(file.stat().st_size for file in log.glob("*.log"))


class _Heart:
    """Sends a record every 5 ms in a thread and notes the time of every acknowledgement."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "enable.idempotence": True,
                "message.timeout.ms": int(_TIMEOUT * 1000),
                "log_level": 0,
            }
        )
        self._topic = topic
        self._times: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> _Heart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        def note(error: Any, message: Any) -> None:
            if error is None:
                self._times.append(time.monotonic())

        while not self._ended.is_set():
            self._producer.produce(self._topic, b"beat", partition=0, on_delivery=note)
            self._producer.poll(0.005)
        self._producer.flush(_TIMEOUT)

    def beats(self, count: int) -> None:
        """Wait for ``count`` more acknowledgements."""
        target, deadline = len(self._times) + count, time.monotonic() + _TIMEOUT
        while len(self._times) < target:
            if time.monotonic() > deadline:
                raise MeasurementError(f"no acknowledgement within {_TIMEOUT:.0f} s of a failover")
            time.sleep(0.005)

    @property
    def longest_pause(self) -> float:
        """The longest time between two acknowledgements, in seconds."""
        return max(b - a for a, b in zip(self._times, self._times[1:], strict=False))


@contextmanager
def _running(kafka: bool, plan: Plan) -> Iterator[_Cluster]:
    members = [Member(number, kafka=kafka) for number in range(1, _NODES + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-cluster-", ignore_cleanup_errors=True) as directory,
        NodeGroup(Path(directory), members, _SETTINGS, java=FULL_JAVA) as group,
    ):
        yield _Cluster(group, plan)


def run(plan: Plan | None = None) -> Findings:
    """Measure both clusters."""
    plan = plan or Plan()
    names = [_OURS]
    failures = []
    if any(KAFKA_JARS.glob("kafka_2*.jar")):
        names.append(_KAFKA)
    else:
        failures.append("Apache Kafka is not measured: its jars are not there: `make interop` fetches them")
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(plan.rounds):
        for name in turns(names, number):
            print(f"  round {number + 1}: {name}", file=sys.stderr, flush=True)
            try:
                with _running(name == _KAFKA, plan) as cluster:
                    found[name].append(cluster.measure())
            except (MeasurementError, NodeFailedError, KafkaException, OSError) as error:
                failures.append(f"{name}, round {number + 1}: {error}")
    if not all(found.get(name) for name in (_OURS, _KAFKA)):
        return Findings([], failures)
    rows = []
    for key in found[_OURS][0]:
        what, unit, higher = key
        ours, kafka = (statistics.median(figures[key] for figures in found[name]) for name in (_OURS, _KAFKA))
        rows.append(Row(what, unit, ours, kafka, ours / kafka if higher else kafka / ours))
    return Findings(rows, failures)


def show(found: Findings) -> None:
    """Print the table."""
    print(f"\n  {'three nodes, replication factor 3':42} {'unit':18} {'triokafka':>11} {'Kafka':>11} {'better':>7}")
    for row in found.rows:
        print(f"  {row.measurement:42} {row.unit:18} {row.ours:11,.2f} {row.kafka:11,.2f} {row.better:6.2f}x")
    for failure in found.failures:
        print(f"  FAILED: {failure}")


def draw(found: Findings) -> Any:
    """A bar for each measurement."""
    rows: Sequence[Row] = found.rows or [Row("nothing was measured", "", 0, 0, 0)]
    better = sum(row.better > 1 for row in rows)
    title = f"Three nodes: better than Apache Kafka in {better} of {len(rows)} measurements"
    axis = "times better than Apache Kafka (longer is better; 1 is equal)"
    return bars(title, axis, lambda row: (f"{row.measurement} ({row.unit})", row.better), rows, even=1)


def main() -> int:
    """Run the table. Return 1 if a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about three minutes")
    parser.add_argument("--rounds", type=int, help="how often to measure each cluster")
    chosen = parser.parse_args()
    plan = QUICK if chosen.quick else Plan()
    if chosen.rounds:
        plan = plan._replace(rounds=chosen.rounds)
    found = run(plan)
    show(found)
    save("cluster", as_document(found), draw(found))
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
