"""A log moves between data directories of a broker that is killed during the move, while clients write to the log."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import trio

from tests.support.broker_process import BrokerProcess
from triokafka import AdminClient, Consumer, KafkaError, Producer, TopicPartition
from triokafka.client.admin import TopicPartitionReplica

TP = TopicPartition("moving", 0)


async def _write(bootstrap: str, written: list[int], acked: list[int]) -> None:
    """Write numbers until the broker is down."""
    try:
        async with Producer(
            bootstrap_servers=bootstrap, delivery_timeout_ms=2_000, request_timeout_ms=1_000, max_block_ms=2_000
        ) as producer:
            while True:
                first = len(written)
                written.extend(range(first, first + 100))
                values = [b"%d " % number + b"x" * 500 for number in written[first:]]
                deliveries = await producer.send_many("moving", values, partition=0)
                await deliveries
                acked.extend(written[first:])
    except* KafkaError:
        pass


async def _move(bootstrap: str, directories: list[str]) -> None:
    """Move the log back and forth until the broker is down."""
    try:
        async with AdminClient(bootstrap_servers=bootstrap, request_timeout_ms=1_000) as admin:
            while True:
                (found,) = (await admin.describe_log_dirs(partitions=[TP])).values()
                held = {path: shown.replicas[TP] for path, shown in found.items() if TP in shown.replicas}
                if len(held) == 1:
                    (here,) = held
                    (there,) = (path for path in directories if path != here)
                    await admin.alter_replica_log_dirs({TopicPartitionReplica("moving", 0, 1): there})
                await trio.sleep(0.02)
    except* KafkaError:
        pass


async def _read_all(bootstrap: str) -> list[int]:
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        end = (await consumer.end_offsets([TP]))[TP]
        found: list[int] = []
        while len(found) < end:
            for records in (await consumer.poll(timeout_ms=1_000)).values():
                found += [int(record.value.split()[0]) for record in records if record.value]
        return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_broker_that_is_killed_while_logs_move_loses_nothing(tmp_path: Path) -> None:
    """Acknowledged records are in the log once and in order; the start needs no manual repair."""
    kills, seed = int(os.environ.get("MOVE_KILLS", "30")), time.time_ns() % 10**6
    print(f"moves: seed {seed}", flush=True)
    chance = random.Random(seed)
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    broker = BrokerProcess(tmp_path / "one", tmp_path / "two", settings={"num.partitions": "1"})
    written: list[int] = []
    acked: list[int] = []
    places: set[str] = set()
    try:
        for _ in range(kills):

            async def until_killed() -> None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_write, broker.bootstrap, written, acked)
                    nursery.start_soon(_move, broker.bootstrap, directories)
                    await trio.sleep(chance.uniform(0.3, 1.5))
                    await trio.to_thread.run_sync(broker.kill)
                    nursery.cancel_scope.cancel()

            broker.start()
            trio.run(until_killed)
            places |= {path for path in directories if (Path(path) / "moving-0").exists()}
            broker.start()
            found = trio.run(_read_all, broker.bootstrap)
            assert found == sorted(set(found))
            assert set(acked) <= set(found)
            broker.kill()
    finally:
        broker.close()
    print(f"moves: {kills} kills, {len(acked)} records acknowledged", flush=True)
    assert places == set(directories)
