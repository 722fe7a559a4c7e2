"""``triokafka consume``: print a topic's records to standard output."""

from __future__ import annotations

import difflib
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from triokafka.cli.completing import group_names, topic_names
from triokafka.cli.connection import bootstrap_option, client_options, read_properties, read_properties_text, setting
from triokafka.cli.consume_start import StartPosition, parse_position, seek
from triokafka.cli.counting import counted
from triokafka.cli.format_options import format_options, registry_options
from triokafka.cli.formatters import Formatter, make_formatter
from triokafka.cli.output import examples
from triokafka.cli.produce import pairs_or_empty
from triokafka.cli.progress import Advance, progress, shows_progress
from triokafka.cli.reaching import SILENCE, Reaching, hooked
from triokafka.cli.record_codecs import REGISTRY_FORMATS, decoder
from triokafka.cli.record_format import FormatFormatter
from triokafka.cli.slow_work import SlowWork
from triokafka.cli.values import PARTITION, FiniteNumber, Whole, configured
from triokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Consumer


_PATIENCE: Final = 5  # seconds between reports of a failure
_JOINING_MS: Final = 15_000
"""Time for joining the group, during which --timeout-ms does not count."""
_END_MS: Final = 100
_NEW_TOPIC_SECONDS: Final = 0.3
"""How long other brokers may not know a topic that was just created."""


@click.command(
    "consume",
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
    "--max-messages", "--max-records", "limit", type=Whole(min=1), metavar="COUNT", help="End after this many records."
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
    help="default, json, kcat-json, logging, noop, checksum, offsets, group-metadata, or your own MODULE:CLASS.",
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
@click.option(
    "--consumer-config",
    "--consumer.config",
    "--command-config",
    "config_file",
    metavar="FILE",
    help="Properties file with options of the consumer.",
)
@click.option(
    "-X", "--consumer-property", "--command-property", "more", multiple=True, metavar="NAME=VALUE",
    help="Any other option of the consumer.",
)  # fmt: skip
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
    start = _Start(topic, include, partition, None if offset is None else parse_position(offset), waits=wait_for_topic)
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
    run = _Run(start, options, shown, skips_errors=skip_message_on_error, slow=slow, until_end=until_end)
    status = trio.run(run.main, limit, None if timeout_ms is None or timeout_ms < 0 else timeout_ms)
    if enable_systest_events:
        click.echo("shutdown_complete")
    return status


class _Start(NamedTuple):
    """The topics to read, and the start position."""

    topic: str | None
    include: str | None
    partition: int | None
    position: StartPosition | None
    waits: bool


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


class UnknownTopicError(KafkaError):
    """The topic to be read does not exist."""


class _UnprintableError(KafkaError):
    """The formatter could not read a record."""


class _Run:
    """One run of the command."""

    def __init__(
        self,
        start: _Start,
        options: Mapping[str, Any],
        formatter: Formatter,
        *,
        skips_errors: bool,
        slow: SlowWork | None = None,
        until_end: bool = False,
    ) -> None:
        self._start = start
        self._options = dict(options)
        self._reaching: Reaching = hooked(self._options, self._options["default_api_timeout_ms"])
        self._formatter = formatter
        self._skips_errors = skips_errors
        self._slow = slow  # formatting may wait for a schema registry
        self._ends: dict[TopicPartition, int] | None = {} if until_end else None
        self._signal: int | None = None
        self._broken = False
        self._problem: Exception | None = None
        self._began = False
        self._printed = 0
        self._missing: str | None = None
        self._ends_when_idle = False
        self._advance: Advance = lambda more: None

    async def main(self, limit: int | None, timeout_ms: float | None) -> int:
        """Print records until the run ends; return the exit status."""
        import trio

        import triokafka

        self._ends_when_idle = timeout_ms is not None
        connected = configured(triokafka.Consumer, **self._options)
        try:
            async with connected as consumer:
                with trio.CancelScope() as scope, trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._stop_at_signal, signals, scope)
                        nursery.start_soon(self._stop_without_reader, scope)
                        nursery.start_soon(self._reaching.report)
                        if self._slow is not None:
                            nursery.start_soon(self._slow.report)
                        try:
                            await self._begin(consumer)
                            self._began = True
                            nursery.start_soon(self._report, consumer)
                            shown = limit is not None and shows_progress(beside_output=True)
                            with progress("reading", limit, shown=shown) as self._advance:
                                await self._print_all(consumer, limit, timeout_ms)
                        except KafkaError as problem:  # unwrapped, not in an exception group
                            self._problem = self._reaching.failure(problem)
                        nursery.cancel_scope.cancel()
        finally:
            if self._began:  # the wording of Kafka's tool, which programs may parse
                click.echo(f"Processed a total of {self._printed} messages", err=True)
        if self._broken:
            raise BrokenPipeError
        if self._problem is not None:
            raise self._problem
        return 0 if self._signal is None else 128 + self._signal

    async def _begin(self, consumer: Consumer) -> None:
        """Subscribe or assign. Fails if no broker responds or the topic does not exist."""
        start = self._start
        if start.topic is None:
            assert start.include is not None
            await consumer.topics()
            consumer.subscribe(pattern=start.include)
            return
        known = await self._partitions_of(consumer, start.topic)
        if start.partition is None and start.position is None:
            consumer.subscribe([start.topic])
        else:
            await self._assign(consumer, start.topic, start.partition, known)

    async def _partitions_of(self, consumer: Consumer, topic: str) -> list[int] | None:
        """Return the topic's partitions; None for a missing topic that the run waits for or has created."""
        import trio

        known = await consumer.partitions_for_topic(topic)
        if known is not None:
            return known
        if self._options["allow_auto_create_topics"] is True:
            self._missing = topic  # with auto.create.topics.enable, the first read creates it
            return None
        if self._start.waits:
            click.echo(f"waiting for topic {topic}, which does not exist yet …", err=True)
            while known is None:
                await trio.sleep(_NEW_TOPIC_SECONDS)
                known = await consumer.partitions_for_topic(topic)
            return known
        await trio.sleep(_NEW_TOPIC_SECONDS)
        known = await consumer.partitions_for_topic(topic)
        if known is not None:
            return known
        near = difflib.get_close_matches(topic, await consumer.topics(), n=1)
        hint = f"did you mean {near[0]}? Otherwise create it" if near else "create it"
        raise UnknownTopicError(
            f"unknown topic {topic}; {hint} (triokafka topics create {topic}) or wait for it (--wait-for-topic)"
        )

    async def _assign(self, consumer: Consumer, topic: str, partition: int | None, known: list[int] | None) -> None:
        if known is not None and partition is not None and partition not in known:
            has = counted(len(known), "partition")
            raise UnknownTopicOrPartitionError(f"topic {topic!r} has {has} and no {TopicPartition(topic, partition)}")
        numbers = [partition] if partition is not None else known or [0]
        wanted = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(wanted)
        await seek(consumer, wanted, self._start.position or StartPosition(self._options["auto_offset_reset"]))

    async def _stop_at_signal(self, signals: AsyncIterator[int], scope: Any) -> None:
        async for number in signals:
            self._signal = number
            scope.cancel()
            return

    async def _stop_without_reader(self, scope: Any) -> None:
        """End the run when the reader of its output (such as ``head``) closes the pipe, without waiting for a write."""
        import trio

        try:
            descriptor = sys.stdout.fileno()
            if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                return
        except (OSError, ValueError):
            return
        await trio.lowlevel.wait_readable(descriptor)  # the write end of the pipe: poll reports only errors
        self._broken = True
        scope.cancel()

    async def _report(self, consumer: Consumer) -> None:
        """Print once what the run waits for, and repeatedly a failure; the run continues when the brokers are back."""
        import trio

        announced = self._ends_when_idle
        reported_at = began_at = trio.current_time()
        while True:
            await trio.sleep(min(SILENCE, _PATIENCE))
            late = trio.current_time() - began_at >= _PATIENCE
            if self._slow is not None and self._slow.is_running:
                continue  # records have come
            if not announced and not self._printed and (consumer.assignment() or late):
                announced = True
                click.echo(self._waiting(assigned=bool(consumer.assignment())), err=True)
            if trio.current_time() - reported_at < _PATIENCE:
                continue
            reported_at = trio.current_time()
            health = consumer.health()
            for trouble in health.troubles[:1]:
                click.echo(f"triokafka: {trouble.removesuffix('.')}; still trying", err=True)

    def _waiting(self, *, assigned: bool) -> str:
        start = self._start
        what = f"topics that match {start.include}" if start.topic is None else start.topic
        if not assigned:
            group = self._options.get("group_id")
            why = f"; group {group} has not assigned any to this consumer yet" if group else ""
            return f"waiting for partitions of {what} …{why}"
        if start.partition is not None:
            what = f"{what}, partition {start.partition}"
        if self._options["auto_offset_reset"] == "latest" and start.position in (None, StartPosition("latest")):
            old = "" if "group_id" in self._options else "; --from-beginning prints those that are there already"
            return f"waiting for new records of {what} …{old}"
        return f"waiting for records of {what} …"

    async def _print_all(self, consumer: Consumer, limit: int | None, timeout_ms: float | None) -> None:
        import trio

        out = sys.stdout.buffer
        left = limit
        joining_until = trio.current_time() + _JOINING_MS / 1000
        while (left is None or left > 0) and not await self._is_at_end(consumer):
            wait_ms = 1_000 if timeout_ms is None else timeout_ms
            if self._ends is not None:
                wait_ms = min(wait_ms, _END_MS)  # the last offsets may have no records
            found = await consumer.poll(timeout_ms=wait_ms, max_records=left)
            if not found and timeout_ms is not None and self._ends is None:
                # Joining a group may take longer than --timeout-ms.
                if not consumer.assignment() and trio.current_time() < joining_until:
                    continue
                health = consumer.health()
                if health.troubles and not consumer.assignment():
                    raise KafkaTimeoutError(health.troubles[0])
                if self._missing is not None and await consumer.partitions_for_topic(self._missing) is None:
                    advice = UnknownTopicOrPartitionError.advice
                    raise UnknownTopicOrPartitionError(
                        f"topic {self._missing!r} does not exist in this cluster. {advice}"
                    )
                return
            for partition, records in found.items():
                shown = self._before_end(partition, records)
                if self._slow is not None:
                    lines, problem = await self._slow.run(self._lines, shown)
                else:
                    lines, problem = self._lines(shown)
                self._printed += len(lines)
                self._advance(len(lines))
                left = None if left is None else left - len(lines)
                try:
                    # In a thread: a slow reader must not block this member's heartbeats.
                    await trio.to_thread.run_sync(_write, out, b"".join(lines))
                except BrokenPipeError:
                    self._broken = True
                    return
                if problem is not None:
                    raise problem

    async def _is_at_end(self, consumer: Consumer) -> bool:
        """Whether everything was read that was there at the start, with ``--until-end``."""
        if self._ends is None:
            return False
        assigned = consumer.assignment()
        if new := [partition for partition in assigned if partition not in self._ends]:
            self._ends.update(await consumer.end_offsets(new))
        for partition in assigned:
            if await consumer.position(partition) < self._ends[partition]:
                return False
        return bool(assigned)

    def _before_end(self, partition: TopicPartition, records: Sequence[Any]) -> Sequence[Any]:
        end = None if self._ends is None else self._ends.get(partition)
        return records if end is None else [record for record in records if record.offset < end]

    def _lines(self, records: Iterable[Any]) -> tuple[list[bytes], _UnprintableError | None]:
        """Return the printed records, and the error of the record behind them that cannot be printed."""
        lines: list[bytes] = []
        try:
            for record in records:
                lines.append(self._shown(record))
        except _UnprintableError as error:
            return lines, error
        return lines, None

    def _shown(self, record: Any) -> bytes:
        try:
            text = self._formatter(record)
            if not isinstance(text, bytes):
                raise TypeError(f"the formatter returned {type(text).__name__}, not bytes")
            return text
        except Exception as error:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            if not self._skips_errors:
                raise _UnprintableError(f"Record {where} cannot be printed: {error}.") from error
            click.echo(f"Record {where} is skipped: {error}", err=True)
            return b""


def _write(out: Any, lines: bytes) -> None:
    out.write(lines)
    out.flush()
