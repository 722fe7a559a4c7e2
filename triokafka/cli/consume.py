"""``triokafka consume``: a topic's records on standard output."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from triokafka.cli.connection import TIMEOUT_MS, bootstrap_option, read_properties, read_properties_text, setting
from triokafka.cli.formatters import Formatter, make_formatter
from triokafka.cli.output import examples
from triokafka.cli.produce import pairs_or_empty
from triokafka.cli.progress import Advance, progress, shows_progress
from triokafka.cli.values import INT64, PARTITION, Number, Whole, configured, whole_number
from triokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from triokafka import Consumer


_PATIENCE: Final = 5  # seconds without a word about what fails


@click.command(
    "consume",
    epilog=examples(
        "triokafka consume orders --from-beginning --max-messages 10",
        "triokafka consume orders --group audit --property print.key=true",
        "triokafka consume orders --partition 3 --offset 12345",
    ),
)
@click.argument("topic", required=False)
@bootstrap_option
@click.option("--include", metavar="REGEX", help="All topics whose whole name matches, instead of TOPIC.")
@click.option("--group", metavar="ID", help="Consume as a member of this group, and commit.")
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record where no offset is committed.")
@click.option("--partition", type=PARTITION, help="Only this partition of TOPIC.")
@click.option("--offset", metavar="OFFSET", help="With --partition: earliest, latest or a number.  [default: latest]")
@click.option(
    "--max-messages", "--max-records", "limit", type=Whole(min=1), metavar="COUNT", help="End after this many."
)
@click.option("--timeout-ms", type=Number(), help="End when no record has come for so long; negative: never.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Whether records of open and aborted transactions are left out.",
)
@click.option("--key-separator", metavar="TEXT", help="Print the key as well, and this between key and value.")
@click.option(
    "--formatter", default="default", show_default=True, metavar="NAME",
    help="default, logging, noop, checksum, offsets, group-metadata, or MODULE:CLASS of one's own.",
)  # fmt: skip
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="What is printed: print.key=true, …"
)
@click.option("--formatter-config", metavar="FILE", help="A properties file that says what is printed.")
@click.option("--key-deserializer", metavar="MODULE:NAME", help="Turns keys into what is printed.")
@click.option("--value-deserializer", metavar="MODULE:NAME", help="Turns values into what is printed.")
@click.option("--skip-message-on-error", is_flag=True, help="Go on after a record that cannot be printed.")
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@click.option(
    "--consumer-config",
    "--consumer.config",
    "config_file",
    metavar="FILE",
    help="A properties file with options of the consumer.",
)
@click.option(
    "-X", "--consumer-property", "more", multiple=True, metavar="NAME=VALUE", help="Any other option of the consumer."
)
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
    isolation_level: str | None,
    key_separator: str | None,
    formatter: str,
    properties: tuple[str, ...],
    formatter_config: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    enable_systest_events: bool,
    config_file: str | None,
    more: tuple[str, ...],
) -> int:
    """Print the records of TOPIC, until Ctrl-C, --max-messages or --timeout-ms.

    Without --group all partitions are read and nothing is committed.
    """
    import trio

    _check(topic, include, group, partition, offset, from_beginning)
    printing = {} if formatter_config is None else read_properties_text(formatter_config)
    printing.update(pairs_or_empty("--property", properties))
    if key_separator is not None:
        printing.update({"print.key": "true", "key.separator": key_separator, "null.literal": ""})
    for name, value in (("key.deserializer", key_deserializer), ("value.deserializer", value_deserializer)):
        if value is not None:
            printing[name] = value
    options: dict[str, Any] = {"client_id": "console-consumer", "default_api_timeout_ms": TIMEOUT_MS}
    options.update(read_properties(config_file))
    options.update(setting("-X", text) for text in more)
    options["auto_offset_reset"] = "earliest" if from_beginning else "latest"
    if group is not None:
        options["group_id"] = group
    if isolation_level is not None:
        options["isolation_level"] = isolation_level
    options.setdefault("bootstrap_servers", bootstrap)
    if click.get_current_context().get_parameter_source("bootstrap") is click.core.ParameterSource.COMMANDLINE:
        options["bootstrap_servers"] = bootstrap
    if include is not None:
        options.setdefault("exclude_internal_topics", True)
    start = _Start(topic, include, partition, offset or "latest")
    run = _Run(start, options, make_formatter(formatter, printing), skips_errors=skip_message_on_error)
    status = trio.run(run.main, limit, None if timeout_ms is None or timeout_ms < 0 else timeout_ms)
    if enable_systest_events:
        click.echo("shutdown_complete")
    return status


class _Start(NamedTuple):
    """What is read, and from where."""

    topic: str | None
    include: str | None
    partition: int | None
    offset: str


def _check(
    topic: str | None,
    include: str | None,
    group: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
) -> None:
    if (topic is None) == (include is None):
        raise click.UsageError("Say what to read: either TOPIC or --include.")
    if group == "":
        raise click.UsageError("--group: a group's name is not empty.")
    if include is not None:
        try:
            re.compile(include)
        except re.error as error:
            raise click.UsageError(f"--include: {include!r} is not a regular expression: {error}.") from None
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs TOPIC.")
    if offset is not None:
        if partition is None:
            raise click.UsageError("--offset needs --partition.")
        if from_beginning:
            raise click.UsageError("--offset and --from-beginning exclude each other.")
        if offset not in ("earliest", "latest") and whole_number(offset, INT64) is None:
            raise click.UsageError(f"--offset is earliest, latest or a number, not {offset!r}.")


class _UnprintableError(KafkaError):
    """The formatter could not read a record."""


class _Run:
    """One run of the command."""

    def __init__(self, start: _Start, options: Mapping[str, Any], formatter: Formatter, *, skips_errors: bool) -> None:
        self._start = start
        self._options = options
        self._formatter = formatter
        self._skips_errors = skips_errors
        self._signal: int | None = None
        self._broken = False
        self._problem: KafkaError | None = None
        self._printed = 0
        self._missing: str | None = None
        self._advance: Advance = lambda more: None

    async def main(self, limit: int | None, timeout_ms: float | None) -> int:
        """Print until one of the ends; returns the exit status."""
        import trio

        import triokafka

        connected = configured(triokafka.Consumer, **self._options)
        try:
            async with connected as consumer:
                with trio.CancelScope() as scope, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._stop_at_signal, signals, scope)
                        nursery.start_soon(self._tell_troubles, consumer)
                        try:
                            await self._begin(consumer)
                            shown = limit is not None and shows_progress(beside_output=True)
                            with progress("reading", limit, shown=shown) as self._advance:
                                await self._print_all(consumer, limit, timeout_ms)
                        except (_UnprintableError, KafkaError) as problem:
                            self._problem = problem  # raised as itself, not in a group
                        nursery.cancel_scope.cancel()
        finally:
            click.echo(f"Processed a total of {self._printed} messages", err=True)
        if self._broken:
            raise BrokenPipeError
        if self._problem is not None:
            raise self._problem
        return 0 if self._signal is None else 128 + self._signal

    async def _begin(self, consumer: Consumer) -> None:
        from triokafka.structs import TopicPartition

        start = self._start
        if start.include is not None:
            consumer.subscribe(pattern=start.include)
        elif start.topic is not None and start.partition is None:
            consumer.subscribe([start.topic])
        elif start.topic is not None and start.partition is not None:
            tp = TopicPartition(start.topic, start.partition)
            known = await consumer.partitions_for_topic(start.topic)
            if known is not None and start.partition not in known:
                raise UnknownTopicOrPartitionError(f"topic {start.topic!r} has {len(known)} partitions and no {tp}")
            if known is None:
                self._missing = start.topic  # brokers that make topics make it when it is read
            consumer.assign([tp])
            position = whole_number(start.offset, INT64)
            if position is not None:
                consumer.seek(tp, position)
            elif start.offset == "earliest" or self._options["auto_offset_reset"] == "earliest":
                consumer.seek_to_beginning(tp)
            else:
                consumer.seek_to_end(tp)

    async def _stop_at_signal(self, signals: AsyncIterator[int], scope: Any) -> None:
        async for number in signals:
            self._signal = number
            scope.cancel()
            return

    async def _tell_troubles(self, consumer: Consumer) -> None:
        """Say what keeps records from coming; it goes on, and ends well when the brokers come back."""
        import trio

        await trio.sleep(_PATIENCE)
        while True:
            health = consumer.health()
            if health.metadata_age is None and not health.troubles:
                click.echo("triokafka: no broker has answered yet; still trying", err=True)
            for trouble in health.troubles[:1]:
                click.echo(f"triokafka: {trouble.removesuffix('.')}; still trying", err=True)
            await trio.sleep(_PATIENCE)

    async def _print_all(self, consumer: Consumer, limit: int | None, timeout_ms: float | None) -> None:
        import trio

        out = sys.stdout.buffer
        left = limit
        joining_until = trio.current_time() + TIMEOUT_MS / 1000
        while left is None or left > 0:
            found = await consumer.poll(timeout_ms=1_000 if timeout_ms is None else timeout_ms, max_records=left)
            if not found and timeout_ms is not None:
                # Joining a group may take longer than anybody wants to wait for records.
                if not consumer.assignment() and trio.current_time() < joining_until:
                    continue
                health = consumer.health()
                if health.metadata_age is None:
                    why = f": {health.troubles[0]}" if health.troubles else ""
                    raise KafkaTimeoutError(f"no broker has answered within {TIMEOUT_MS} ms{why}")
                if health.troubles and not consumer.assignment():
                    raise KafkaTimeoutError(health.troubles[0])
                if self._missing is not None and await consumer.partitions_for_topic(self._missing) is None:
                    advice = UnknownTopicOrPartitionError.advice
                    raise UnknownTopicOrPartitionError(
                        f"finding topic {self._missing!r} has failed: the cluster does not have it. {advice}"
                    )
                return
            for records in found.values():
                lines: list[bytes] = []
                problem: _UnprintableError | None = None
                try:
                    for record in records:
                        lines.append(self._shown(record))
                except _UnprintableError as error:
                    problem = error  # what comes before it is printed
                self._printed += len(lines)
                self._advance(len(lines))
                left = None if left is None else left - len(lines)
                try:
                    # In a thread: who reads slowly must not keep this member from saying that it is alive.
                    await trio.to_thread.run_sync(_write, out, b"".join(lines))
                except BrokenPipeError:
                    self._broken = True
                    return
                if problem is not None:
                    raise problem

    def _shown(self, record: Any) -> bytes:
        try:
            text = self._formatter(record)
            if not isinstance(text, bytes):
                raise TypeError(f"the formatter made {type(text).__name__} of it, not bytes")
            return text
        except Exception as error:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            if not self._skips_errors:
                raise _UnprintableError(f"The record in {where} cannot be printed: {error}.") from error
            click.echo(f"The record in {where} is left out: {error}", err=True)
            return b""


def _write(out: Any, lines: bytes) -> None:
    out.write(lines)
    out.flush()
