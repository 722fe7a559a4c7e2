"""``python -m tests.support.full_speed_producer`` produces at full speed until standard input ends.

Its argument is a JSON object: ``bootstrap``, ``topic``, ``partitions``, ``size`` of a value, ``many`` (send_many
instead of send), and ``options`` of the producer. It prints ``connected`` once the first record is acknowledged. At the
end it prints a JSON object: the number of records sent to each partition, and the total numbers acknowledged and
failed. Values begin with a number that counts up per partition.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import trio

import triokafka
from triokafka.world.system import RealWorld

_COLUMN = 500
_NOISE = 1 << 20


async def main(job: dict[str, Any]) -> None:
    """Produce until standard input is closed."""
    topic, partitions = job["topic"], job["partitions"]
    size = job["size"]
    # Incompressible bytes: otherwise the memory of a stall would hold more records than its size suggests.
    noise = RealWorld().random_bytes(_NOISE)
    sent = [0] * partitions
    settled = {"acknowledged": 0, "failed": 0}
    stop = trio.Event()

    async def wait_for_the_end() -> None:
        await trio.to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
        stop.set()

    producer = triokafka.Producer(bootstrap_servers=job["bootstrap"], **job["options"])
    async with producer:
        await (await producer.send(topic, b"0|", partition=0))
        sent[0] = 1
        print("connected", flush=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_the_end)
            while not stop.is_set():
                for partition in range(partitions):
                    first = sent[partition]
                    values = [
                        b"%d|%b" % (number, noise[(at := number * 7_919 % (_NOISE - size)) : at + size])
                        for number in range(first, first + _COLUMN)
                    ]
                    if job["many"]:
                        await producer.send_many(topic, values, partition=partition)
                    else:
                        for value in values:
                            await producer.send(topic, value, partition=partition)
                    sent[partition] += _COLUMN
                await trio.lowlevel.checkpoint()
    metrics = producer.metrics()
    settled["acknowledged"] = int(metrics["record_send_total"])
    settled["failed"] = int(metrics["record_error_total"])
    print(json.dumps({"sent": sent, **settled}), flush=True)


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
