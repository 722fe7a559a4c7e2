"""One run of ``triokafka consume``: subscribes or assigns, and prints records until it ends."""

from __future__ import annotations

import difflib
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from triokafka.cli.consume_start import StartPosition, seek
from triokafka.cli.counting import counted
from triokafka.cli.formatters import Formatter
from triokafka.cli.parameter_types import configured
from triokafka.cli.progress import Advance, progress, shows_progress
from triokafka.cli.slow_work import SlowWork
from triokafka.cli.unreachable_brokers import SILENCE, Reaching, hooked
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


class ConsumedTopics(NamedTuple):
    """The topics to read, and the start position."""

    topic: str | None
    include: str | None
    partition: int | None
    position: StartPosition | None
    waits: bool


class UnknownTopicError(KafkaError):
    """The topic or the partition to be read does not exist."""


class _UnprintableError(KafkaError):
    """The formatter could not read a record."""


class ConsumeRun:
    """One run of ``triokafka consume``.

    Args:
        slow: runs the formatter in a thread, when it may wait for a schema registry.
        until_end: end at the records that were the last ones at the start.
    """

    def __init__(
        self,
        start: ConsumedTopics,
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
        self._slow = slow
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
            raise UnknownTopicError(
                f"topic {topic!r} has {has} and no {TopicPartition(topic, partition)}; partitions are numbered from 0"
            )
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
        idle_since = trio.current_time()
        while (left is None or left > 0) and not await self._is_at_end(consumer):
            wait_ms = 1_000 if timeout_ms is None else timeout_ms
            if self._ends is not None:
                wait_ms = min(wait_ms, _END_MS)  # the last offsets may have no records
            found = await consumer.poll(timeout_ms=wait_ms, max_records=left)
            if found:
                idle_since = trio.current_time()
            elif timeout_ms is not None and trio.current_time() >= idle_since + timeout_ms / 1000:
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
