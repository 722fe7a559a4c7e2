"""The producer with our own broker in the simulated world: kills, restarts, injected errors, a minute of silence.

The same as `test_producer_order`, with a whole broker: its logs, its producer state and its recovery.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from typing import Any

import pytest
import trio

import triokafka
from tests.support.producer_ledger import PROMISES, Ledger, Promise
from tests.support.producer_workload import Workload
from tests.support.read_back import read_all
from tests.support.simulated import run_seeds
from triokafka import errors
from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.faults.faults import Fault, RequestFault
from triokafka.broker_stub.node import Node
from triokafka.testing import SimulatedWorld, Simulation, run_simulation

TOPICS = {"orders": 2, "events": 1}
BOOTSTRAP = "broker:9092"
SEEDS = 40
LONG_SEEDS = 1_000

_REFUSALS = (
    errors.NotLeaderForPartitionError,
    errors.NotEnoughReplicasError,
    errors.CorruptRecordError,
    errors.KafkaStorageError,
    errors.LeaderNotAvailableError,
)
_AFTER_APPEND = (errors.RequestTimedOutError, errors.NotEnoughReplicasAfterAppendError)


class BrokerMachine:
    """A host that runs a broker; ``broker`` is the running one."""

    def __init__(self, simulation: Simulation) -> None:
        self.host = simulation.host("broker")
        self.broker: Broker | None = None
        self._stop = trio.Event()
        self._stopped = trio.Event()

    def start(self) -> None:
        """Start the broker's process."""
        self._stop, self._stopped = trio.Event(), trio.Event()
        self.host.start(self._serve)

    async def _serve(self, world: SimulatedWorld) -> None:
        config = BrokerConfig.for_tests(listeners=("PLAINTEXT://broker:9092",), log_dirs=("/data",))
        async with Node(config, world=world) as node:
            broker = node.broker
            self.broker = broker
            await self._stop.wait()
        self._stopped.set()

    async def restart(self, away: float, *, power_cut: bool = False, cleanly: bool = False) -> None:
        """Kill the process, and start another one later. The disk retains written data, unless the power is cut as
        well.

        With ``cleanly`` it is stopped as SIGTERM does.
        """
        self.broker = None
        if cleanly:
            self._stop.set()
            await self._stopped.wait()
        await self.host.kill(power_cut=power_cut)
        await trio.sleep(away)
        self.start()


async def _inject_faults(machine: BrokerMachine, simulation: Simulation, chance: random.Random, count: int) -> None:
    conditions = simulation.network.conditions
    conditions.cut = chance.choice([0, 0, 0.005])
    conditions.max_delay = chance.choice([0.001, 0.02])

    def arm() -> None:
        assert machine.broker is not None
        faults = machine.broker.faults
        kind = chance.randrange(7)
        if kind == 0:
            faults.arm(Fault(chance.choice(_REFUSALS), api_key=0, times=chance.choice([1, 3])))
        elif kind == 1:
            faults.arm(Fault(chance.choice(_REFUSALS), api_key=0, partition=chance.randrange(2), skip=1))
        elif kind == 2:
            faults.arm(Fault(chance.choice(_AFTER_APPEND), api_key=0, times=chance.choice([1, 2]), after_append=True))
        elif kind == 3:
            faults.arm(RequestFault(api_key=0, close=chance.choice(["before", "after", "within"])))
        elif kind == 4:
            faults.arm(RequestFault(api_key=0, answer_delay_ms=chance.choice([50, 2_500])))
        elif kind == 5:
            faults.arm(RequestFault(api_key=0, throttle_ms=chance.choice([20, 300])))
        else:
            faults.arm(RequestFault(api_key=0, close="after", times=3, chance=0.5))

    for _ in range(count):
        await trio.sleep(chance.uniform(0, 0.1))
        draw = chance.random()
        if draw < 0.12:
            await machine.restart(chance.uniform(0, 0.5), cleanly=chance.random() < 0.5)
        elif draw < 0.2:
            simulation.network.cut("client")
        elif machine.broker is not None:
            arm()
    conditions.cut = 0
    if machine.broker is not None:
        machine.broker.faults.disarm_all()


async def _create_topics(simulation: Simulation, **configs: str) -> None:
    async with triokafka.AdminClient(world=simulation.host("admin").world, bootstrap_servers=BOOTSTRAP) as admin:
        await admin.create_topics([triokafka.NewTopic(name, count, 1, configs) for name, count in TOPICS.items()])


async def _schedule(simulation: Simulation, *, promise: Promise, given: dict[str, Any]) -> tuple[Ledger, int]:
    chance = random.Random(f"{simulation.seed}/test")
    machine = BrokerMachine(simulation)
    machine.start()
    await _create_topics(simulation, **{"max.message.bytes": chance.choice(["1000000", "600"])})
    workload = Workload(chance, TOPICS, records=150)
    producer = triokafka.Producer(
        bootstrap_servers=BOOTSTRAP,
        world=simulation.host("client").world,
        batch_size=chance.choice([300, 800]),
        buffer_memory=chance.choice([3_000, 100_000]),
        linger_ms=chance.choice([0, 2]),
        compression_type=chance.choice(["none", "none", "lz4", "zstd", "gzip", "snappy"]),
        request_timeout_ms=2_000,
        retry_backoff_ms=20,
        close_timeout_ms=120_000,
        **given,
    )
    count = chance.randrange(3, 15)
    await workload.run(
        producer, during=lambda: simulation.nursery.start_soon(_inject_faults, machine, simulation, chance, count)
    )
    ledger = workload.ledger
    if promise is not Promise.AT_MOST_ONCE:
        assert not ledger.failed
    entries = await read_all(BOOTSTRAP, TOPICS, world=simulation.host("auditor").world)
    return ledger, ledger.check(entries, promise, most_in_batch=100)


def replay(name: str, seed: int) -> tuple[Ledger, int]:
    """Run one schedule again; raise the same error as the first time."""
    promise, given = PROMISES[name]
    try:
        return run_simulation(functools.partial(_schedule, promise=promise, given=given), seed)
    except BaseException as error:
        error.add_note(f"run it again with tests.simulation.test_producer_broker_faults.replay({name!r}, {seed})")
        raise


@pytest.mark.parametrize("name", PROMISES)
def test_log_meets_its_guarantee_through_faults_of_a_whole_broker(name: str) -> None:
    repeats = sum(replay(name, seed)[1] for seed in range(SEEDS))
    if PROMISES[name][0] in (Promise.IN_ORDER, Promise.AT_LEAST_ONCE):
        assert repeats, "no schedule repeated a record: the faults have no effect"


async def _answers_lost_at_the_stop(simulation: Simulation, *, cleanly: bool) -> Mapping[str, float]:
    """Write three batches, and end the broker before the producer receives the responses; return the producer's
    metrics.
    """
    machine = BrokerMachine(simulation)
    machine.start()
    await _create_topics(simulation)
    async with triokafka.Producer(
        bootstrap_servers=BOOTSTRAP,
        world=simulation.host("client").world,
        linger_ms=0,
        request_timeout_ms=30_000,
        close_timeout_ms=120_000,
    ) as producer:
        await producer.send("events", b"0", partition=0)
        await producer.flush()
        broker = machine.broker
        assert broker is not None
        broker.faults.arm(RequestFault(api_key=0, lose_answer=True, times=-1))
        (log,) = (log for tp, log in broker.logs.all().items() if tp.topic == "events")
        for number in range(1, 4):
            await producer.send("events", b"%d" % number, partition=0)
            while log.log_end_offset <= number:
                await trio.sleep(0.001)
        await machine.restart(0.1, cleanly=cleanly)
        await producer.flush()
        metrics = producer.metrics()
    ((_, entries),) = (await read_all(BOOTSTRAP, {"events": 1}, world=simulation.host("auditor").world)).items()
    assert entries == [(offset, b"%d" % offset) for offset in range(4)]
    return metrics


@pytest.mark.parametrize("cleanly", [True, False])
def test_batches_whose_answers_were_lost_when_the_broker_ended_are_not_repeated(cleanly: bool) -> None:
    """All of them are sent again, and the broker recognizes them as duplicates, without a new epoch."""
    metrics = run_simulation(functools.partial(_answers_lost_at_the_stop, cleanly=cleanly), 1)
    assert metrics["batch_retry_total"] == 3
    assert metrics["epoch_bump_total"] == 0


async def _power_cuts(simulation: Simulation) -> tuple[int, int]:
    """Run a broker that syncs nothing, so that every power cut removes the ends of the logs; return the number of lost
    records and of new epochs.
    """
    machine = BrokerMachine(simulation)
    machine.start()
    await _create_topics(simulation)
    chance = random.Random(simulation.seed)
    workload = Workload(chance, TOPICS, records=400)
    producer = triokafka.Producer(
        bootstrap_servers=BOOTSTRAP,
        world=simulation.host("client").world,
        batch_size=300,
        linger_ms=1,
        request_timeout_ms=2_000,
        retry_backoff_ms=20,
        close_timeout_ms=120_000,
    )

    over = trio.Event()

    async def cut_the_power() -> None:
        for _ in range(3):
            await trio.sleep(chance.uniform(0.05, 0.2))
            await machine.restart(chance.uniform(0, 0.3), power_cut=True)
        over.set()

    await workload.run(producer, during=lambda: simulation.nursery.start_soon(cut_the_power))
    await over.wait()
    ledger = workload.ledger
    assert not ledger.failed
    entries = await read_all(BOOTSTRAP, TOPICS, world=simulation.host("auditor").world)
    ledger.check(entries, Promise.EXACTLY_ONCE, broker_forgets=True)
    written = sum(map(len, entries.values()))
    return len(ledger.acknowledged) - written, int(producer.metrics()["epoch_bump_total"])


def test_truncated_logs_cause_new_epochs_and_no_record_is_repeated() -> None:
    """The sequence is out of order after an unclean restart, as in KIP-360: the producer continues, in order, without
    help.
    """
    results = [run_simulation(_power_cuts, seed) for seed in range(SEEDS)]
    assert sum(lost for lost, _ in results) > 0, "no record was lost: the power cuts have no effect"
    assert sum(bumps for _, bumps in results) > 0, "no new epoch was started"


async def _minute_of_silence(simulation: Simulation, *, given: dict[str, Any]) -> tuple[Ledger, int]:
    machine = BrokerMachine(simulation)
    machine.start()
    await _create_topics(simulation)
    # Full load: five callers that never pause, and are limited only by the buffer.
    chance = random.Random(simulation.seed)
    workload = Workload(chance, TOPICS, records=3_000, callers=5, pause=0, cancel=0, flushes=False)
    producer = triokafka.Producer(
        bootstrap_servers=BOOTSTRAP,
        world=simulation.host("client").world,
        batch_size=1_000,
        buffer_memory=20_000,
        max_block_ms=300_000,
        close_timeout_ms=300_000,
        **given,
    )
    waiting = 0.0

    async def silence() -> None:
        nonlocal waiting
        for topic in TOPICS:  # a caller that waits for metadata does not wait for memory
            await producer.partitions_for(topic)
        await trio.sleep(0.03)
        machine.host.world.pause()
        for _ in range(60):
            await trio.sleep(1)
            metrics = producer.metrics()
            assert metrics["buffer_available_bytes"] >= 0
            waiting = max(waiting, metrics["waiting_threads"])
        machine.host.world.resume()

    before = trio.current_time()
    await workload.run(producer, during=lambda: simulation.nursery.start_soon(silence))
    assert trio.current_time() - before > 60
    assert waiting > 0, "no caller had to wait for memory"
    ledger = workload.ledger
    assert not ledger.failed
    entries = await read_all(BOOTSTRAP, TOPICS, world=simulation.host("auditor").world)
    return ledger, ledger.check(entries, Promise.EXACTLY_ONCE)


@pytest.mark.parametrize("in_flight", [1, 5])
def test_minute_of_silence_under_full_load_loses_and_repeats_no_record(in_flight: int) -> None:
    """Requests time out after 30 s and are sent again while the broker is silent."""
    for seed in range(3):
        given = {"max_in_flight_requests_per_connection": in_flight}
        run_simulation(functools.partial(_minute_of_silence, given=given), seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", PROMISES)
def test_thousands_of_schedules_of_a_whole_broker(name: str) -> None:
    """The same with other seeds; failures are printed, and the run continues."""
    run_seeds(name, range(SEEDS, SEEDS + LONG_SEEDS), functools.partial(replay, name))
