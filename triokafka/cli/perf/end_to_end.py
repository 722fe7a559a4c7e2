"""``triokafka perf end-to-end``: how long a record takes from the producer to the consumer."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

import click

from triokafka.cli.client_properties import read_properties, setting
from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import bootstrap_option, client_options
from triokafka.cli.load.documents import json_text
from triokafka.cli.load.quantiles import LatencySummary, summarize
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import SIZE, Integer, configured
from triokafka.cli.progress import progress, shows_progress
from triokafka.cli.unreachable_brokers import hooked
from triokafka.errors import KafkaError

_POLL_MS: Final = 60_000
_EVERY: Final = 1_000
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class LostRecordError(KafkaError):
    """A record did not arrive within a minute, or another one arrived instead."""

    advice = "Use a topic that no other program writes to."


class _Shape(NamedTuple):
    """The sizes of a record in bytes, and its number of headers."""

    value: int
    key: int
    headers: int
    header_name: int
    header_value: int

    def record(self, random_: random.Random) -> tuple[bytes, bytes | None, list[tuple[str, bytes]]]:
        def text(size: int) -> bytes:
            return bytes(random_.choices(_LETTERS, k=size))

        headers = [(text(self.header_name).decode(), text(self.header_value)) for _ in range(self.headers)]
        return text(self.value), text(self.key) if self.key else None, headers


@click.command(
    "end-to-end",
    epilog=examples(
        "triokafka perf end-to-end --topic latency",
        "triokafka perf end-to-end --topic latency --num-records 1000 --acks all --record-size 1000 --json",
    ),
)
@click.option("--topic", required=True, shell_complete=topic_names, help="Topic to use; created if it does not exist.")
@bootstrap_option()
@click.option(
    "--num-records", "--messages", "count", type=Integer(min=1), default=10_000, show_default=True,
    help="Number of records, one after the other.",
)  # fmt: skip
@click.option(
    "--acks", "--producer-acks", "acks", type=click.Choice(["1", "all"]), default="all", show_default=True,
    help="Required acknowledgements.",
)  # fmt: skip
@click.option("--record-size", type=SIZE, default=100, show_default=True, metavar="BYTES", help="Size of a value.")
@click.option("--record-key-size", type=Integer(min=0), default=0, metavar="BYTES", help="Size of a key; 0 for none.")
@click.option("--num-headers", type=Integer(min=0), default=0, help="Number of headers of a record.")
@click.option(
    "--record-header-key-size", type=Integer(min=1), default=4, show_default=True, metavar="BYTES",
    help="Size of the name of a header.",
)  # fmt: skip
@click.option(
    "--record-header-size", type=Integer(min=0), default=4, show_default=True, metavar="BYTES",
    help="Size of the value of a header.",
)  # fmt: skip
@click.option(
    "--command-config", "config_file", metavar="FILE", help="Properties file with options of producer and consumer."
)
@click.option(
    "-X", "properties", multiple=True, metavar="NAME=VALUE", help="Set any other option of producer and consumer."
)
@click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")
def end_to_end(
    topic: str,
    bootstrap: str,
    count: int,
    acks: str,
    config_file: str | None,
    properties: tuple[str, ...],
    wants_json: bool,
    record_size: int,
    record_key_size: int,
    num_headers: int,
    record_header_key_size: int,
    record_header_size: int,
) -> int:
    """Send records one after the other, and report how long each takes until a consumer has it.

    The time of a record begins before it is sent and ends when the consumer's poll returns it.
    """
    import trio

    options = client_options(bootstrap, read_properties(config_file), dict(setting("-X", text) for text in properties))
    shape = _Shape(record_size, record_key_size, num_headers, record_header_key_size, record_header_size)
    summary = trio.run(_measure, options, topic, count, acks, shape, not wants_json)
    if wants_json:
        click.echo(json_text({"records": summary.measured, **_in_json(summary)}))
    else:
        click.echo(f"Avg latency: {summary.average:.4f} ms")
        click.echo(f"Percentiles: 50th = {summary.p50:.2f}, 99th = {summary.p99:.2f}, 99.9th = {summary.p999:.2f}")
    return 0


def _in_json(summary: LatencySummary) -> dict[str, float]:
    return {
        "average_ms": summary.average, "p50_ms": summary.p50, "p95_ms": summary.p95, "p99_ms": summary.p99,
        "p999_ms": summary.p999, "max_ms": summary.worst,
    }  # fmt: skip


async def _measure(
    options: dict[str, Any], topic: str, count: int, acks: str, shape: _Shape, prints: bool
) -> LatencySummary:
    import triokafka

    limit = options.pop("default_api_timeout_ms")
    reaching = hooked(options, limit)
    random_ = random.Random(0)
    async with configured(triokafka.AdminClient, **options, default_api_timeout_ms=limit) as admin:
        await reaching.watch(lambda: _create(admin, topic))
    latencies: list[float] = []
    async with (
        configured(triokafka.Consumer, **options, fetch_max_wait_ms=500, enable_auto_commit=False) as consumer,
        configured(triokafka.Producer, **options, linger_ms=0, acks=acks) as producer,
    ):
        await _assign(consumer, topic)
        with progress("sending", count, shown=shows_progress(beside_output=prints)) as advance:
            for number in range(count):
                latencies.append(await _once(producer, consumer, topic, shape.record(random_)))
                if prints and number % _EVERY == 0:
                    click.echo(f"{number}\t{latencies[-1] * 1e3:.4f}")
                advance(1)
    return summarize(latencies)


async def _create(admin: Any, topic: str) -> None:
    from triokafka.client.admin import NewTopic

    if topic not in {one.name for one in await admin.list_topics(include_internal=True)}:
        click.echo(f'Topic "{topic}" does not exist. It is created with 1 partition and 1 replica.', err=True)
        await admin.create_topics([NewTopic(topic, 1, 1)])


async def _assign(consumer: Any, topic: str) -> None:
    """Assign all partitions, and wait until the consumer has reached their ends."""
    from triokafka.structs import TopicPartition

    partitions = [TopicPartition(topic, number) for number in await consumer.partitions_for_topic(topic) or (0,)]
    consumer.assign(partitions)
    consumer.seek_to_end(*partitions)
    for partition in partitions:
        await consumer.position(partition)


async def _once(producer: Any, consumer: Any, topic: str, record: Any) -> float:
    import trio

    value, key, headers = record
    began_at = trio.current_time()
    await (await producer.send(topic, value, key=key, headers=headers))
    found = await consumer.poll(timeout_ms=_POLL_MS)
    seconds = trio.current_time() - began_at
    read = [bytes(one.value) for records in found.values() for one in records]
    if not read:
        raise LostRecordError(f"topic {topic}: a record did not arrive within {_POLL_MS // 1000} s")
    if read != [value]:
        raise LostRecordError(f"topic {topic}: {len(read)} records arrived that are not the one that was sent")
    return seconds
