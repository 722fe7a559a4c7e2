"""``triokafka produce``: send lines from standard input as records."""

from __future__ import annotations

from typing import Any, Final

import click

from triokafka.cli.client_properties import pair, pairs_or_empty, read_properties, read_properties_text, setting
from triokafka.cli.completion_values import topic_names
from triokafka.cli.connection import bootstrap_option, client_options, configuration_options
from triokafka.cli.format_options import format_options, registry_options
from triokafka.cli.format_string import FormatReader, encode_text, encoding_reader
from triokafka.cli.line_reader import make_reader, nulling_reader
from triokafka.cli.output import examples
from triokafka.cli.parameter_types import PARTITION, FiniteNumber, Integer, bytes_of_file
from triokafka.cli.produce_run import ProduceRun, SharedAttributes
from triokafka.cli.record_codecs import REGISTRY_FORMATS, encoder
from triokafka.cli.slow_work import SlowWork
from triokafka.cli.topic_argument import TopicCommand
from triokafka.cli.user_classes import text_of

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(
    "produce",
    cls=TopicCommand,
    epilog=examples(
        "triokafka produce orders < orders.txt",
        "triokafka produce orders --key 'table 4' --value 'two coffees'",
        "triokafka produce orders --property parse.key=true --property key.separator=: < pairs.txt",
        r"triokafka produce orders -f '%k;%p;%s\n' < triples.txt",
        "triokafka produce orders --key photo-7 --value-file photo.jpg",
        "triokafka produce orders --value-format avro --value-schema order.avsc --schema-registry http://localhost:8081",
    ),
)
@click.argument("topic", shell_complete=topic_names)
@bootstrap_option(timeout_names=("--broker-timeout",))
@click.option("-k", "--key", metavar="TEXT", help="Key of every record.")
@click.option("--value", metavar="TEXT", help="Send one record with this value instead of standard input.")
@click.option("--value-file", metavar="FILE", help="Send one record with the content of this file as its value.")
@click.option("--null", "null", metavar="TEXT", help="A key or value that is this text is null; the text may be empty.")
@click.option(
    "-D", "--delimiter", metavar="TEXT", default=r"\n", show_default=r"\n",
    help=r"What ends a record in standard input, with the escapes \n, \r, \t and \0.",
)  # fmt: skip
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Add a header to every record.")
@click.option("--partition", type=PARTITION, help="Partition of every record.  [default: by key]")
@click.option("--key-separator", metavar="TEXT", help="Separator between key and value in a line.")
@click.option(
    "--property", "--reader-property", "properties", multiple=True, metavar="NAME=VALUE",
    help="A line reader property: parse.key=true, …",
)  # fmt: skip
@click.option("--timestamp", type=Integer(min=0), metavar="MS", help="Timestamp of every record.  [default: now]")
@format_options(writes=True)
@click.option("--reader-config", metavar="FILE", help="Properties file for the line reader.")
@click.option("--line-reader", metavar="MODULE:CLASS", help="Your own line reader class.")
@click.option("--sync", is_flag=True, help="Wait for each record's acknowledgement before sending the next.")
@click.option(
    "--compression", "--compression-codec", "compression", type=click.Choice(_CODECS), is_flag=False, flag_value="gzip",
    help="Compression codec; without a name, gzip.  [default: none]",
)  # fmt: skip
@click.option(
    "--acks",
    "--request-required-acks",
    "acks",
    type=click.Choice(["0", "1", "-1", "all"]),
    help="Required acknowledgements.  [default: all]",
)
@click.option(
    "--linger-ms",
    "--timeout",
    "linger_ms",
    type=FiniteNumber(min=0),
    help="How long a batch waits for more records.  [default: 20]",
)
@click.option(
    "--batch-size",
    "--max-partition-memory-bytes",
    "batch_size",
    type=Integer(min=0),
    metavar="BYTES",
    help="Maximum size of a batch.",
)
@click.option(
    "--max-memory-bytes",
    "buffer_memory",
    type=Integer(min=1),
    metavar="BYTES",
    help="Maximum memory for unacknowledged records.",
)
@click.option(
    "--max-block-ms",
    type=FiniteNumber(min=0),
    metavar="MS",
    help="How long a line waits for buffer space and metadata.  [default: --broker-timeout]",
)
@click.option(
    "--request-timeout-ms", type=FiniteNumber(min=1), metavar="MS", help="How long to wait for a broker's response."
)
@click.option(
    "--message-send-max-retries",
    "retries",
    type=Integer(min=0),
    metavar="COUNT",
    help="How often to retry a batch.",
)
@click.option(
    "--retry-backoff-ms", type=FiniteNumber(min=0), metavar="MS", help="Wait before a retry; doubles with each retry."
)
@click.option(
    "--metadata-expiry-ms",
    "metadata_max_age_ms",
    type=FiniteNumber(min=0),
    metavar="MS",
    help="Maximum age of metadata.",
)
@click.option(
    "--socket-buffer-size",
    "send_buffer_bytes",
    type=Integer(min=-1),
    metavar="BYTES",
    help="Send buffer of the connections; -1: system default.",
)
@configuration_options("producer", "--producer-property", "--command-property")
def command(
    topic: str,
    bootstrap: str,
    key: str | None,
    value: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    key_separator: str | None,
    value_file: str | None,
    null: str | None,
    delimiter: str,
    properties: tuple[str, ...],
    reader_config: str | None,
    line_reader: str | None,
    sync: bool,
    config_file: str | None,
    more: tuple[str, ...],
    timestamp: int | None,
    text_format: str | None,
    key_format: str | None,
    value_format: str | None,
    **named: Any,
) -> int:
    """Send each line of standard input to TOPIC, and print the number of acknowledged records at the end.

    Ends with status 1 if a record was not acknowledged or a line could not be read. Ctrl-C sends the lines read so far.
    """
    import trio

    reading = {} if reader_config is None else read_properties_text(reader_config)
    reading.update(pairs_or_empty("--property", properties))
    if key_separator is not None:
        reading.update({"parse.key": "true", "key.separator": key_separator, "ignore.error": "true"})
    if text_format is not None and (reading or line_reader is not None):
        raise click.UsageError("--format excludes --line-reader, --key-separator and --property.")
    reader = make_reader(line_reader, reading) if text_format is None else FormatReader(text_format, topic)
    registry = registry_options(named)
    encode_key = encoder("--key-format", key_format, registry, topic=topic, is_key=True)
    encode_value = encoder("--value-format", value_format, registry, topic=topic, is_key=False)
    reader = encoding_reader(nulling_reader(reader, null), encode_key, encode_value)
    ends_with = text_of({"": delimiter}, "", "")
    if not ends_with:
        raise click.UsageError("--delimiter: the text is empty.")
    if value is not None and value_file is not None:
        raise click.UsageError("--value and --value-file exclude each other.")
    if key is not None and reading.get("parse.key") == "true":
        raise click.UsageError("--key and a key in each line exclude each other.")
    named["compression_type"] = named.pop("compression")
    # A property on the command line overrides the file; an option of this command overrides both.
    options = client_options(
        bootstrap,
        {"client_id": "console-producer", "linger_ms": 20},
        read_properties(config_file),
        dict(setting("-X", text) for text in more),
        {name: value for name, value in named.items() if value is not None},
        timeout="max_block_ms",
    )
    if named["max_block_ms"] is not None:
        options["max_block_ms"] = named["max_block_ms"]
    common = SharedAttributes(
        None if key is None else encode_text("--key", key, encode_key),
        tuple((name, text.encode()) for name, text in (pair("--header", header) for header in headers)),
        partition,
        timestamp,
    )
    slow = SlowWork.of_registry(registry) if {key_format, value_format} & {*REGISTRY_FORMATS} else None
    run = ProduceRun(topic, options, reader, common, ends_with, sync=sync, slow=slow)
    one = None if value is None else value.encode()
    return trio.run(run.main, one if value_file is None else bytes_of_file(value_file, "--value-file"))
