"""The demo, step by step: a broker or a cluster, 336,776 flights, a group that changes under load, Spark, comparisons.

With a cluster, three nodes are killed meanwhile, and started again: the leader of a partition while records are sent,
the group's coordinator and the active controller while records are read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import triokafka
from triokafka.cli.demo.flights import Flight, flights, totals_from_csv
from triokafka.cli.demo.group import DemoMember, GroupLog
from triokafka.cli.demo.outages import DemoCluster, demo_cluster
from triokafka.cli.demo.report import Findings, Outage, Rebalance
from triokafka.cli.demo.spark_job import totals_from_spark
from triokafka.errors import KafkaError, KafkaTimeoutError

TOPIC = "flights"
PARTITIONS = 6
GROUP = "flight-watchers"
_STEP_TIMEOUT = 600  # seconds for the group to handle every flight; a busy machine has needed 98
_WATCHED_PARTITION = 0
_DOWN_SECONDS = 5  # longer than the brokers' session timeout in the demo, so that the cluster must do without the node
_SAMPLE_SECONDS = 0.05


class BrokerFailedError(KafkaError):
    """The demo's broker process did not start, or exited."""


@asynccontextmanager
async def broker_process(data_directory: str) -> AsyncIterator[str]:
    """Run ``triokafka broker`` in a new process on a free loopback port; yields HOST:PORT."""
    command = [sys.executable, "-m", "triokafka", "broker", "--listen", "127.0.0.1:0", "--data-dir", data_directory]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = b""
        with trio.move_on_after(30):
            async for chunk in process.stdout:
                line += chunk
                if b"\n" in line:
                    break
        if not line.startswith(b"ready "):
            raise BrokerFailedError("the broker did not start within 30 seconds")
        yield line.split()[1].decode()
    finally:
        if process.returncode is None:
            process.terminate()
            with trio.move_on_after(10, shield=True):
                await process.wait()
        if process.returncode is None:
            process.kill()


class Demo:
    """One demo run, with one broker or with a cluster of ``nodes``.

    ``drop_one`` drops one flight's record on purpose, to show that the comparisons find it.
    """

    def __init__(self, *, drop_one: bool, console: Console, nodes: int = 1) -> None:
        self.findings = Findings()
        self._nodes = nodes
        self._cluster: DemoCluster | None = None
        self._drop_one = drop_one
        self._console = console
        self._flights: list[Flight] = []

    async def run(self, data_directory: str) -> Findings:
        """Run all steps and return the results. All processes that it starts have ended when it returns."""
        if self._nodes == 1:
            async with broker_process(data_directory) as bootstrap:
                self._say(f"broker on {bootstrap}, data in {data_directory}")
                await self._steps(bootstrap)
        else:
            async with demo_cluster(data_directory, self._nodes) as cluster:
                self._cluster = cluster
                self._say(f"{self._nodes} nodes on {cluster.bootstrap}, data in {data_directory}")
                await self._steps(cluster.bootstrap)
        self.findings.csv = await trio.to_thread.run_sync(totals_from_csv, abandon_on_cancel=True)
        return self.findings

    async def _steps(self, bootstrap: str) -> None:
        await self._create_topic(bootstrap)
        self._flights = await trio.to_thread.run_sync(lambda: list(flights()), abandon_on_cancel=True)
        await self._produce(bootstrap)
        await self._consume(bootstrap)
        await self._compare_offsets(bootstrap)
        self._say("reading the topic with Spark, as a batch and by micro-batch")
        self.findings.spark, self.findings.spark_streaming = await totals_from_spark(bootstrap, TOPIC)

    def _say(self, text: str) -> None:
        self._console.print(f"[bold]·[/bold] {text}", highlight=False)

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )

    async def _create_topic(self, bootstrap: str) -> None:
        replicas = min(self._nodes, 3)
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            # The flights are from 2013; the default retention would delete them immediately.
            topic = triokafka.NewTopic(TOPIC, PARTITIONS, replicas, configs={"retention.ms": "-1"})
            await admin.create_topics([topic])
        if self._cluster is not None:
            await self._cluster.wait_in_sync(TOPIC)

    async def _produce(self, bootstrap: str) -> None:
        dropped = len(self._flights) // 2 if self._drop_one else -1
        findings = self.findings
        started = trio.current_time()
        failures: list[Exception] = []

        def note(metadata: triokafka.RecordMetadata | None, error: Exception | None) -> None:
            if metadata is None:
                failures.append(error or KafkaError("a record was not acknowledged"))
                return
            findings.acknowledged += 1
            counts = findings.produced.setdefault(metadata.partition, [])
            at = trio.current_time() - started
            if not counts or at - counts[-1][0] > _SAMPLE_SECONDS:
                counts.append((at, counts[-1][1] + 1 if counts else 1))
            else:
                counts[-1] = counts[-1][0], counts[-1][1] + 1

        with self._progress() as progress:
            task = progress.add_task("sending", total=len(self._flights))
            async with (
                triokafka.Producer(
                    bootstrap_servers=bootstrap, linger_ms=20, batch_size=131_072, compression_type="lz4", acks="all"
                ) as producer,
                trio.open_nursery() as nursery,
            ):
                for flight in self._flights:
                    if flight.row == dropped:
                        continue
                    delivery = await producer.send(
                        TOPIC, flight.value, key=flight.aircraft, timestamp_ms=flight.timestamp_ms
                    )
                    delivery.add_callback(note)
                    if flight.row % 5_000 == 0:
                        progress.update(task, completed=flight.row)
                    if self._cluster is not None and flight.row == len(self._flights) // 3:
                        # Only with all earlier records acknowledged does the picture show the outage alone.
                        await producer.flush()
                        leader = await self._cluster.leader(TOPIC, _WATCHED_PARTITION)
                        what = f"node {leader}, which leads partition {_WATCHED_PARTITION}, is killed"
                        self._kill(leader, what, findings.produce_outages, started)
                        nursery.start_soon(self._restart, leader, findings.produce_outages[-1], started)
                await producer.flush()
                progress.update(task, completed=len(self._flights))
        if failures:
            raise failures[0]
        findings.produce_seconds = trio.current_time() - started
        # A dropped record counts as sent and acknowledged, like a record that a broken system loses.
        findings.sent = len(self._flights)
        findings.acknowledged += 1 if self._drop_one else 0
        if self._cluster is not None:
            await self._cluster.wait_in_sync(TOPIC)

    def _kill(self, node_id: int, what: str, outages: list[Outage], started: float) -> None:
        assert self._cluster is not None
        self._say(what)
        self._cluster.kill(node_id)
        outages.append(Outage(trio.current_time() - started, what))

    async def _restart(self, node_id: int, outage: Outage, started: float) -> None:
        """Start a killed node again when another one does its job, and note the time."""
        assert self._cluster is not None
        await trio.sleep(_DOWN_SECONDS)
        await self._cluster.restart(node_id)
        self._say(f"node {node_id} is started again")
        outage.restarted_at = trio.current_time() - started

    async def _consume(self, bootstrap: str) -> None:
        total = len(self._flights)
        log = GroupLog(bytearray(total), trio.current_time())
        common = ["--bootstrap", bootstrap, "--group", GROUP, "--topic", TOPIC]
        members = [DemoMember(f"member-{number}", common) for number in range(1, 5)]
        expected = total - (1 if self._drop_one else 0)
        changed = trio.Event()

        def on_change() -> None:
            nonlocal changed
            changed.set()
            changed = trio.Event()

        with self._progress() as progress:
            task = progress.add_task("group", total=total)

            def on_assigned(rebalance: Rebalance) -> None:
                if sum(len(share) for share in rebalance.assignment.values()) < PARTITIONS:
                    return  # other members have not reported their assignment yet
                shares = "  ".join(f"{name}: {parts}" for name, parts in sorted(rebalance.assignment.items()))
                progress.console.print(f"  generation {rebalance.generation}  {shares}", highlight=False)

            async def until(count: int) -> None:
                with trio.move_on_after(_STEP_TIMEOUT) as scope:
                    while log.distinct < count:
                        progress.update(task, completed=log.distinct)
                        await changed.wait()
                if scope.cancelled_caught:
                    raise KafkaTimeoutError(
                        f"the group handled {log.distinct} of {expected} flights and then made no progress"
                    )
                progress.update(task, completed=log.distinct)

            async with trio.open_nursery() as nursery:
                for member in members[:3]:
                    nursery.start_soon(member.run, log, on_assigned, on_change)
                await until(expected // 5)
                self._fault(log, "member-4 starts")
                nursery.start_soon(members[3].run, log, on_assigned, on_change)
                await until(expected // 2)
                self._fault(log, "member-2 is killed")
                members[1].kill()
                log.killed(trio.current_time(), members[1].name)
                if self._cluster is not None:
                    await self._kill_coordinator_and_controller(nursery, log, until, expected)
                await until(expected)
                await self._until_committed(bootstrap)
                for member in members:
                    member.stop()
        findings = self.findings
        findings.consume_seconds = trio.current_time() - log.started
        findings.received, findings.received_again = log.distinct, log.again
        findings.missing = [flight.description for flight in self._flights if not log.seen[flight.row]][:10]
        findings.delivered, findings.ownerships = log.delivered, log.ownerships
        findings.rebalances = sorted(log.rebalances.values(), key=lambda rebalance: rebalance.generation)

    async def _kill_coordinator_and_controller(
        self, nursery: trio.Nursery, log: GroupLog, until: Callable[[int], Awaitable[None]], expected: int
    ) -> None:
        """Kill the group's coordinator, and later the active controller, while the group continues."""
        cluster = self._cluster
        assert cluster is not None
        outages = self.findings.consume_outages
        await until(expected * 6 // 10)
        coordinator = await cluster.coordinator(GROUP)
        self._kill(coordinator, f"node {coordinator}, the group's coordinator, is killed", outages, log.started)
        await self._restart(coordinator, outages[-1], log.started)
        await cluster.wait_in_sync(TOPIC)
        await until(expected * 8 // 10)
        controller = await cluster.controller()
        self._kill(controller, f"node {controller}, the active controller, is killed", outages, log.started)
        nursery.start_soon(self._restart, controller, outages[-1], log.started)

    def _fault(self, log: GroupLog, what: str) -> None:
        self._say(what)
        self.findings.faults.append((trio.current_time() - log.started, what))

    async def _until_committed(self, bootstrap: str) -> None:
        """Wait for the members' last commits; the comparison afterwards checks them."""
        with trio.move_on_after(30):
            while True:
                await self._compare_offsets(bootstrap)
                if self.findings.committed == self.findings.end_offsets:
                    return
                await trio.sleep(0.25)

    async def _compare_offsets(self, bootstrap: str) -> None:
        partitions = [triokafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        async with triokafka.Consumer(
            bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            self.findings.end_offsets = {partition.partition: offset for partition, offset in ends.items()}
            for partition in partitions:
                committed = await consumer.committed(partition)
                self.findings.committed[partition.partition] = 0 if committed is None else committed.offset


def show(findings: Findings, console: Console, pictures: Sequence[str]) -> int:
    """Print the table and the plain line, and return the exit status."""
    table = Table(title="The run", title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("holds", justify="center")
    for what, value, holds in findings.rows():
        table.add_row(what, value, "" if holds is None else "[green]yes[/green]" if holds else "[red]NO[/red]")
    console.print(table)
    for picture in pictures:
        console.print(f"picture: {os.path.relpath(picture)}", highlight=False)
    differences = findings.differences()
    for difference in differences:
        console.print(f"[red]{difference}[/red]", highlight=False)
    print(findings.plain_line(), flush=True)
    return 1 if differences else 0
