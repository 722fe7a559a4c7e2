"""``triokafka consume``: print a topic's records to standard output."""

from __future__ import annotations

import re
from typing import Any

import click

from triokafka.cli.client_properties import pairs_or_empty, read_properties, read_properties_text, setting
from triokafka.cli.completion_values import group_names, topic_names
from triokafka.cli.connection import bootstrap_option, client_options, configuration_options
from triokafka.cli.consume_run import ConsumedTopics, ConsumeRun
from triokafka.cli.consume_start import parse_position
from triokafka.cli.format_options import format_options, registry_options
from triokafka.cli.format_string import FormatFormatter
from triokafka.cli.formatters import make_formatter
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import PARTITION, FiniteNumber, Integer
from triokafka.cli.record_codecs import REGISTRY_FORMATS, decoder
from triokafka.cli.slow_work import SlowWork
from triokafka.cli.topic_argument import TopicCommand


@click.command(
    "consume",
    cls=TopicCommand,
    epilog=examples(
        "triokafka consume orders --from-beginning --max-messages 10",
        "triokafka consume orders --from-beginning --json --max-messages 10",
        "triokafka consume orders --group audit --property print.key=true",
        "triokafka consume orders --partition 3 --offset 12345",
        "triokafka consume orders --offset -10 --until-end",
        r"triokafka consume orders --from-beginning -f '%t [%p] at offset %o: key %k: %s\n'",
        "triokafka consume orders --value-format registry --schema-registry http://localhost:8081",
    ),
)
@click.argument("topic", required=False, shell_complete=topic_names)
@bootstrap_option()
@click.option("--include", metavar="REGEX", help="Regular expression for whole topic names, instead of TOPIC.")
@click.option(
    "--group", metavar="ID", shell_complete=group_names, help="Consume as a member of this group, and commit offsets."
)
@click.option("--wait-for-topic", is_flag=True, help="Wait for a TOPIC that does not exist instead of failing.")
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record if the group has no committed offset.")
@click.option("--partition", type=PARTITION, help="Read only this partition of TOPIC.")
@click.option(
    "--offset", metavar="OFFSET",
    help="Where to start in each partition: earliest, latest, an offset, -N for the last N records, or s@MS for the "
    "first record at or after a time in milliseconds since 1970.  [default: latest]",
)  # fmt: skip
@click.option("-e", "--until-end", is_flag=True, help="End at the records that were the last ones at the start.")
@click.option(
    "--max-messages",
    "--max-records",
    "limit",
    type=Integer(min=1),
    metavar="COUNT",
    help="End after this many records.",
)
@click.option(
    "--timeout-ms", type=FiniteNumber(), metavar="MS", help="End after this time without a record; negative: never."
)
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed skips records of open and aborted transactions.",
)
@click.option("--key-separator", metavar="TEXT", help="Print the key, this separator, and the value.")
@click.option("--null", "null", metavar="TEXT", help="Printed for a null.  [default: null; with --format, nothing]")
@click.option(
    "--formatter", default="default", show_default=True, metavar="NAME",
    help="default, json, kcat-json, logging, noop, checksum, offsets, group-metadata, transaction-log, or your own "
    "MODULE:CLASS.",
)  # fmt: skip
@click.option(
    "--property", "--formatter-property", "properties", multiple=True, metavar="NAME=VALUE",
    help="A formatter property: print.key=true, …",
)  # fmt: skip
@click.option("--formatter-config", metavar="FILE", help="Properties file for the formatter.")
@click.option("--key-deserializer", metavar="MODULE:NAME", help="Deserializer of printed keys, or Kafka's class.")
@click.option("--value-deserializer", metavar="MODULE:NAME", help="Deserializer of printed values, or Kafka's class.")
@format_options(writes=False)
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be printed.")
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@configuration_options("consumer", "--consumer-property", "--command-property")
def command(
    topic: str | None,
    bootstrap: str,
    include: str | None,
    group: str | None,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    limit: int | None,
    timeout_ms: float | None,
    wait_for_topic: bool,
    as_json: bool,
    isolation_level: str | None,
    until_end: bool,
    key_separator: str | None,
    null: str | None,
    formatter: str,
    properties: tuple[str, ...],
    formatter_config: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    enable_systest_events: bool,
    config_file: str | None,
    more: tuple[str, ...],
    text_format: str | None,
    key_format: str | None,
    value_format: str | None,
    **registry: Any,
) -> int:
    """Print the records of TOPIC, until Ctrl-C, --max-messages or --timeout-ms.

    Without --group it reads all partitions and commits nothing. A TOPIC that does not exist is an error; the command
    does not create it.
    """
    import trio

    _check(topic, include, group, partition, offset, from_beginning)
    if as_json:
        if formatter != "default":
            raise click.UsageError("--json and --formatter exclude each other.")
        if null is not None:
            raise click.UsageError("--json and --null exclude each other: null is null in JSON.")
        formatter = "json"
    printing = {} if formatter_config is None else read_properties_text(formatter_config)
    printing.update(pairs_or_empty("--property", properties))
    if key_separator is not None:
        printing.update({"print.key": "true", "key.separator": key_separator, "null.literal": ""})
    if null is not None and text_format is None:
        printing["null.literal"] = null
    for name, value in (("key.deserializer", key_deserializer), ("value.deserializer", value_deserializer)):
        if value is not None:
            printing[name] = value
    options = client_options(
        bootstrap,
        {"client_id": "console-consumer", "allow_auto_create_topics": False},
        read_properties(config_file),
        dict(setting("-X", text) for text in more),
    )
    options["auto_offset_reset"] = "earliest" if from_beginning else "latest"
    if group is not None:
        options["group_id"] = group
    if isolation_level is not None:
        options["isolation_level"] = isolation_level
    if include is not None:
        options.setdefault("exclude_internal_topics", True)
    start = ConsumedTopics(
        topic, include, partition, None if offset is None else parse_position(offset), waits=wait_for_topic
    )
    known = registry_options(registry)
    decode_key = decoder("--key-format", key_format, known)
    decode_value = decoder("--value-format", value_format, known)
    if text_format is None:
        shown = make_formatter(formatter, printing, decode_key, decode_value)
    else:
        if printing or formatter != "default":
            raise click.UsageError("--format excludes --formatter, --json, --key-separator and --property.")
        shown = FormatFormatter(text_format, decode_key, decode_value, null=(null or "").encode())
    slow = SlowWork.of_registry(known) if {key_format, value_format} & {*REGISTRY_FORMATS} else None
    run = ConsumeRun(start, options, shown, skips_errors=skip_message_on_error, slow=slow, until_end=until_end)
    status = trio.run(run.main, limit, None if timeout_ms is None or timeout_ms < 0 else timeout_ms)
    if enable_systest_events:
        click.echo("shutdown_complete")
    return status


def _check(
    topic: str | None,
    include: str | None,
    group: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
) -> None:
    if (topic is None) == (include is None):
        raise click.UsageError("Nothing to read: give either TOPIC or --include.")
    if group == "":
        raise click.UsageError("--group: the group id is empty.")
    if include is not None:
        try:
            re.compile(include)
        except re.error as error:
            raise click.UsageError(f"--include: {include!r} is not a regular expression: {error}.") from None
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs TOPIC.")
    if offset is not None:
        if topic is None:
            raise click.UsageError("--offset needs TOPIC.")
        if group is not None and partition is None:
            raise click.UsageError("--offset with --group needs --partition: a group has offsets of its own.")
        if from_beginning:
            raise click.UsageError("--offset and --from-beginning exclude each other.")
