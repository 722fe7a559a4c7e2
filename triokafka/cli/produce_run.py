"""One run of ``triokafka produce``: reads lines, sends them, and reports what was acknowledged."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from triokafka.cli.app import describe
from triokafka.cli.counting import counted
from triokafka.cli.line_reader import Item, Lines, Reader
from triokafka.cli.parameter_types import configured
from triokafka.cli.progress import progress, shows_progress, size_of_input
from triokafka.cli.slow_work import SlowWork
from triokafka.cli.unreachable_brokers import SILENCE, hooked
from triokafka.errors import KafkaError, MessageSizeTooLargeError

if TYPE_CHECKING:
    from triokafka import Producer

_READ_BYTES: Final = 65_536
_LONGEST_LINE: Final = 64 << 20
"""Maximum bytes of a line, unless ``max_request_size`` allows larger records."""
_SHOWN_ERRORS: Final = 10
_PATIENCE: Final = 5  # seconds between reports of a failure


class SharedAttributes(NamedTuple):
    """Attributes that all records of a run share."""

    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    partition: int | None
    timestamp_ms: int | None


@asynccontextmanager
async def _without_log(name: str) -> AsyncIterator[None]:
    """Disable a logger whose errors the command itself reports."""
    import logging

    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


class ProduceRun:
    """One run of ``triokafka produce``.

    Args:
        common: attributes of every record.
        sync: wait for each acknowledgement before the next record.
        slow: runs the line reader in a thread, when it may wait for a schema registry.
    """

    def __init__(
        self,
        topic: str,
        options: Mapping[str, Any],
        reader: Reader,
        common: SharedAttributes,
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
        self._slow = slow
        self._acknowledged = 0
        self._failed = 0
        self._line = 0
        self._signal: int | None = None
        self._problem: Exception | None = None

    async def main(self, value: bytes | None) -> int:
        """Send one value, or lines until the end of input, a signal or an unreadable line; return the exit status."""
        import trio

        import triokafka

        async with (
            _without_log("triokafka.client.producer.producer"),
            configured(triokafka.Producer, **self._options) as producer,
            trio.open_nursery() as telling,
        ):
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
