"""``triokafka produce``: send lines from standard input as records."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from triokafka.cli.app import describe
from triokafka.cli.completing import topic_names
from triokafka.cli.connection import (
    bootstrap_option,
    client_options,
    pair,
    pairs,
    read_properties,
    read_properties_text,
    setting,
)
from triokafka.cli.counting import counted
from triokafka.cli.format_options import format_options, registry_options
from triokafka.cli.formatters import text_of
from triokafka.cli.line_reader import Item, Lines, Reader, make_reader, nulling_reader
from triokafka.cli.output import examples
from triokafka.cli.progress import progress, shows_progress, size_of_input
from triokafka.cli.reaching import SILENCE, hooked
from triokafka.cli.record_codecs import REGISTRY_FORMATS, encoder
from triokafka.cli.record_format import FormatReader, encode_text, encoding_reader
from triokafka.cli.slow_work import SlowWork
from triokafka.cli.values import PARTITION, FiniteNumber, Whole, bytes_of_file, configured
from triokafka.errors import KafkaError, MessageSizeTooLargeError

if TYPE_CHECKING:
    from triokafka import Producer

_READ_BYTES: Final = 65_536
_LONGEST_LINE: Final = 64 << 20
"""Maximum bytes of a line, unless ``max_request_size`` allows larger records."""
_SHOWN_ERRORS: Final = 10
_PATIENCE: Final = 5  # seconds between reports of a failure
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(
    "produce",
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
@click.option("--timestamp", type=Whole(min=0), metavar="MS", help="Timestamp of every record.  [default: now]")
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
    type=Whole(min=0),
    metavar="BYTES",
    help="Maximum size of a batch.",
)
@click.option(
    "--max-memory-bytes",
    "buffer_memory",
    type=Whole(min=1),
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
    type=Whole(min=0),
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
    type=Whole(min=-1),
    metavar="BYTES",
    help="Send buffer of the connections; -1: system default.",
)
@click.option(
    "--producer-config",
    "--producer.config",
    "--command-config",
    "config_file",
    metavar="FILE",
    help="Properties file with options of the producer.",
)
@click.option(
    "-X",
    "--producer-property",
    "--command-property",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set any other option of the producer.",
)
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
    common = _Common(
        None if key is None else encode_text("--key", key, encode_key),
        tuple((name, text.encode()) for name, text in (pair("--header", header) for header in headers)),
        partition,
        timestamp,
    )
    slow = SlowWork.of_registry(registry) if {key_format, value_format} & {*REGISTRY_FORMATS} else None
    run = _Run(topic, options, reader, common, ends_with, sync=sync, slow=slow)
    one = None if value is None else value.encode()
    return trio.run(run.main, one if value_file is None else bytes_of_file(value_file, "--value-file"))


def pairs_or_empty(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse several NAME=VALUE; a name alone has an empty value."""
    return pairs(option, [text if "=" in text else f"{text}=" for text in texts])


class _Common(NamedTuple):
    """Attributes that all records of a run share."""

    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    timestamp_ms: int | None


class _Run:
    """One run of the command."""

    def __init__(
        self,
        topic: str,
        options: Mapping[str, Any],
        reader: Reader,
        common: _Common,
        delimiter: bytes,
        *,
        sync: bool,
        slow: SlowWork | None,
    ) -> None:
        self._topic = topic
        self._options = dict(options)
        limit = self._options["max_block_ms"]
        self._reaching = hooked(self._options, limit)
        self._common = common
        self._reader = reader
        self._sync = sync
        self._delimiter = delimiter
        self._slow = slow  # reading a line may wait for a schema registry
        self._acknowledged = 0
        self._failed = 0
        self._line = 0
        self._signal: int | None = None
        self._problem: Exception | None = None

    async def main(self, value: bytes | None) -> int:
        """Send one value, or lines until the end of input, a signal or an unreadable line; return the exit status."""
        import trio

        import triokafka

        async with configured(triokafka.Producer, **self._options) as producer, trio.open_nursery() as telling:
            telling.start_soon(self._reaching.report)
            telling.start_soon(self._report, producer)
            if self._slow is not None:
                telling.start_soon(self._slow.report)
            with trio.CancelScope() as reading, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_at_signal, signals, reading)
                    try:
                        if value is None:
                            await self._send_all(producer)
                        else:
                            await self._send(producer, value)
                    except ValueError as problem:
                        self._problem = problem
                    except KafkaError as problem:
                        self._problem = self._reaching.failure(problem)
                    nursery.cancel_scope.cancel()
            await producer.flush()
            telling.cancel_scope.cancel()
        if self._problem is not None:
            click.echo(f"triokafka: {describe(self._problem)}", err=True)
        click.echo(f"{counted(self._acknowledged, 'record')} acknowledged", err=True)
        if self._signal is not None:
            return 128 + self._signal
        return 1 if self._failed or self._problem is not None else 0

    async def _stop_at_signal(self, signals: AsyncIterator[int], reading: Any) -> None:
        async for number in signals:
            self._signal = number
            reading.cancel()
            return

    async def _report(self, producer: Producer) -> None:
        """Print why records are not acknowledged yet; they fail only after ``delivery_timeout_ms``."""
        import trio

        wait = min(SILENCE, _PATIENCE)
        while True:
            await trio.sleep(wait)
            health = producer.health()
            age = health.unacknowledged_age
            if age is None or age < wait or not self._reaching.answered:
                wait = min(SILENCE, _PATIENCE)
                continue
            wait = _PATIENCE
            why = f": {health.troubles[0].removesuffix('.')}" if health.troubles else ""
            count = health.unacknowledged_records
            verb = "is" if count == 1 else "are"
            click.echo(
                f"triokafka: {counted(count, 'record')} {verb} not acknowledged yet{why}; still trying", err=True
            )

    async def _send_all(self, producer: Producer) -> None:
        import trio

        # Unbuffered: a signal may end the program while the reading thread holds the buffer's lock, and the interpreter
        # then aborts.
        source: Any = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        prompt = sys.stdin.isatty()
        size = size_of_input()
        lines = Lines(max(_LONGEST_LINE, self._options.get("max_request_size", 0)), self._delimiter)
        with progress("sending", size, shown=size is not None and shows_progress(), unit="bytes") as advance:
            while True:
                if prompt:
                    click.echo(">", nl=False, err=True)
                data: bytes = await trio.to_thread.run_sync(source.read, _READ_BYTES, abandon_on_cancel=True)
                if not data:
                    break
                for line in lines.feed(data):
                    await self._send(producer, self._without_return(line))
                advance(len(data))
        if rest := lines.end():
            await self._send(producer, self._without_return(rest))

    def _without_return(self, line: bytes | int) -> bytes | int:
        return line.removesuffix(b"\r") if isinstance(line, bytes) and self._delimiter == b"\n" else line

    def _read(self, line: bytes, number: int) -> Item:
        """Return the record of a line. Raises `ValueError`, also for any error of a user's line reader."""
        try:
            item = self._reader(line, number)
        except ValueError:
            raise
        except KafkaError as error:  # of the schema registry
            raise ValueError(f"line {number} cannot be encoded: {describe(error)}") from error
        except Exception as error:
            raise ValueError(f"line {number} could not be read: {type(error).__name__}: {error}") from error
        if not isinstance(item, Item):
            raise ValueError(f"line {number}: the line reader returned {type(item).__name__}, not an Item")
        return item

    async def _send(self, producer: Producer, line: bytes | int) -> None:
        self._line += 1
        number = self._line

        def note(metadata: object, error: Exception | None) -> None:
            if error is None:
                self._acknowledged += 1
                return
            self._failed += 1
            if self._failed <= _SHOWN_ERRORS:
                click.echo(f"triokafka: line {number} was not acknowledged: {describe(error)}", err=True)

        if isinstance(line, int):
            note(None, MessageSizeTooLargeError(f"it has {line:,} bytes, more than the maximum record size"))
            return
        item = self._read(line, number) if self._slow is None else await self._slow.run(self._read, line, number)
        try:
            delivery = await producer.send(
                self._topic,
                item.value,
                key=item.key if self._common.key is None else self._common.key,
                headers=(*item.headers, *self._common.headers),
                partition=self._common.partition if item.partition is None else item.partition,
                timestamp_ms=self._common.timestamp_ms if item.timestamp_ms is None else item.timestamp_ms,
                on_delivery=note,
            )
        except MessageSizeTooLargeError as error:
            note(None, error)  # the next line may be shorter
            return
        if self._sync:
            try:
                await delivery
            except KafkaError:
                return  # the callback reports it; the next record may succeed
