"""Many topics on three nodes: creation, propagation, idle cost, restart and failover, and their growth with the count.

Every topic has three partitions with three replicas each. Every node is broker and controller; both brokers have the
same settings, a session timeout of three seconds among them. The clusters run one after the other. "Growth" is the
figure of the largest count over that of the smallest, divided by the growth of the count: 1 is linear.

``python -m benchmarks topics``, or ``python -m benchmarks.topics --counts 100,1000 [--ours]``.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from benchmarks.cluster_nodes import KAFKA_JARS, SMALL_JAVA, Member, Node, NodeFailedError, NodeGroup
from benchmarks.groups_wire import Wire, close, connect
from benchmarks.plots import bars
from benchmarks.processes import cpu_seconds, private_mib
from benchmarks.report import as_document, save
from triokafka.protocol.api.create_topics import CreatableTopic, CreateTopicsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

__all__ = ["as_document", "draw", "main", "run", "show"]

COUNTS: Final = (100, 1_000)
_OURS: Final = "triokafka"
_KAFKA: Final = "Apache Kafka"
_NODES: Final = 3
_PARTITIONS: Final = 3
_TIMEOUT: Final = 300.0
_PAUSE: Final = 0.05
_IDLE_SECONDS: Final = 5.0
_SINGLE_TOPICS: Final = 7
_AT_ONCE: Final = 100
"""Topics of one CreateTopics request."""
_CREATE_VERSION: Final = 7
_METADATA_VERSION: Final = 12
_SETTINGS: Final = {
    "unclean.leader.election.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
}


class Row(NamedTuple):
    """One measurement with the smallest and the largest number of topics."""

    cluster: str
    measurement: str
    unit: str
    smallest: float
    largest: float
    growth: float


class Findings(NamedTuple):
    """The results of a run."""

    rows: list[Row]
    failures: list[str]


class _Progress(dict[tuple[str, str], float]):
    """Measurements by name and unit; each is shown when it is taken."""

    def __setitem__(self, key: tuple[str, str], value: float) -> None:
        print(f"    {key[0]}: {value:,.2f} {key[1]}", file=sys.stderr, flush=True)
        super().__setitem__(key, value)


class _Cluster:
    """A running cluster to which topics are added."""

    def __init__(self, group: NodeGroup) -> None:
        self._group = group
        self._topics = 0

    async def measure(self, count: int) -> dict[tuple[str, str], float]:
        """Take every measurement once, beginning with an empty cluster."""
        found = _Progress()
        await self._until(lambda: self._registered(), "registered brokers")

        spent, began = self._cpu(), time.perf_counter()
        for first in range(0, count, _AT_ONCE):
            await self._create(min(_AT_ONCE, count - first))
        found["creation, until answered", "s"] = time.perf_counter() - began
        await self._until(lambda: self._visible(count), "all topics on all brokers")
        found["creation, until all brokers serve them", "s"] = time.perf_counter() - began
        await self._until(lambda: self._in_sync(), "all replicas in sync")
        found["creation, processor time of all nodes", "s"] = self._cpu() - spent

        took = []
        for _ in range(_SINGLE_TOPICS):
            began = time.perf_counter()
            await self._create(1)
            await self._until(lambda: self._visible(1), "the new topic on all brokers", pause=0.002)
            took.append((time.perf_counter() - began) * 1000)
        found["one more topic, until all brokers serve it", "ms"] = statistics.median(took)

        await self._until(lambda: self._in_sync(), "all replicas in sync")
        spent = self._cpu()
        await trio.sleep(_IDLE_SECONDS)
        found["idle, processor time of all nodes", "ms/s"] = (self._cpu() - spent) / _IDLE_SECONDS * 1000
        found["memory, all nodes", "MiB"] = sum(private_mib(node.pid) for node in self._group.nodes.values())

        node = self._group.nodes[_NODES]
        began = time.perf_counter()
        await trio.to_thread.run_sync(node.end, signal.SIGTERM)
        found["controlled shutdown of a node", "s"] = time.perf_counter() - began
        await self._until(lambda: self._led_without(node), "leaders on the other nodes")
        found["start of the node, until in sync", "s"] = await self._start(node)

        # Without preferred elections a freshly started node leads nothing: kill the node that leads most partitions.
        victim = await self._busiest()
        began = time.perf_counter()
        victim.end(signal.SIGKILL)
        await self._until(lambda: self._led_without(victim), "leaders after the kill")
        found["failover of a killed node's leaders", "s"] = time.perf_counter() - began
        found["start of the killed node, until in sync", "s"] = await self._start(victim)
        return found

    def _cpu(self) -> float:
        return sum(cpu_seconds(node.pid) for node in self._group.nodes.values())

    async def _start(self, node: Node) -> float:
        began = time.perf_counter()
        node.start()
        await trio.to_thread.run_sync(node.wait_until_listening)
        await self._until(lambda: self._in_sync(), "all replicas in sync")
        return time.perf_counter() - began

    async def _create(self, count: int) -> None:
        topics = [
            CreatableTopic(name=f"topic-{self._topics + n:06}", num_partitions=_PARTITIONS, replication_factor=_NODES)
            for n in range(count)
        ]
        wires = await connect(self._group.brokers[0].address, 1)
        try:
            request = CreateTopicsRequest(topics=topics, timeout_ms=int(_TIMEOUT * 1000))
            answer = await wires[0].ask(request, _CREATE_VERSION)
        finally:
            await close(wires)
        if failed := [topic for topic in answer.topics if topic.error_code]:
            raise NodeFailedError(f"topic {failed[0].name}: error {failed[0].error_code}: {failed[0].error_message}")
        self._topics += count

    async def _until(self, condition: Callable[[], Any], what: str, *, pause: float = _PAUSE) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while not await condition():
            if time.monotonic() > deadline:
                raise NodeFailedError(f"no {what} within {_TIMEOUT:.0f} s")
            await trio.sleep(pause)

    # --- what the brokers say ---

    async def _topics_of(self, node: Node, names: Sequence[str] | None) -> Sequence[MetadataResponseTopic]:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        wires: list[Wire] = []
        try:
            wires = await connect(node.address, 1)
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            return (await wires[0].ask(request, _METADATA_VERSION)).topics
        except (OSError, trio.BrokenResourceError):
            return ()  # it starts or stops
        finally:
            await close(wires)

    async def _registered(self) -> bool:
        wires: list[Wire] = []
        try:
            wires = await connect(self._group.brokers[0].address, 1)
            answer = await wires[0].ask(MetadataRequest(topics=[]), _METADATA_VERSION)
        except (OSError, trio.BrokenResourceError):
            return False
        finally:
            await close(wires)
        return len(answer.brokers) == _NODES

    async def _visible(self, count: int) -> bool:
        """Whether all running brokers know the newest topic; with more of them, all topics and their leaders."""
        names = None if count > 1 else [f"topic-{self._topics - 1:06}"]
        for node in self._group.brokers:
            if node.running:
                found = await self._topics_of(node, names)
                if len(found) < count or not all(_is_led(topic) for topic in found):
                    return False
        return True

    async def _in_sync(self) -> bool:
        for node in self._group.brokers:
            found = await self._topics_of(node, None)
            if len(found) < self._topics:
                return False
            if not all(len(partition.isr_nodes) == _NODES for topic in found for partition in topic.partitions):
                return False
        return True

    async def _led_without(self, down: Node) -> bool:
        for node in self._group.brokers:
            if node is not down:
                found = await self._topics_of(node, None)
                leaders = {partition.leader_id for topic in found for partition in topic.partitions}
                if len(found) < self._topics or not leaders or leaders & {down.number, -1}:
                    return False
        return True

    async def _busiest(self) -> Node:
        counts = dict.fromkeys(self._group.nodes, 0)
        for topic in await self._topics_of(self._group.brokers[0], None):
            for partition in topic.partitions:
                counts[partition.leader_id] += 1
        # Two nodes share the leaders about evenly after the shutdown of the third.
        return self._group.nodes[max(counts, key=counts.__getitem__)]


def _is_led(topic: MetadataResponseTopic) -> bool:
    return (
        not topic.error_code
        and len(topic.partitions) == _PARTITIONS
        and all(partition.leader_id >= 0 for partition in topic.partitions)
    )


def _measure(kafka: bool, count: int) -> dict[tuple[str, str], float]:
    members = [Member(number, kafka=kafka) for number in range(1, _NODES + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-topics-", ignore_cleanup_errors=True) as directory,
        NodeGroup(Path(directory), members, _SETTINGS, java=SMALL_JAVA) as group,
    ):
        return trio.run(_Cluster(group).measure, count)


def run(counts: Sequence[int] = COUNTS, *, ours_only: bool = False) -> Findings:
    """Measure both clusters with every number of topics."""
    names = [_OURS]
    failures = []
    if not ours_only:
        if any(KAFKA_JARS.glob("kafka_2*.jar")):
            names.append(_KAFKA)
        else:
            failures.append("Apache Kafka is not measured: its jars are not there: `make interop` fetches them")
    rows = []
    for name in names:
        found: list[dict[tuple[str, str], float]] = []
        for count in counts:
            print(f"  {name}: {count} topics", file=sys.stderr, flush=True)
            try:
                found.append(_measure(name == _KAFKA, count))
            except NodeFailedError as error:
                failures.append(f"{name}, {count} topics: {error}")
        if len(found) == len(counts):
            for key, smallest in found[0].items():
                largest = found[-1][key]
                growth = largest / smallest / (counts[-1] / counts[0]) if smallest else float("nan")
                rows.append(Row(name, *key, smallest, largest, growth))
    return Findings(rows, failures)


def show(found: Findings) -> None:
    """Print the table."""
    print(
        f"\n  {'cluster':14} {'three partitions, three replicas':42} {'unit':5} {'few':>10} {'many':>10} {'growth':>7}"
    )
    for row in found.rows:
        print(
            f"  {row.cluster:14} {row.measurement:42} {row.unit:5} {row.smallest:10,.2f} {row.largest:10,.2f}"
            f" {row.growth:7.2f}"
        )
    for failure in found.failures:
        print(f"  FAILED: {failure}")


def draw(found: Findings) -> Any:
    """A bar for the growth of each measurement."""
    rows: Sequence[Row] = found.rows or [Row("", "nothing was measured", "", 0, 0, 0)]
    return bars(
        "How cost grows with the number of topics: 1 is growth in proportion, less is better",
        "growth with the count of topics (1 is linear)",
        lambda row: (f"{row.cluster}: {row.measurement}", row.growth),
        rows,
        even=1,
    )


def main() -> int:
    """Run the table. Return 1 if a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.topics", description=__doc__)
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="how many topics, the fewest first")
    parser.add_argument("--ours", action="store_true", help="do not measure Apache Kafka")
    chosen = parser.parse_args()
    found = run([int(count) for count in chosen.counts.split(",")], ours_only=chosen.ours)
    show(found)
    save("topics", as_document(found), draw(found))
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
