"""The runs whose data diagrams show: ``python -m docs.diagrams --record`` repeats them in virtual time.

A group of three members that takes a fourth, once for each way to rebalance, and a quorum of three controllers whose
leader is killed. The results are in ``docs/diagrams/runs.json``, so that drawing needs neither a broker nor the tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import trio

import triokafka
from benchmarks.rebalance_play import MODES
from docs.diagrams.runs_file import RUNS
from tests.support.raft_simulation import RaftSimulation
from triokafka import TopicPartition
from triokafka.testing import Simulation, run_simulation, running_broker
from triokafka.world import World

PARTITIONS: Final = 6
SECONDS: Final = 10.0
JOIN_AT: Final = 1.5
_BROKER: Final = "broker:9092"


class _Group:
    """Who reads which partition: the parts of lanes, in seconds since the recording began."""

    def __init__(self, world: World, mode: str) -> None:
        self.bars: list[dict[str, Any]] = []
        self.held: dict[str, int] = {}
        self.began = 0.0
        self._world = world
        self._mode = mode
        self._open: dict[int, tuple[str, float]] = {}
        self._changed = trio.Event()

    def begin(self) -> None:
        """Record from here on."""
        self.began = self._world.now()
        self.bars.clear()

    def took(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        """A member reads these from now on."""
        for partition in partitions:
            self._open[partition.partition] = member, self._world.now()

    def gave_up(self, member: str, partitions: Sequence[TopicPartition]) -> None:
        """A member reads these no longer."""
        for partition in partitions:
            owner, since = self._open.get(partition.partition, ("", 0.0))
            if owner == member:
                del self._open[partition.partition]
                self._add(partition.partition, owner, since)

    def _add(self, partition: int, member: str, since: float) -> None:
        first, last = since - self.began, self._world.now() - self.began
        first, last = round(max(first, 0.0), 3), round(last, 3)
        self.bars.append({"partition": partition, "member": member, "since": first, "until": last})

    def finish(self) -> list[dict[str, Any]]:
        """Return all parts, in order."""
        for partition, (member, since) in self._open.items():
            self._add(partition, member, since)
        return sorted(self.bars, key=lambda bar: (bar["partition"], bar["since"]))

    async def member(self, name: str) -> None:
        """Run a member: poll for records again and again."""
        group = self

        class Listener(triokafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
                group.gave_up(name, revoked)

            def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
                group.took(name, assigned)
                group.held[name] = len(consumer.assignment())

        options: dict[str, Any] = dict(MODES[self._mode])
        if self._mode != "consumer":
            # Members beat at different moments.
            options["heartbeat_interval_ms"] = 2_600 + ord(name) * 381 % 800
        consumer = triokafka.Consumer(
            bootstrap_servers=_BROKER, world=self._world, group_id="g", auto_offset_reset="earliest", **options
        )
        async with consumer:
            consumer.subscribe(["t"], listener=Listener())
            while True:
                await consumer.poll(timeout_ms=250)
                self.held[name] = len(consumer.assignment())
                self._changed.set()
                self._changed = trio.Event()

    async def shared(self, members: int) -> None:
        """Wait until each member has its share of the partitions."""
        while not self._is_shared(members):
            await self._changed.wait()

    def _is_shared(self, members: int) -> bool:
        shares = self.held.values()
        return len(shares) == members and min(shares) > 0 and max(shares) <= -(-PARTITIONS // members)


def record_rebalance(mode: str) -> list[dict[str, Any]]:
    """Return who read which partition around the arrival of a fourth member."""

    async def run(simulation: Simulation) -> list[dict[str, Any]]:
        broker = simulation.host("broker").world
        world = simulation.host("clients").world
        options: Any = {
            "group_consumer_heartbeat_interval_ms": 3_000,
            "group_consumer_min_heartbeat_interval_ms": 3_000,
        }
        async with running_broker(world=broker, listeners=(f"PLAINTEXT://{_BROKER}",), **options):
            async with triokafka.AdminClient(bootstrap_servers=_BROKER, world=world) as admin:
                await admin.create_topics([triokafka.NewTopic("t", num_partitions=PARTITIONS, replication_factor=1)])
            group = _Group(world, mode)
            with trio.fail_after(200):
                async with trio.open_nursery() as nursery:
                    for name in "ABC":
                        nursery.start_soon(group.member, name)
                        await trio.sleep(0.7)
                    await group.shared(3)
                    await trio.sleep(10)
                    group.begin()
                    await trio.sleep(JOIN_AT)
                    nursery.start_soon(group.member, "D")
                    await trio.sleep(SECONDS - JOIN_AT)
                    found = group.finish()
                    nursery.cancel_scope.cancel()
        return found

    return run_simulation(run, seed=5)


def record_failover() -> dict[str, Any]:
    """Return the states of three controllers over time, while their leader is killed and started again."""
    simulation = RaftSimulation(seed=4, append_every=0.1)
    simulation.run(6.0)
    began = simulation.now
    states: dict[int, list[dict[str, Any]]] = {node_id: [] for node_id in simulation.nodes}
    committed: list[list[float]] = []

    def note() -> bool:
        now = round(simulation.now - began, 4)
        for node_id, node in simulation.nodes.items():
            state = "down" if node.core is None else type(node.core.quorum.state).__name__
            epoch = None if node.core is None else node.core.quorum.epoch
            before = states[node_id][-1] if states[node_id] else None
            if before is None or (before["state"], before["epoch"]) != (state, epoch):
                states[node_id].append({"at": now, "state": state, "epoch": epoch})
        mark = max((node.high_watermark for node in simulation.up), default=-1)
        if not committed or mark > committed[-1][1]:
            committed.append([now, mark])
        return False

    def pass_time(seconds: float) -> None:
        simulation.run_until(note, within=seconds, required=False)

    pass_time(1.0)
    leader = simulation.leader()
    killed_at = round(simulation.now - began, 4)
    simulation.crash(leader)
    pass_time(4.0)
    restarted_at = round(simulation.now - began, 4)
    simulation.restart(leader)
    pass_time(2.0)
    return {
        "leader": leader.node_id,
        "killed_at": killed_at,
        "restarted_at": restarted_at,
        "end": round(simulation.now - began, 4),
        "states": {str(node_id): found for node_id, found in states.items()},
        "committed": committed,
    }


def record() -> None:
    """Repeat all runs and write their data."""
    runs = {"rebalance": {mode: record_rebalance(mode) for mode in MODES}, "failover": record_failover()}
    RUNS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
