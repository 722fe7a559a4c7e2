"""``triokafka delete-records``: delete the records of partitions before an offset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.connection import AdminConnection, admin_options
from triokafka.cli.failures import describe, outcomes_of
from triokafka.cli.output import confirm, examples, output_options, print_json
from triokafka.cli.partition_files import entries, number, read_json, text
from triokafka.cli.unreachable_brokers import raise_without_brokers
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient

_VERSION = 1
_END = -1


@click.command(
    "delete-records",
    epilog=examples(
        "triokafka delete-records --offset-json-file offsets.json",
        "triokafka delete-records --offset-json-file offsets.json --dry-run",
    ),
)
@admin_options
@click.option(
    "--offset-json-file", "file", required=True, metavar="FILE",
    help='{"partitions": [{"topic": "t", "partition": 0, "offset": 100}], "version": 1}; offset -1: all records.',
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the present ends of the partitions, and delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation, on a terminal.")
@output_options
def command(connection: AdminConnection, file: str, dry_run: bool, yes: bool, output: str) -> int:
    """Delete the records of partitions before an offset, for good.

    A partition that fails does not stop the others; the exit status is then 1.
    """
    offsets = _read(file)

    async def work(admin: AdminClient) -> int:
        if dry_run:
            return await _preview(admin, offsets, output)
        if output == "text":
            click.echo("Executing records delete operation")
        low, errors = await _delete(admin, offsets)
        if output == "json":
            print_json(
                [
                    {"topic": one.topic, "partition": one.partition, **_outcome(low.get(one), errors.get(one))}
                    for one in sorted(offsets)
                ]
            )
            return 1 if errors else 0
        click.echo("Records delete operation completed:")
        for partition in sorted(offsets):
            if partition in low:
                click.echo(f"partition: {partition}\tlow_watermark: {low[partition]}")
            else:
                click.echo(f"partition: {partition}\terror: {describe(errors[partition])}")
        return 1 if errors else 0

    if not (yes or dry_run) and _on_terminal():
        confirm(f"Delete the records of {len(offsets)} partitions before the offsets in {file}?")
    return connection.run(work)


def _on_terminal() -> bool:
    """Whether a person runs the command. Programs that run Kafka's tool with the same options are not asked."""
    import sys

    return sys.stdin.isatty() and sys.stderr.isatty()


def _outcome(low_watermark: int | None, error: Exception | None) -> dict[str, Any]:
    return {"low_watermark": low_watermark, "error": None if error is None else describe(error)}


async def _delete(
    admin: AdminClient, offsets: Mapping[TopicPartition, int]
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, Exception]]:
    """Return the new log start offsets, and the errors of partitions that could not be changed."""
    try:
        return await admin.delete_records(offsets), {}
    except Exception as error:
        done, failed = outcomes_of(error)
        for reason in failed.values():
            raise_without_brokers(reason)
        return done, failed


async def _preview(admin: AdminClient, offsets: Mapping[TopicPartition, int], output: str) -> int:
    start = await admin.list_offsets(dict.fromkeys(offsets, "earliest"))
    end = await admin.list_offsets(dict.fromkeys(offsets, "latest"))
    failed = {**start.errors, **end.errors}
    for reason in failed.values():
        raise_without_brokers(reason)
    rows = []
    for partition in sorted(offsets):
        if partition in failed:
            continue
        first, last = start[partition].offset, end[partition].offset
        before = last if offsets[partition] == _END else offsets[partition]
        rows.append((partition, first, last, min(max(before - first, 0), last - first), before > last))
    if output == "json":
        print_json(
            [
                {"topic": p.topic, "partition": p.partition, "start": first, "end": last, "deleted_offsets": count,
                 "out_of_range": wrong}
                for p, first, last, count, wrong in rows
            ]
        )  # fmt: skip
    else:
        for partition, first, last, count, wrong in rows:
            what = "fails: the offset is after the end" if wrong else f"would delete {count} offsets"
            click.echo(f"partition: {partition}\tlog: {first} to {last}\t{what}")
    for partition, error in sorted(failed.items()):
        click.echo(f"triokafka: {partition}: {describe(error)}", err=True)
    return 1 if failed or any(wrong for *_, wrong in rows) else 0


def _read(path: str) -> dict[TopicPartition, int]:
    """Read the file of Kafka's tool."""
    option = "--offset-json-file"
    document = read_json(path, option)
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise click.UsageError(f"{option}: {path} has version {version!r}; this command reads version {_VERSION}.")
    found = entries(path, option, document, "partitions", _entry)
    partitions = [partition for partition, _ in found]
    twice = sorted({str(one) for one in partitions if partitions.count(one) > 1})
    if twice:
        raise click.UsageError(f"{option}: {path} contains duplicate topic partitions: {', '.join(twice)}.")
    return dict(found)


def _entry(entry: Mapping[str, Any]) -> tuple[TopicPartition, int]:
    offset = entry.get("offset")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < _END:
        raise ValueError('"offset" must be a number from -1 on')
    return TopicPartition(text(entry, "topic"), number(entry, "partition")), offset
