"""The producer with lz4 in a thread beside the event loop, on real sockets."""

from __future__ import annotations

import random
from typing import Any

import kafka
import pytest
import trio

import triokafka
from tests.support.scripted_producing import memory_is_whole
from triokafka import kernels
from triokafka.client.producer.lz4_compressor import Lz4Compressor, can_serve
from triokafka.errors import KafkaTimeoutError
from triokafka.world.system import RealWorld

pytestmark = pytest.mark.skipif(
    kernels.implementation() == "plain" or not can_serve(RealWorld()), reason="threads do not compress lz4 here"
)


def _values(count: int, size: int) -> list[bytes]:
    chance = random.Random(5)
    return [b"%d " % i + (b"abc %d " % chance.randrange(1000)) * chance.randrange(size // 8) for i in range(count)]


def _read(bootstrap: str, topic: str, count: int) -> dict[int, list[bytes]]:
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    try:
        found: dict[int, list[bytes]] = {}
        while sum(map(len, found.values())) < count:
            for partition, records in consumer.poll(timeout_ms=10_000).items():
                found.setdefault(partition.partition, []).extend(record.value for record in records)
        return found
    finally:
        consumer.close()


@pytest.fixture
def through_threads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that collects the batches compressed by a thread."""
    found: list[Any] = []
    let_go = Lz4Compressor._let_go

    def noting(self: Lz4Compressor, batch: Any) -> None:
        if batch.compressed:
            found.append(batch)
        let_go(self, batch)

    monkeypatch.setattr(Lz4Compressor, "_let_go", noting)
    return found


@pytest.mark.parametrize("idempotent", [True, False])
async def test_order_and_bytes_are_unchanged(
    bootstrap: str, topic: str, through_threads: list[Any], idempotent: bool
) -> None:
    """The thread compresses large batches, the event loop small ones between them."""
    values = _values(6_000, 4_000)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    with trio.fail_after(60):
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, 2, 1)])
        async with triokafka.Producer(
            bootstrap_servers=bootstrap,
            compression_type="lz4",
            linger_ms=1,
            batch_size=120_000,
            buffer_memory=2_000_000,
            enable_idempotence=idempotent,
            max_in_flight_requests_per_connection=5 if idempotent else 1,
        ) as producer:
            for number, value in enumerate(values):
                partition = number // 300 % 2
                sent[partition].append(value)
                await producer.send(topic, value, partition=partition)
                if number % 1_999 == 0:
                    await producer.flush()
            await producer.flush()
            assert memory_is_whole(producer)
        assert await trio.to_thread.run_sync(_read, bootstrap, topic, len(values)) == sent
    assert len(through_threads) > 10


async def test_leaving_at_once_releases_the_memory_of_batches_in_the_thread(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, 1, 1)])
        producer = triokafka.Producer(
            bootstrap_servers=bootstrap, compression_type="lz4", batch_size=400_000, close_timeout_ms=0
        )
        with pytest.raises(ExceptionGroup, match="records were not delivered") as left:
            async with producer:
                for round_number in range(3):
                    for value in _values(2_000, 4_000):
                        await producer.send(topic, value)
                    if round_number == 0:
                        await producer.flush()  # the thread has started by now
        assert left.group_contains(KafkaTimeoutError, match="close_timeout_ms=0")
        assert memory_is_whole(producer)
