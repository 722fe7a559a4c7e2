"""Random schedules of a cluster in virtual time: leaders and coordinators move, brokers stop, crash, freeze and return.

Every acknowledged record is in the log once and in order, and a group reads all of them.
"""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.simulated import run_in_another_process
from triokafka.testing import RunningCluster, Simulation, run_simulation, running_cluster

RECORDS = 60
PARTITIONS = 3


async def inject_faults(simulation: Simulation, cluster: RunningCluster) -> None:
    """Inject faults until cancelled; then restore every broker."""
    chance = simulation.random
    try:
        while True:
            await trio.sleep(chance.uniform(0, 0.3))
            running = [broker for broker in cluster.brokers if broker.is_running]
            broker = chance.choice(running)
            match chance.choice(
                ["leader", "leader", "coordinator", "stop", "kill", "freeze", "cut", "refuse", "close"]
            ):
                case "leader":
                    await cluster.move_leader("t", chance.randrange(PARTITIONS))
                case "coordinator":
                    await cluster.move_coordinator("g")
                case "stop" | "kill" as how:
                    if len(running) > 1:
                        await cluster.stop(broker.node_id, clean=how == "stop")
                        await trio.sleep(chance.uniform(0, 0.5))
                        await cluster.start_broker(broker.node_id)
                case "freeze":
                    broker.freeze()
                    await trio.sleep(chance.uniform(0, 3))
                    broker.thaw()
                case "cut":
                    broker.cut_connections()
                case "refuse":
                    cluster.fail_next("Produce", "REQUEST_TIMED_OUT", after_append=True)
                case "close":
                    cluster.close_on(chance.choice(["Produce", "Fetch", "OffsetCommit"]), at="after")
    finally:
        with trio.CancelScope(shield=True):
            cluster.reset()
            for broker in cluster.brokers:
                await broker.start()


async def life(simulation: Simulation) -> str:
    host = simulation.host("cluster").world
    async with running_cluster(nodes=3, world=host) as cluster:
        await cluster.create_topic("t", partitions=PARTITIONS)
        seen: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
        done = trio.Event()

        async def read() -> None:
            async with triokafka.Consumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                request_timeout_ms=2_000,
                world=simulation.host("reader").world,
            ) as consumer:
                while not done.is_set() or sum(len(set(values)) for values in seen.values()) < RECORDS:
                    for partition, records in (await consumer.poll(timeout_ms=200)).items():
                        seen[partition.partition] += [record.value for record in records]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            async with trio.open_nursery() as faults:
                faults.start_soon(inject_faults, simulation, cluster)
                async with triokafka.Producer(
                    bootstrap_servers=cluster.bootstrap_servers,
                    linger_ms=0,
                    request_timeout_ms=2_000,
                    delivery_timeout_ms=600_000,
                    retry_backoff_ms=10,
                    world=simulation.host("writer").world,
                ) as producer:
                    for number in range(RECORDS):
                        await producer.send("t", b"%d" % number, partition=number % PARTITIONS)
                        await trio.sleep(simulation.random.uniform(0, 0.2))
                faults.cancel_scope.cancel()
            done.set()
        for number, values in seen.items():
            expected = [b"%d" % n for n in range(RECORDS) if n % PARTITIONS == number]
            log = cluster.brokers[0].broker.replicas.partition(("t", number)).log
            assert log.log_end_offset == len(expected)
            # Records behind uncommitted offsets are read again, starting with a record that was read before.
            first_time = list(dict.fromkeys(values))
            assert first_time == expected
    return simulation.trace_digest()


@pytest.mark.parametrize("seed", range(8))
def test_no_record_is_lost_or_repeated_when_leaders_move(seed: int) -> None:
    run_simulation(life, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_no_record_is_lost_or_repeated_in_many_schedules(seed: int) -> None:
    run_simulation(life, seed)


def test_a_seed_repeats_its_schedule_also_in_another_process() -> None:
    """The traces have equal digests."""
    assert run_in_another_process(life, 3) == run_simulation(life, 3)
