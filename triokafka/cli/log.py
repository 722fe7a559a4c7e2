"""``triokafka log``: print log files and log directories, and repair damaged metadata."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.connection import admin_command
from triokafka.cli.failures import describe as described
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import Integer
from triokafka.cli.progress import progress, shows_progress

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import LogDirDescription, Results


@click.group("log", cls=CommandGroup)
def command() -> None:
    """Print log files and log directories, and repair damaged metadata."""


@command.command(
    "dump",
    epilog=examples(
        "triokafka log dump data/orders-0",
        "triokafka log dump --print-data-log data/orders-0/00000000000000000000.log",
        "triokafka log dump --offsets-decoder data/__consumer_offsets-12",
    ),
)
@click.argument("paths", nargs=-1, metavar="[FILE|DIRECTORY]...")
@click.option("--files", metavar="FILE,...", help="More files, separated by commas.")
@click.option("--print-data-log", is_flag=True, help="Print the key and value of every record.")
@click.option("--deep-iteration", is_flag=True, help="Print records, not only batches.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option(
    "--max-message-size",
    type=Integer(min=1),
    default=5_242_880,
    show_default=True,
    metavar="BYTES",
    help="Report a larger batch as damaged.",
)
@click.option(
    "--max-bytes",
    type=Integer(min=1),
    default=sys.maxsize,
    metavar="BYTES",
    help="Read only this many bytes of each .log file.",
)
@click.option(
    "--key-decoder-class",
    default="string",
    show_default=True,
    metavar="NAME",
    help="Decoder of keys: string, hex, integer or long.",
)
@click.option(
    "--value-decoder-class",
    default="string",
    show_default=True,
    metavar="NAME",
    help="Decoder of values.",
)
@click.option("--offsets-decoder", is_flag=True, help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", is_flag=True, help="Decode records of __transaction_state.")
@click.option("--cluster-metadata-decoder", is_flag=True, help="Decode records of __cluster_metadata.")
@click.option(
    "--show-secrets",
    is_flag=True,
    help="With --cluster-metadata-decoder: print salts and keys of SCRAM users and secret options.",
)
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with their log without printing entries.")
@click.option("--index-sanity-check", is_flag=True, help="Only check indexes for plausibility.")
@click.pass_context
def dump(
    ctx: click.Context,
    paths: tuple[str, ...],
    files: str | None,
    print_data_log: bool,
    deep_iteration: bool,
    skip_record_metadata: bool,
    max_message_size: int,
    max_bytes: int,
    key_decoder_class: str,
    value_decoder_class: str,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    cluster_metadata_decoder: bool,
    show_secrets: bool,
    verify_index_only: bool,
    index_sanity_check: bool,
) -> None:
    """Print the files of a log: .log, .index, .timeindex, .txnindex, .snapshot, checkpoints.

    For a DIRECTORY it prints all log files in it. It never writes to files; those of a running broker may end in the
    middle of a batch. At the end it reports damage, and offset gaps such as those left by compaction, on standard
    error. The exit status is 1 if a file is damaged.
    """
    from triokafka.cli.log_dump import decoders
    from triokafka.cli.log_dump.data_file import DataOptions
    from triokafka.cli.log_dump.dispatch import DumpOptions, data_bytes, dump_files
    from triokafka.cli.log_dump.report import Report
    from triokafka.world.os_storage import OsStorage

    wanted = [*paths, *(name.strip() for name in (files or "").split(",") if name.strip())]
    if not wanted:
        raise click.UsageError("No files: name them, or give --files.")
    special: list[tuple[bool, decoders.Decoder]] = [
        (offsets_decoder, decoders.offsets_record),
        (transaction_log_decoder, decoders.transaction_record),
        (cluster_metadata_decoder, partial(decoders.metadata_record, with_secrets=show_secrets)),
    ]
    chosen = [decode for given, decode in special if given]
    if len(chosen) > 1:
        raise click.UsageError("More than one decoder option: give one.")
    try:
        texts = decoders.with_texts(
            decoders.text_decoder(key_decoder_class), decoders.text_decoder(value_decoder_class)
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    content = print_data_log or bool(chosen) or skip_record_metadata
    options = DumpOptions(
        DataOptions(
            records=deep_iteration or content,
            content=content,
            metadata=not skip_record_metadata,
            decode=chosen[0] if chosen else texts,
            max_message_size=max_message_size,
            max_bytes=max_bytes,
        ),
        sanity_only=index_sanity_check,
        verify_only=verify_index_only,
    )
    storage = OsStorage()
    shown = shows_progress(beside_output=True)
    size = data_bytes(storage, wanted, max_bytes) if shown else 0
    with progress("reading", size, shown=shown, unit="bytes") as advance:
        report = Report(advance)
        dump_files(storage, wanted, options, report)
    report.finish()
    if report.failed:
        ctx.exit(1)


@command.command("repair", epilog=examples("triokafka log repair data/__cluster_metadata-0"))
@click.argument("directory", metavar="DIRECTORY")
def repair(directory: str) -> None:
    """Truncate a damaged metadata log, so that a broker can start with it.

    DIRECTORY is the folder __cluster_metadata-0 in the data directory of a stopped broker. Make a copy first. The
    command truncates the log at the first damage. It moves the rest, and unreadable snapshots, to files in the same
    folder that end with ".damaged". Topics created in the removed part are lost: the broker renames their folders to
    "...-stray" and keeps them.
    """
    import logging
    import time

    from triokafka.broker_stub.controller.metadata_log_repair import repair_metadata
    from triokafka.world.os_storage import OsStorage

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    repaired = repair_metadata(OsStorage(), directory, now_ms=int(time.time() * 1000))
    for path in repaired.kept:
        click.echo(f"kept {path}")
    click.echo(f"{directory} ends at offset {repaired.end_offset}")


@command.command("dirs", epilog=examples("triokafka log dirs", "triokafka log dirs --broker-list 1,2 --topic-list t"))
@admin_command
@click.option("--describe", is_flag=True, hidden=True, expose_value=False)  # kafka-log-dirs needs it
@click.option("--broker-list", metavar="ID,…", help="Only these brokers.")
@click.option("--topic-list", metavar="TOPIC,…", help="Only replicas of these topics.")
@output_options
async def dirs(admin: AdminClient, broker_list: str | None, topic_list: str | None, output: str) -> int:
    """Print the log directories of brokers, with the size and the lag of every replica."""
    brokers = None if broker_list is None else _numbers("--broker-list", broker_list)
    topics = None if topic_list is None else {topic for topic in topic_list.split(",") if topic}
    found = await admin.describe_log_dirs(brokers)
    document = {"version": 1, "brokers": [_broker(found, node, topics) for node in sorted(found)]}
    if output == "json":
        print_json(document)
    else:
        _print_directories(document)
    for node, error in sorted(found.errors.items()):
        click.echo(f"Broker {node}: {described(error)}", err=True)
    return 1 if found.errors else 0


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} takes broker ids such as 1,2,3, not {text!r}.") from None


def _broker(found: Results[int, dict[str, LogDirDescription]], node: int, topics: set[str] | None) -> dict[str, Any]:
    """Return the directories of a broker as in the JSON of Kafka's tool."""
    directories = {} if node in found.errors else found[node]
    return {
        "broker": node,
        "logDirs": [
            {
                "logDir": path,
                "error": None if directory.error is None else described(directory.error),
                "partitions": [
                    {
                        "partition": str(partition),
                        "size": replica.size,
                        "offsetLag": replica.offset_lag,
                        "isFuture": replica.is_future,
                    }
                    for partition, replica in sorted(directory.replicas.items())
                    if topics is None or partition.topic in topics
                ],
            }
            for path, directory in sorted(directories.items())
        ],
    }


def _print_directories(document: dict[str, Any]) -> None:
    for broker in document["brokers"]:
        for directory in broker["logDirs"]:
            problem = "" if directory["error"] is None else f"  OFFLINE: {directory['error']}"
            size = sum(partition["size"] for partition in directory["partitions"])
            count = len(directory["partitions"])
            click.echo(f"Broker {broker['broker']}  {directory['logDir']}  {count} replicas, {size} bytes{problem}")
            for partition in directory["partitions"]:
                future = "  moves here" if partition["isFuture"] else ""
                click.echo(
                    f"\t{partition['partition']}\t{partition['size']} bytes\tlag {partition['offsetLag']}{future}"
                )
