"""A broker that is killed in the middle, in virtual time. The same seed gives the same run.

python examples/simulation.py 7
"""

from __future__ import annotations

import sys

import trio

import triokafka
from triokafka.testing import SimulatedWorld, Simulation, run_simulation, running_broker

RECORDS = 200


async def broker(world: SimulatedWorld) -> None:
    """The process on the broker's host: it serves until it is killed, and keeps its data on the host's disk."""
    async with running_broker(world=world, listeners=("PLAINTEXT://broker:9092",)):
        await trio.sleep_forever()


async def story(simulation: Simulation) -> list[bytes | None]:
    """Produce through a network that loses packets and a broker that dies; then read everything back."""
    server, client = simulation.host("broker"), simulation.host("client")
    server.start(broker)
    simulation.network.conditions.loss = 0.02

    async with triokafka.Producer(bootstrap_servers="broker:9092", world=client.world) as producer:
        for number in range(RECORDS):
            await producer.send("orders", str(number).encode())
            if number == RECORDS // 2:
                await server.kill()
                await trio.sleep(5)  # five virtual seconds pass at once
                server.start(broker)

    async with triokafka.Consumer(bootstrap_servers="broker:9092", world=client.world) as consumer:
        consumer.assign([triokafka.TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        async for record in consumer:
            values.append(record.value)
            if len(values) == RECORDS:
                return values
    raise AssertionError("the consumer never ends by itself")


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    assert run_simulation(story, seed=seed) == [str(number).encode() for number in range(RECORDS)]
    print(f"seed {seed}: all {RECORDS} records, once and in order, although the broker was killed")
