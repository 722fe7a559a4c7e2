"""One member of the demo's consumer group, in its own process, so that it can be killed without leaving the group.

It reports events to the parent as JSON lines on standard output: ``assigned`` with generation and partitions,
``revoked`` with partitions, ``batch`` with partition, offsets and row numbers, ``commit failed`` with the reason. It
handles at most ``--pace`` records a second, as a service that works on each record would.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence

import trio

import triokafka
from triokafka.structs import TopicPartition


def _tell(**event: object) -> None:
    sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
    sys.stdout.flush()


async def _consume(arguments: argparse.Namespace) -> None:
    consumer = triokafka.Consumer(
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        client_id=arguments.name,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    class RebalanceReporter(triokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
            _tell(event="revoked", partitions=sorted(one.partition for one in revoked))

        def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            partitions = sorted(one.partition for one in consumer.assignment())
            _tell(event="assigned", generation=consumer.health().generation, partitions=partitions)

    async with consumer:
        consumer.subscribe([arguments.topic], listener=RebalanceReporter())
        pause = arguments.batch / arguments.pace
        while True:
            polled = await consumer.poll(timeout_ms=1_000, max_records=arguments.batch)
            for partition, records in polled.items():
                rows = [json.loads(record.value)["row"] for record in records]
                _tell(
                    event="batch",
                    partition=partition.partition,
                    first=records[0].offset,
                    last=records[-1].offset,
                    rows=rows,
                )
            if polled:
                await trio.sleep(pause)
                try:
                    await consumer.commit()
                except triokafka.errors.KafkaError as error:
                    # The group has rebalanced; the partitions' new owners read these records again.
                    _tell(event="commit failed", reason=str(error))


async def _run(arguments: argparse.Namespace) -> None:
    async with trio.open_nursery() as nursery:

        async def stop_on_signal() -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()
                    return

        nursery.start_soon(stop_on_signal)
        await _consume(arguments)


def main() -> None:
    """Run one member until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--pace", type=int, default=8_000)
    parser.add_argument("--batch", type=int, default=1_500)
    trio.run(_run, parser.parse_args())


if __name__ == "__main__":
    main()
