"""``triokafka get-offsets``: print the offsets of partitions at a time, or at the ends of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import admin_command
from triokafka.cli.failures import describe
from triokafka.cli.output import examples, output_options, print_json
from triokafka.cli.parameter_types import INT64, whole_number
from triokafka.cli.partition_filters import NOTHING_MATCHES, of_patterns, of_topic

if TYPE_CHECKING:
    from triokafka import AdminClient

_TIMES: Final = {
    "latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5,
    "earliest-pending-upload": -6,
}  # fmt: skip
_BY_TEXT: Final = _TIMES | {str(number): number for number in _TIMES.values()}
_NO_OFFSET: Final = -1


@click.command(
    "get-offsets",
    epilog=examples(
        "triokafka get-offsets --topic orders",
        'triokafka get-offsets --topic "orders.*,payments" --time earliest --json',
        "triokafka get-offsets --topic-partitions orders:0-3,payments:1 --time 1767225600000",
    ),
)
@admin_command
@click.option(
    "--topic", metavar="TOPICS", shell_complete=topic_names, help="Names or regular expressions.  [default: all topics]"
)
@click.option("--partitions", metavar="ID,…", help="Only these partitions of the topics.")
@click.option(
    "--topic-partitions", metavar="T:1,T:0-3,…",
    help="Partitions by topic, instead of --topic and --partitions: T, T:1, T:5-, T:0-3 without 3. T is a pattern.",
)  # fmt: skip
@click.option(
    "--time", "text", default="latest", show_default=True, metavar="TIME",
    help="-1 or latest, -2 or earliest, -3 or max-timestamp, -4 or earliest-local, -5 or latest-tiered,"
    " -6 or earliest-pending-upload, or the first record since a time in milliseconds.",
)  # fmt: skip
@click.option("--exclude-internal-topics", "exclude_internal", is_flag=True, help="Omit internal topics.")
@output_options
async def command(
    admin: AdminClient,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    text: str,
    exclude_internal: bool,
    output: str,
) -> int:
    """Print the offset of each partition as TOPIC:PARTITION:OFFSET.

    A partition without such an offset, such as one without a record since the time, has no line. One whose offset
    could not be fetched has a line on standard error, and the exit status is 1.
    """
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions cannot be used with --topic or --partitions.")
    wanted = of_topic(topic, partitions) if topic_partitions is None else of_patterns(topic_partitions)
    timestamp = _BY_TEXT.get(text.strip(), whole_number(text, INT64))
    if timestamp is None:
        raise click.UsageError(
            f"--time takes {', '.join(f'{number} or {name}' for name, number in _TIMES.items())}, or milliseconds,"
            f" not {text!r}."
        )
    listed = await admin.list_topics(include_internal=not exclude_internal)
    described = await admin.describe_topics(wanted.topics(one.name for one in listed))
    found = [partition for partition, _ in wanted.select(described)]
    if not found:
        click.echo(NOTHING_MATCHES, err=True)
        return 1
    offsets = await admin.list_offsets(dict.fromkeys(found, timestamp))
    # Sorted as Kafka's tool does: by the text orders-10, not by the number 10.
    rows = [
        (partition, offsets[partition].offset)
        for partition in sorted(found, key=str)
        if partition not in offsets.errors and offsets[partition].offset != _NO_OFFSET
    ]
    if output == "json":
        print_json([{"topic": one.topic, "partition": one.partition, "offset": offset} for one, offset in rows])
    else:
        for partition, offset in rows:
            click.echo(f"{partition.topic}:{partition.partition}:{offset}")
    for partition, error in sorted(offsets.errors.items(), key=lambda row: str(row[0])):
        click.echo(f"triokafka: {partition} has no offset: {describe(error)}", err=True)
    return 1 if offsets.errors else 0
