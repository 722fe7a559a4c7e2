"""A source that is faster than the broker: make it wait, or drop records that do not fit.

triokafka broker --listen 127.0.0.1:9092 --in-memory
python examples/produce_backpressure.py localhost:9092
"""

from __future__ import annotations

import sys

import trio

import triokafka
from triokafka.errors import BufferFullError

READING = b"x" * 1_000


async def wait_for_space(producer: triokafka.Producer, topic: str) -> None:
    """The usual way: `send` waits while the buffer is full, and so the source waits too. No record is lost, and memory
    stays within ``buffer_memory``."""
    for _ in range(5_000):
        await producer.send(topic, READING)
    await producer.flush()
    waited = producer.metrics()["bufferpool_wait_time_total"]
    print(f"sent 5000, waited {'some' if waited else 'no'} time for buffer space")


async def drop_what_does_not_fit(producer: triokafka.Producer, topic: str) -> None:
    """For a source that must not wait: the freshest reading is worth more than the oldest."""
    dropped = 0
    for number in range(5_000):
        try:
            producer.send_nowait(topic, READING)
        except BufferFullError:
            dropped += 1
        if number % 100 == 0:
            await trio.lowlevel.checkpoint()  # send_nowait never yields; the sender task needs to run
    print(f"sent {5_000 - dropped}, dropped {dropped}")


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "readings") -> None:
    """Run both, with a small buffer."""
    async with triokafka.Producer(bootstrap_servers=bootstrap_servers, buffer_memory=64 << 10) as producer:
        # send_nowait would raise MetadataNotReadyError instead of waiting for metadata
        await producer.partitions_for(topic)
        await wait_for_space(producer, topic)
        await drop_what_does_not_fit(producer, topic)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
