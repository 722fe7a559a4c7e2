"""Watch a producer: hooks receive events, metrics have totals, and health lists ongoing failures.

triokafka broker --listen 127.0.0.1:9092 --in-memory
python examples/produce_watched.py localhost:9092
"""

from __future__ import annotations

import sys

import trio

import triokafka
from triokafka import Node, TopicPartition


class Watch(triokafka.Hooks):
    """Override the events of interest; all others cost nothing. Here they are printed."""

    def on_connect(self, node: Node, address: str, seconds: float, error: Exception | None) -> None:
        print(f"connected to broker {node.node_id}" if error is None else f"no connection: {error}")

    def on_batch_retried(self, topic_partition: TopicPartition, records: int, attempt: int, error: Exception) -> None:
        print(f"{topic_partition}: {records} records go again, attempt {attempt} failed: {error}")

    def on_batch_failed(self, topic_partition: TopicPartition, records: int, error: Exception) -> None:
        print(f"{topic_partition}: {records} records are lost: {error}")


async def report(producer: triokafka.Producer, seconds: float) -> None:
    """Do the work of an exporter. Rates are differences of totals."""
    before = producer.metrics()
    while True:
        await trio.sleep(seconds)
        now = producer.metrics()
        rate = (now["record_send_total"] - before["record_send_total"]) / seconds
        print(
            f"{rate:.0f} records/s, {now['batch_size_avg']:.0f} bytes a batch, compressed to"
            f" {now['compression_rate_avg']:.0%}, {now['request_latency_avg']:.1f} ms a request"
        )
        for trouble in producer.health().troubles:
            print(f"trouble: {trouble}")
        before = now


async def main(bootstrap_servers: str = "localhost:9092", topic: str = "watched", seconds: str = "3") -> None:
    """Send for some seconds and report each second."""
    async with (
        triokafka.Producer(bootstrap_servers=bootstrap_servers, hooks=Watch(), compression_type="gzip") as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(report, producer, 0.5)
        with trio.move_on_after(float(seconds)):
            while True:
                await producer.send_many(topic, [b"a reading, much like the last one"] * 100)
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    print(f"healthy: {producer.health().healthy}")


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
