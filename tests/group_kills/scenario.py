"""One run: two groups with a coordinator that dies at chosen points, and all other faults meanwhile.

Every seed chooses the members, the broker's durability, the points of its deaths, the faults of the network, and those
of members. After the last fault, all members must be in the group again within `SETTLE` seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import trio

import triokafka
from tests.group_kills.history import History, Outcome
from tests.group_kills.machine import REQUESTS, Aim, Machine, draw_aim
from tests.group_kills.members import (
    BROKER,
    CLASSIC,
    HEARTBEAT,
    MODERN,
    PLAIN,
    REBALANCE,
    REQUEST,
    SESSION,
    TOPIC,
    ClassicMember,
    Part,
    Process,
    RealMember,
    Stage,
    commit_topic,
)
from tests.group_kills.modern import ModernMember
from tests.group_kills.wire import NoAnswerError, Wire
from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.faults.faults import RequestFault
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from triokafka.testing import SimulatedWorld, Simulation

PARTITIONS: Final = 6
RECORDS: Final = 60
"""In each partition."""
SETTLE: Final = REBALANCE + SESSION
"""A dead member stays in the group for a session, and a round of a rebalance takes at most the rebalance timeout."""

PATIENCE: Final = {**dict.fromkeys(REQUESTS, 6.0), "join_group": REBALANCE + 1, "sync_group": REBALANCE + 1}
"""Seconds in which the coordinator responds: a round of a rebalance takes at most the rebalance timeout."""

_PROMPT_APIS: Final = (8, 9, 12, 68)
_GROUP_APIS: Final = (*_PROMPT_APIS, 11, 14)


@dataclass(frozen=True)
class Promise:
    """The broker's options, and its way of dying. ``keeps`` is whether everything acknowledged must survive."""

    name: str
    power_cut: bool
    flush_messages: int | None
    keeps: bool


PROMISES: Final = (
    Promise("the process dies", power_cut=False, flush_messages=None, keeps=True),
    Promise("the power fails, and every record is flushed", power_cut=True, flush_messages=1, keeps=True),
    Promise("the power fails, and nothing is flushed", power_cut=True, flush_messages=None, keeps=False),
)
_WEIGHTS: Final = (6, 3, 1)


class Run:
    """One run with one seed. ``mutate`` is applied to every broker before it starts, to plant a defect."""

    def __init__(self, simulation: Simulation, mutate: Callable[[Broker], None] | None = None) -> None:
        self.simulation = simulation
        self.chance = random.Random(f"{simulation.seed}/group kills")
        self.history = History(lambda: trio.current_time() - simulation.started, simulation.record)
        self.history.moves_freely(PLAIN)
        self.stage = Stage(self.history, dict.fromkeys(range(PARTITIONS), RECORDS))
        self.promise = self.chance.choices(PROMISES, _WEIGHTS)[0]
        options: dict[str, object] = {
            "offsets_topic_num_partitions": self.chance.choice((1, 3)),
            "group_initial_rebalance_delay_ms": self.chance.choice((0, 500)),
            "group_consumer_session_timeout_ms": round(SESSION * 1000),
            "group_consumer_heartbeat_interval_ms": round(HEARTBEAT * 1000),
            "group_consumer_min_session_timeout_ms": round(SESSION * 1000),
            "group_consumer_min_heartbeat_interval_ms": round(HEARTBEAT * 1000),
        }
        self.flushes_topic = self.promise.flush_messages is not None and self.chance.random() < 0.5
        if self.promise.flush_messages is not None and not self.flushes_topic:
            options["log_flush_interval_messages"] = self.promise.flush_messages
        self.machine = Machine(
            simulation,
            self.history,
            power_cut=self.promise.power_cut,
            slow_disk=self.chance.random() < (0.8 if self.promise.flush_messages else 0.2),
            options=options,
            patience=PATIENCE,
            mutate=mutate,
        )
        self.parts = self._cast()
        self.topic_id = UUID(int=0)

    def _cast(self) -> list[Part]:
        chance = self.chance
        assignor = chance.choice(("range", "cooperative-sticky"))
        parts = [
            Part(f"c{n}", CLASSIC, f"seat-{n}" if chance.random() < 0.3 else None, assignor)
            for n in range(chance.choice((2, 3)))
        ]
        strategy = chance.choice(("uniform", "range"))
        parts += [
            Part(f"m{n}", MODERN, f"place-{n}" if chance.random() < 0.3 else None, strategy)
            for n in range(chance.choice((2, 3)))
        ]
        self.real = {part.host for part in parts[1:] if chance.random() < 0.3}
        return parts

    # ---------------------------------------------------------------- the run

    async def run(self) -> str:
        """Return the digest of the trace. Raises `AssertionError`, with the observations."""
        try:
            await self._run()
        except Exception as error:
            error.add_note(f"seed {self.simulation.seed}: {self.promise.name}")
            error.add_note("\n".join(self.history.events[-80:]))
            error.add_note(f"everything: python -m tests.group_kills {self.simulation.seed}")
            raise
        return self.simulation.trace_digest()

    async def _run(self) -> None:
        await self._prepare()
        for part in self.parts:
            self._start(part)
        self.simulation.host("plain").start(self._commit_plainly)
        over = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._trouble_members, over)
            nursery.start_soon(self._trouble_answers, over)
            await self._kill_brokers()
            over.set()
        await self._lose_somebody()
        await self._calm_down()
        await self._settle()
        if self.chance.random() < 0.4:
            await self._wake_the_dead()
            await self._settle()
        ends = self.stage.ends
        if self.promise.keeps:
            await self._until(
                lambda: not self.history.unhandled(CLASSIC, ends) and not self.history.unhandled(MODERN, ends),
                60,
                "every record is handled",
            )
        await self._audit()
        self.machine.die()
        await self.machine.restart(0.1)
        self._forget()
        await self._audit()
        self.machine.check_waiting()
        violations = self.machine.unanswered + self.history.violations()
        assert not violations, "\n".join(violations)

    async def _prepare(self) -> None:
        self.machine.start()
        await self.machine.ready.wait()
        world = self.simulation.host("admin").world
        address = "{}:{}".format(*BROKER)
        async with triokafka.AdminClient(world=world, bootstrap_servers=address) as admin:
            await admin.create_topics([triokafka.NewTopic(TOPIC, PARTITIONS, 1)])
            self.topic_id = (await admin.describe_topics([TOPIC]))[TOPIC].topic_id
        async with triokafka.Producer(world=world, bootstrap_servers=address) as producer:
            for number in range(PARTITIONS):
                await producer.send_many(TOPIC, [b"%d" % n for n in range(RECORDS)], partition=number)
            await producer.flush()
        wire = Wire(world, *BROKER, client_id="admin")
        await wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[CLASSIC]), 4, timeout=10)
        wire.close()
        if self.flushes_topic:
            topic = triokafka.ConfigResource.topic("__consumer_offsets")
            async with triokafka.AdminClient(world=world, bootstrap_servers=address) as admin:
                flush_messages = str(self.promise.flush_messages)
                await admin.incremental_alter_configs({topic: {"flush.messages": flush_messages}})
        # Producing and creating groups is not subject to faults; only the groups' own requests are.
        await self.machine.flush()
        conditions = self.simulation.network.conditions
        conditions.loss = self.chance.choice((0, 0.01, 0.05))
        conditions.cut = self.chance.choice((0, 0.002, 0.01))
        conditions.max_delay = self.chance.choice((0.002, 0.05))

    def _start(self, part: Part) -> None:
        def process(world: SimulatedWorld) -> Process:
            if part.host in self.real:
                return RealMember(self.stage, part, world)
            if part.group == MODERN:
                return ModernMember(self.stage, part, world, self.topic_id)
            return ClassicMember(self.stage, part, world)

        host = self.simulation.host(part.host)
        self.history.note("starts", part.host, part.instance or "")
        host.start(lambda world: process(world).run())

    async def _kill(self, part: Part) -> None:
        host = self.simulation.host(part.host)
        who = self.stage.who(part, host.world)
        self.history.note("dies", part.host)
        host.die()
        self.history.gave_up(who, part.group)
        await host.kill()
        self.stage.seats.pop(part.host, None)

    # ---------------------------------------------------------------- faults

    async def _kill_brokers(self) -> None:
        chance, machine = self.chance, self.machine
        for _ in range(chance.choice((2, 3, 4))):
            await trio.sleep(chance.uniform(0, 4))
            if chance.random() < 0.85:
                machine.aim(draw_aim(chance, power_cut=self.promise.power_cut))
                with trio.move_on_after(6):
                    await machine.died.wait()
            machine.die()
            self._forget()
            again = Aim("any", chance.randrange(1, 15), "before") if chance.random() < 0.2 else None
            await machine.restart(chance.choice((0, chance.uniform(0, 3))), again)
            if again is not None:
                with trio.move_on_after(1):
                    await machine.died.wait()
                if machine.died.is_set():
                    self._forget()
                    await machine.restart(chance.uniform(0, 0.5))
        machine.disarm()
        if machine.died.is_set():
            self._forget()
            await machine.restart(0)

    async def _lose_somebody(self) -> None:
        """Kill a member without a leave request."""
        dynamic = [part for part in self.parts if part.instance is None]
        if dynamic and self.chance.random() < 0.5:
            part = self.chance.choice(dynamic)
            self.parts.remove(part)
            await self._kill(part)

    async def _wake_the_dead(self) -> None:
        """Freeze a member until others get its partitions, and then resume it."""
        part = self.chance.choice(self.parts)
        self.history.note("freezes", part.host)
        world = self.simulation.host(part.host).world
        world.pause()
        await trio.sleep(SESSION + self.chance.uniform(2, 5))
        self.history.note("goes on", part.host)
        world.resume()

    def _forget(self) -> None:
        if not self.promise.keeps:
            self.history.forgets()

    async def _trouble_members(self, over: trio.Event) -> None:
        chance, network = self.chance, self.simulation.network
        while not over.is_set():
            with trio.move_on_after(chance.uniform(0.5, 4)):
                await over.wait()
                return
            part = chance.choice(self.parts)
            host = self.simulation.host(part.host)
            what = chance.choice(("restart", "restart", "freeze", "freeze", "isolate", "cut", "nothing"))
            if what == "restart" and part.instance is not None and part.protocol == "cooperative-sticky":
                # If it dies after a revocation and before it has rejoined, its group keeps partitions without an owner
                # until another member joins or leaves: that is so in Kafka, too.
                what = "freeze"
            self.history.note("trouble:", what, part.host)
            if what == "restart":
                await self._kill(part)
                await trio.sleep(chance.choice((0.0, chance.uniform(0, 3))))
                self._start(part)
            elif what == "freeze":
                host.world.pause()
                with trio.move_on_after(chance.choice((1.0, chance.uniform(1, 12)))):
                    await over.wait()
                host.world.resume()
            elif what == "isolate":
                network.partition(part.host, "broker", one_way=chance.random() < 0.5)
                with trio.move_on_after(chance.uniform(0.5, 8)):
                    await over.wait()
                network.heal()
            elif what == "cut":
                network.cut(part.host)

    async def _trouble_answers(self, over: trio.Event) -> None:
        chance = self.chance
        while not over.is_set():
            with trio.move_on_after(chance.uniform(0.5, 3)):
                await over.wait()
                return
            if self.machine.broker is None:
                continue
            api = chance.choice(_GROUP_APIS)
            raw = chance.choice([part.host for part in self.parts if part.host not in self.real])
            fault = chance.choice(
                (
                    # A client learns only late that a request which waits for others will get no response.
                    RequestFault(api_key=chance.choice(_PROMPT_APIS), client_id=raw, lose_answer=True),
                    RequestFault(api_key=api, close="before"),
                    RequestFault(api_key=api, close="after"),
                    RequestFault(api_key=api, close="within"),
                    RequestFault(api_key=api, answer_delay_ms=chance.choice((50, 1_000, 2_500))),
                )
            )
            self.machine.broker.faults.arm(fault)

    async def _calm_down(self) -> None:
        conditions = self.simulation.network.conditions
        conditions.loss = conditions.cut = 0
        self.simulation.network.heal()
        for part in self.parts:
            self.simulation.host(part.host).world.resume()
        await self.machine.ready.wait()
        assert self.machine.broker is not None
        self.machine.broker.faults.disarm_all()

    # ---------------------------------------------------------------- the end of a run

    async def _until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition, with a check every half second of virtual time."""
        with trio.move_on_after(seconds):
            while not holds():
                await trio.sleep(0.5)
            return
        seats = {part.host: self.stage.seats.get(part.host) for part in self.parts}
        left = {group: self.history.unhandled(group, self.stage.ends) for group in (CLASSIC, MODERN)}
        raise AssertionError(f"not within {seconds} s: {what}\nseats: {seats}\nunhandled: {left}")

    async def _settle(self) -> None:
        calm_at = self.history.clock()
        self.history.note("calm")
        await self._until(lambda: self._settled(calm_at), SETTLE, "the groups are complete again")
        self.history.note("settled", f"after {self.history.clock() - calm_at:.1f} s")

    def _settled(self, calm_at: float) -> bool:
        """Whether all members are confirmed since then, classic ones in one generation, and every partition has an
        owner."""
        for group in (CLASSIC, MODERN):
            seats = [self.stage.seats.get(part.host) for part in self.parts if part.group == group]
            numbers: list[int] = []
            for seat in seats:
                if seat is None or seat.confirmed_at < calm_at:
                    return False
                numbers += seat.numbers
            if sorted(numbers) != list(range(PARTITIONS)):
                return False
            if group == CLASSIC and len({seat.epoch for seat in seats if seat is not None}) > 1:
                return False
        return True

    async def _commit_plainly(self, world: SimulatedWorld) -> None:
        """Set positions of a group without members, forth and back."""
        wire = Wire(world, *BROKER, client_id="plain")
        while True:
            positions = {number: world.random.randrange(1_000) for number in range(world.random.choice((1, 3)))}
            attempt = self.history.commit("plain", PLAIN, -1, positions)
            outcome = Outcome.UNKNOWN
            try:
                answer = await wire.ask(
                    OffsetCommitRequest(group_id=PLAIN, topics=[commit_topic(attempt)]), 9, timeout=REQUEST
                )
                if not any(partition.error_code for partition in answer.topics[0].partitions):
                    outcome = Outcome.ACKNOWLEDGED
                attempt.done(outcome)
            except NoAnswerError:
                attempt.done(outcome)
            if world.random.random() < 0.3:
                try:
                    await self._read(wire, PLAIN)
                except NoAnswerError:
                    pass
            await trio.sleep(world.random.uniform(0.1, 1))

    async def _audit(self) -> None:
        """Read all positions."""
        wire = Wire(self.simulation.host("auditor").world, *BROKER, client_id="auditor")
        for group in (CLASSIC, MODERN, PLAIN):
            with trio.fail_after(10):
                while True:
                    try:
                        if not await self._read(wire, group):
                            break
                    except NoAnswerError:
                        pass
                    await trio.sleep(0.1)
        wire.close()

    async def _read(self, wire: Wire, group: str) -> int:
        since = self.history.clock()
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
        asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
        answer = (await wire.ask(OffsetFetchRequest(groups=[asked]), 9, timeout=REQUEST)).groups[0]
        if not answer.error_code:
            for found in answer.topics[0].partitions:
                self.history.read(
                    group, found.partition_index, found.committed_offset, found.metadata or "", since=since
                )
        return answer.error_code


async def scenario(simulation: Simulation, mutate: Callable[[Broker], None] | None = None) -> str:
    """Do one run; return the digest of its trace."""
    return await Run(simulation, mutate).run()
