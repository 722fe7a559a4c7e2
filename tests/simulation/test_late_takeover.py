"""A consumer applies an assignment seconds after the coordinator's response, because its user was busy (KIP-848).

Meanwhile the coordinator's machine loses its power, with an unflushed log: the coordinator loses the group, and assigns
the same partitions to the next member that joins. The first consumer cannot know this before the coordinator's next
response; then it gives them up. Apache Kafka does the same: its client never fences itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio

import triokafka
from tests.group_kills.history import History
from tests.group_kills.machine import Machine
from tests.group_kills.members import (
    BROKER,
    HEARTBEAT,
    MODERN,
    REQUEST,
    SESSION,
    TOPIC,
    Part,
    RealMember,
    Stage,
)
from tests.group_kills.modern import ModernMember
from tests.group_kills.scenario import PATIENCE
from tests.group_kills.wire import Wire
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

ALL = frozenset(range(6))


class BusyMember(RealMember):
    """Our own consumer; its user does not poll while ``is_busy``."""

    def __init__(self, stage: Stage, part: Part, world: SimulatedWorld) -> None:
        super().__init__(stage, part, world)
        self.is_busy = False
        self.state = ""
        self.goes_on = trio.Event()

    async def _commit(self, consumer: triokafka.Consumer) -> None:
        while self.is_busy and not self.goes_on.is_set():
            self.state = consumer.health().state
            await trio.sleep(0.1)


M = TypeVar("M", BusyMember, ModernMember)


class LateTakeover:
    """The schedule. ``forgives`` is whether the history records that the coordinator lost its log."""

    def __init__(self, simulation: Simulation, *, forgives: bool) -> None:
        self.simulation = simulation
        self.history = History(lambda: trio.current_time() - simulation.started, simulation.record)
        self.stage = Stage(self.history, dict.fromkeys(ALL, 60))
        self._forgives = forgives
        self._machine = Machine(
            simulation,
            self.history,
            power_cut=False,  # the test crashes the disk itself, so that exactly the synced records survive
            slow_disk=False,
            options={
                "offsets_topic_num_partitions": 1,
                "group_initial_rebalance_delay_ms": 0,
                "group_consumer_session_timeout_ms": round(SESSION * 1000),
                "group_consumer_heartbeat_interval_ms": round(HEARTBEAT * 1000),
                "group_consumer_min_session_timeout_ms": round(SESSION * 1000),
                "group_consumer_min_heartbeat_interval_ms": round(HEARTBEAT * 1000),
            },
            patience=PATIENCE,
        )

    async def run(self) -> None:
        """Run the schedule. Afterwards both members share the partitions of the new group."""
        await self._prepare()
        busy = self._start("busy", BusyMember)
        await self._until(lambda: self._numbers("busy") == ALL)
        leaver = self._start("leaver", partial(ModernMember, topic_id=self._topic_id))
        await self._until(lambda: len(self._numbers("busy")) == len(self._numbers("leaver")) == 3)
        busy.is_busy = True
        await self._until(lambda: busy.state == "in the group")
        await self._leave(leaver)
        # The coordinator's response assigns all partitions to the busy member, which does not apply it yet.
        await self._until(lambda: busy.state == "taking over a new assignment")
        await self._lose_power()

        self._start("newcomer", partial(ModernMember, topic_id=self._topic_id))
        await self._until(lambda: self._numbers("newcomer") == ALL)
        busy.goes_on.set()
        await self._until(lambda: self._numbers("busy") == ALL)
        await trio.sleep(2)  # the new member commits all the time
        self.simulation.network.heal()
        await self._until(lambda: len(self._numbers("busy")) == len(self._numbers("newcomer")) == 3)

    async def _prepare(self) -> None:
        world = self.simulation.host("admin").world
        self._machine.start()
        await self._machine.ready.wait()
        async with triokafka.AdminClient(world=world, bootstrap_servers="{}:{}".format(*BROKER)) as admin:
            await admin.create_topics([triokafka.NewTopic(TOPIC, len(ALL), 1)])
            self._topic_id = (await admin.describe_topics([TOPIC]))[TOPIC].topic_id
        await self._machine.flush()

    def _start(self, name: str, kind: Callable[[Stage, Part, SimulatedWorld], M]) -> M:
        host = self.simulation.host(name)
        process = kind(self.stage, Part(name, MODERN, None, "uniform"), host.world)
        process.pace = 0.3
        host.start(lambda world: process.run())
        return process

    async def _leave(self, member: ModernMember) -> None:
        host = self.simulation.host(member.part.host)
        host.die()
        self.history.gave_up(member.who, MODERN)
        wire = Wire(self.simulation.host("admin").world, *BROKER, client_id="admin")
        leave = ConsumerGroupHeartbeatRequest(group_id=MODERN, member_id=member.member_id, member_epoch=-1)
        answer = await wire.ask(leave, 1, timeout=REQUEST)
        assert not answer.error_code
        wire.close()

    async def _lose_power(self) -> None:
        self.simulation.network.partition("busy", BROKER[0])
        self._machine.die()
        self._machine.host.disk.crash(self.simulation.random, tear=False)
        if self._forgives:
            self.history.forgets()
        await self._machine.restart(0)
        await self._machine.ready.wait()

    def _numbers(self, name: str) -> frozenset[int]:
        seat = self.stage.seats.get(name)
        return seat.numbers if seat is not None else frozenset()

    async def _until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(20):
            while not holds():
                await trio.sleep(0.1)


def history_of_late_takeover(*, forgives: bool) -> History:
    async def main(simulation: Simulation) -> History:
        run = LateTakeover(simulation, forgives=forgives)
        await run.run()
        return run.history

    return run_simulation(main, 1)


def test_assignment_lost_by_the_coordinator_may_be_used_until_the_member_is_fenced() -> None:
    assert history_of_late_takeover(forgives=True).violations() == []


def test_late_takeover_is_a_violation_unless_the_coordinator_lost_its_log() -> None:
    found = history_of_late_takeover(forgives=False).violations()
    assert any("busy.1 has it since" in violation for violation in found)


def test_grant_has_the_time_and_the_epoch_of_the_assigning_response() -> None:
    history = history_of_late_takeover(forgives=True)
    crashed_at = next(float(event.split()[0]) for event in history.events if event.endswith(" forgets"))
    number = min(n for n in ALL if any(member == "leaver.1" for _, _, member in history._partitions[MODERN, n].grants))
    grants = history._partitions[MODERN, number].grants
    before = [(member, epoch) for at, epoch, member in grants if at < crashed_at]
    after = [member for at, _, member in grants if at >= crashed_at]
    assert before == [("busy.1", 1), ("leaver.1", 2), ("busy.1", 3)]
    assert after[0] == "newcomer.1"
