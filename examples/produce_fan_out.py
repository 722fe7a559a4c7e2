"""Several tasks share one producer, and each waits for its own records.

triokafka broker --listen 127.0.0.1:9092 --in-memory
python examples/produce_fan_out.py localhost:9092
"""

from __future__ import annotations

import sys

import trio

import triokafka


async def worker(name: str, jobs: trio.MemoryReceiveChannel[int], producer: triokafka.Producer, topic: str) -> None:
    """Handle jobs, and finish a job only when the broker has its result."""
    done = 0
    async for job in jobs:
        delivery = await producer.send(topic, f"{name} did job {job}", key=job)
        await delivery
        done += 1
    print(f"{name}: {done} jobs")


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "results") -> None:
    """Run four workers. Their records share batches, which separate producers would not do."""
    async with (
        triokafka.Producer(
            bootstrap_servers=bootstrap_servers,
            key_serializer=triokafka.IntegerSerializer,
            value_serializer=triokafka.StringSerializer,
        ) as producer,
        trio.open_nursery() as nursery,
    ):
        # The nursery is inside the producer's block: the workers always end first.
        give, take = trio.open_memory_channel[int](100)
        for number in range(4):
            nursery.start_soon(worker, f"worker {number}", take.clone(), producer, topic)
        take.close()
        async with give:
            for job in range(200):
                await give.send(job)
    print(f"{producer.metrics()['record_send_total']:.0f} results in {producer.metrics()['batch_total']:.0f} batches")


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
