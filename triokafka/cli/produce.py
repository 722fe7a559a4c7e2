"""``triokafka produce``: lines from standard input become records."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.app import describe
from triokafka.cli.connection import TIMEOUT_MS, bootstrap_option, pairs, read_properties, read_properties_text, setting
from triokafka.cli.line_reader import Item, Lines, Reader, make_reader
from triokafka.cli.output import examples
from triokafka.cli.progress import progress, shows_progress, size_of_input
from triokafka.cli.values import Number, Whole, configured
from triokafka.errors import KafkaError, MessageSizeTooLargeError

if TYPE_CHECKING:
    from triokafka import Producer

_READ_BYTES: Final = 65_536
_LONGEST_LINE: Final = 64 << 20
"""Bytes of a line that are kept, unless ``max_request_size`` lets a record be larger."""
_SHOWN_ERRORS: Final = 10
_PATIENCE: Final = 5  # seconds without a word about what fails
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(
    "produce",
    epilog=examples(
        "triokafka produce orders < orders.txt",
        "triokafka produce orders --property parse.key=true --property key.separator=: < pairs.txt",
    ),
)
@click.argument("topic")
@bootstrap_option
@click.option("--key-separator", metavar="TEXT", help="What stands before it in a line is the key.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="How lines are read: parse.key=true, …"
)
@click.option("--reader-config", metavar="FILE", help="A properties file that says how lines are read.")
@click.option("--line-reader", metavar="MODULE:CLASS", help="A class of one's own that reads lines.")
@click.option("--sync", is_flag=True, help="Wait for each record before the next one is sent.")
@click.option(
    "--compression", "--compression-codec", "compression", type=click.Choice(_CODECS), is_flag=False, flag_value="gzip",
    help="Codec of the batches; gzip without a name.  [default: none]",
)  # fmt: skip
@click.option(
    "--acks",
    "--request-required-acks",
    "acks",
    type=click.Choice(["0", "1", "-1", "all"]),
    help="Whose acknowledgement counts.  [default: all]",
)
@click.option(
    "--linger-ms",
    "--timeout",
    "linger_ms",
    type=Number(min=0),
    help="How long a batch waits for more.  [default: 20]",
)
@click.option(
    "--batch-size",
    "--max-partition-memory-bytes",
    "batch_size",
    type=Whole(min=0),
    metavar="BYTES",
    help="When a batch is full.",
)
@click.option(
    "--max-memory-bytes", "buffer_memory", type=Whole(min=1), metavar="BYTES", help="Of all records under way."
)
@click.option(
    "--max-block-ms",
    type=Number(min=0),
    metavar="MS",
    help=f"How long a line waits for room and for the topic.  [default: {TIMEOUT_MS}]",
)
@click.option("--request-timeout-ms", type=Number(min=1), metavar="MS", help="How long a broker may take to answer.")
@click.option(
    "--message-send-max-retries",
    "retries",
    type=Whole(min=0),
    metavar="COUNT",
    help="How often a batch is sent again.",
)
@click.option("--retry-backoff-ms", type=Number(min=0), metavar="MS", help="Wait before that; it doubles.")
@click.option(
    "--metadata-expiry-ms",
    "metadata_max_age_ms",
    type=Number(min=0),
    metavar="MS",
    help="How old metadata may be.",
)
@click.option(
    "--socket-buffer-size",
    "send_buffer_bytes",
    type=Whole(min=-1),
    metavar="BYTES",
    help="The kernel's; -1: as it likes.",
)
@click.option(
    "--producer-config",
    "--producer.config",
    "config_file",
    metavar="FILE",
    help="A properties file with options of the producer.",
)
@click.option(
    "-X", "--producer-property", "more", multiple=True, metavar="NAME=VALUE", help="Any other option of the producer."
)
def command(
    topic: str,
    bootstrap: str,
    key_separator: str | None,
    properties: tuple[str, ...],
    reader_config: str | None,
    line_reader: str | None,
    sync: bool,
    config_file: str | None,
    more: tuple[str, ...],
    **named: Any,
) -> int:
    """Send each line of standard input to TOPIC, and say at the end how many were acknowledged.

    Ends with status 1 when a record was not acknowledged, or a line could not be read. Ctrl-C sends what was read.
    """
    import trio

    reading = {} if reader_config is None else read_properties_text(reader_config)
    reading.update(pairs_or_empty("--property", properties))
    if key_separator is not None:
        reading.update({"parse.key": "true", "key.separator": key_separator, "ignore.error": "true"})
    reader = make_reader(line_reader, reading)
    # A property on the command line wins over the file, a flag of its own over both (CP-04).
    options: dict[str, Any] = {"client_id": "console-producer", "linger_ms": 20, "max_block_ms": TIMEOUT_MS}
    options.update(read_properties(config_file))
    options.update(setting("-X", text) for text in more)
    named["compression_type"] = named.pop("compression")
    options.update({name: value for name, value in named.items() if value is not None})
    options.setdefault("bootstrap_servers", bootstrap)
    if click.get_current_context().get_parameter_source("bootstrap") is click.core.ParameterSource.COMMANDLINE:
        options["bootstrap_servers"] = bootstrap
    return trio.run(_Run(topic, options, reader, sync=sync).main)


def pairs_or_empty(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Several NAME=VALUE, where a name alone has an empty value (CL-03)."""
    return pairs(option, [text if "=" in text else f"{text}=" for text in texts])


class _Run:
    """One run of the command."""

    def __init__(self, topic: str, options: Mapping[str, Any], reader: Reader, *, sync: bool) -> None:
        self._topic = topic
        self._options = options
        self._reader = reader
        self._sync = sync
        self._acknowledged = 0
        self._failed = 0
        self._line = 0
        self._signal: int | None = None
        self._problem: Exception | None = None

    async def main(self) -> int:
        """Send until the end of the input, a signal or a line that cannot be read; returns the exit status."""
        import trio

        import triokafka

        async with configured(triokafka.Producer, **self._options) as producer, trio.open_nursery() as telling:
            telling.start_soon(self._tell_troubles, producer)
            with trio.CancelScope() as reading, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._stop_at_signal, signals, reading)
                    try:
                        await self._send_all(producer)
                    except (ValueError, KafkaError) as problem:
                        self._problem = problem
                    nursery.cancel_scope.cancel()
            await producer.flush()
            telling.cancel_scope.cancel()
        if self._problem is not None:
            click.echo(f"triokafka: {describe(self._problem)}", err=True)
        click.echo(f"{self._acknowledged} records acknowledged", err=True)
        if self._signal is not None:
            return 128 + self._signal
        return 1 if self._failed or self._problem is not None else 0

    async def _stop_at_signal(self, signals: AsyncIterator[int], reading: Any) -> None:
        async for number in signals:
            self._signal = number
            reading.cancel()
            return

    async def _tell_troubles(self, producer: Producer) -> None:
        """Say what keeps records from being acknowledged; they are given up after ``delivery_timeout_ms`` only."""
        import trio

        while True:
            await trio.sleep(_PATIENCE)
            health = producer.health()
            if health.unacknowledged_age is None or health.unacknowledged_age < _PATIENCE:
                continue
            why = f": {health.troubles[0].removesuffix('.')}" if health.troubles else ""
            count = health.unacknowledged_records
            click.echo(f"triokafka: {count} records are not acknowledged yet{why}; still trying", err=True)

    async def _send_all(self, producer: Producer) -> None:
        import trio

        # Not through the buffer: its lock would be held by the thread that still reads when a signal ends the program,
        # and the interpreter aborts over that.
        source: Any = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        prompt = sys.stdin.isatty()
        size = size_of_input()
        lines = Lines(max(_LONGEST_LINE, self._options.get("max_request_size", 0)))
        with progress("sending", size, shown=size is not None and shows_progress(), unit="bytes") as advance:
            while True:
                if prompt:
                    click.echo(">", nl=False, err=True)
                data: bytes = await trio.to_thread.run_sync(source.read, _READ_BYTES, abandon_on_cancel=True)
                if not data:
                    break
                for line in lines.feed(data):
                    await self._send(producer, line)
                advance(len(data))
        if rest := lines.end():
            await self._send(producer, rest)

    def _read(self, line: bytes, number: int) -> Item:
        """What a line stands for. Raises `ValueError`, also for whatever a reader of somebody's own raises."""
        try:
            item = self._reader(line, number)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"line {number} could not be read: {type(error).__name__}: {error}") from error
        if not isinstance(item, Item):
            raise ValueError(f"line {number}: the reader made {type(item).__name__} of it, not an Item")
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
            note(None, MessageSizeTooLargeError(f"it has {line:,} bytes, and was not read as a whole"))
            return
        item = self._read(line.removesuffix(b"\r"), number)
        try:
            delivery = await producer.send(
                self._topic, item.value, key=item.key, headers=item.headers, on_delivery=note
            )
        except MessageSizeTooLargeError as error:
            note(None, error)  # the next line may be shorter
            return
        if self._sync:
            try:
                await delivery
            except KafkaError:
                return  # told by the callback; the next record may do better
