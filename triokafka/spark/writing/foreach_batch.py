"""Helpers for ``foreachBatch``: a micro-batch's offsets, group commits, and work that is done once per batch.

Spark passes the function a frame and a batch number. `kafka_batch` adds the offsets of the batch, commits them to a
group, records completed work in a compacted topic, and warns when the function makes Spark read Kafka twice. All of
this runs on the driver.
"""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import trio

import triokafka
from triokafka.client.config import AdminOptions, ConsumerOptions, ProducerOptions
from triokafka.errors import ConfigurationError, KafkaTimeoutError, UnknownTopicOrPartitionError
from triokafka.spark.listener.offset_commit_listener import ask_admin, commit_to_group
from triokafka.spark.listener.query_lag import kafka_offsets
from triokafka.spark.planning.bounds import Offsets
from triokafka.spark.planning.client_settings import HiddenValues
from triokafka.spark.planning.offsets_json import parse_offsets
from triokafka.spark.writing.foreach_batch_ledger import Ledger
from triokafka.structs import TopicPartition

_log: Final = logging.getLogger(__name__)
_TIMEOUT_MS: Final = 30_000

# Java's exceptions for an interrupted thread, in the first lines of an error from the JVM.
_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException", "java.io.InterruptedIOException", "java.nio.channels.ClosedByInterruptException",
)  # fmt: skip

BatchFunction = Callable[[Any, "BatchContext"], None]


class InterruptedBatchError(Exception):
    """The query was stopped while the batch's function used its frame."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The offsets of one partition in a batch; ``end`` is exclusive."""

    start: int
    end: int


@dataclass(slots=True)
class BatchContext:
    """One micro-batch.

    Args:
        batch_id: its number. A batch that is repeated after a crash has the same number and the same offsets.
        query_id: the query's id, which survives restarts from the checkpoint; empty where Spark does not provide it.
    """

    batch_id: int
    query_id: str
    _frame: Any = field(repr=False)
    _settings: _Settings = field(repr=False)
    _query: Any = field(default=None, repr=False)
    _ranges: dict[TopicPartition, BatchRange] | None = field(default=None, repr=False)

    @property
    def ranges(self) -> dict[TopicPartition, BatchRange]:
        """The offsets of the batch by partition, from the query's offset log; partitions without offsets are omitted.

        The offset log does not hold the start of a query's first batch, and a Spark Connect session cannot read the
        log. In both cases an aggregation over the frame's columns ``topic``, ``partition`` and ``offset`` finds the
        first and last records, which reads the batch. For partitions that are new in the batch, the decorator's brokers
        provide the first offset.

        Raises:
            ConfigurationError: the frame is needed and lacks one of those columns.
            KafkaError: the request to the brokers failed.
        """
        if self._ranges is None:
            starts, ends = (each[0] if len(each) == 1 else {} for each in self._logged())
            if ends and starts:
                new = sorted(ends.keys() - starts.keys())
                firsts = {**_beginnings(self._settings.options, new), **starts} if new else starts
                self._ranges = {
                    one: BatchRange(firsts[one], end) for one, end in ends.items() if firsts.get(one, end) < end
                }
            else:
                self._ranges = _seen(self._frame)
        return self._ranges

    def _logged(self) -> tuple[list[Offsets], list[Offsets]]:
        return _logged(self._query, self.batch_id - 1), _logged(self._query, self.batch_id)

    def commit_offsets(self, group_id: str | None = None) -> bool:
        """Commit the end of the batch to a group, for tools that show lag. Call it after the batch's work.

        Args:
            group_id: overrides the decorator's group.

        Returns:
            Whether the commit succeeded. A failure is only logged as a warning: Spark keeps its own offsets.

        Raises:
            ConfigurationError: no group was named; or the offset log is not available and the frame lacks a column that
                `ranges` needs.
        """
        group = group_id or self._settings.group_id
        if not group:
            raise ConfigurationError("name a group: kafka_batch(group_id=…) or ctx.commit_offsets('…')")
        starts, ends = map(_behind, self._logged())
        if ends:
            # For a query's first batch the log has only the end, which suffices.
            ends = {one: end for one, end in ends.items() if end > starts.get(one, 0)}
        else:
            ends = {one: each.end for one, each in self.ranges.items()}
        return not ends or commit_to_group(self._settings.options, group, ends, _TIMEOUT_MS)

    @contextmanager
    def once(self, key: str = "") -> Iterator[bool]:
        """Guard a piece of this batch's work against repetition: ``with ctx.once("mail") as due: …``.

        ``due`` is False if an earlier attempt of this batch completed the work. When the block ends without an error,
        the completion is written to the ledger and acknowledged by all in-sync replicas. After a crash between the work
        and that write, the work is due again.

        Args:
            key: a name for the work, when a batch has several pieces.

        Raises:
            ConfigurationError: no ledger was named, or Spark does not provide the query's id.
            KafkaError: the ledger cannot be read or written.
        """
        ledger = self._settings.ledger
        if ledger is None:
            raise ConfigurationError("once() needs a ledger topic: kafka_batch(ledger='…')")
        if not self.query_id:
            raise ConfigurationError("once() needs the query's id, which this session does not provide")
        name = f"{self.query_id}/{key}".encode()
        last = ledger.last_done(name)
        due = last is None or last < self.batch_id
        yield due
        if due:
            ledger.note(name, self.batch_id)

    def write_kafka(self, frame: Any, topic: str | None = None, **options: str) -> None:
        """Call `write_kafka` with the decorator's brokers."""
        servers = self._settings.options["bootstrap_servers"]  # a string or a list
        text = servers if isinstance(servers, str) else ",".join(servers)
        write_kafka(frame, topic, **{"kafka.bootstrap.servers": text, **options})


@dataclass(frozen=True, slots=True)
class _Settings:
    options: Mapping[str, Any] = field(repr=False)
    group_id: str | None
    ledger: Ledger | None


def kafka_batch(
    *, bootstrap_servers: str, group_id: str | None = None, ledger: str | None = None, **options: Any
) -> Callable[[BatchFunction], Callable[[Any, int], None]]:
    """Turn a function of (frame, `BatchContext`) into a function for ``foreachBatch``.

    Logs a warning, once per query, when a batch was read from Kafka more than once: every action on the frame reads it
    again, and so does a plan that uses it twice. Use ``frame.persist()`` before and ``unpersist()`` after. Spark
    reports the reads of a batch with the next batch, so a query's last batch is not checked.

    Args:
        bootstrap_servers: brokers for the ledger, for commits, and for `BatchContext.write_kafka`.
        group_id: the group of `BatchContext.commit_offsets`.
        ledger: the compacted topic of `BatchContext.once`; created if it does not exist.
        options: connection options that `AdminClient`, `Producer` and `RangeReader` all accept.

    Raises:
        ConfigurationError: an option is unknown or invalid.
    """
    _refuse_unknown(options)
    for kind in (AdminOptions, ProducerOptions, ConsumerOptions):
        kind.parse({"bootstrap_servers": bootstrap_servers, **options})
    given = HiddenValues({"bootstrap_servers": bootstrap_servers, **options})
    settings = _Settings(given, group_id, Ledger(ledger, given) if ledger else None)

    def decorate(function: BatchFunction) -> Callable[[Any, int], None]:
        warned: set[str] = set()

        @functools.wraps(function)
        def call(frame: Any, batch_id: int) -> None:
            query_id = _query_id(frame)
            query = _query(query_id)
            if query_id not in warned and _was_read_twice(query):
                warned.add(query_id)
                _log.warning(
                    "query %s reads its batches from Kafka more than once: %s uses the frame several times; persist it",
                    query_id,
                    getattr(function, "__name__", function),
                )
            try:
                function(frame, BatchContext(batch_id, query_id, frame, settings, query))
                return
            except Exception as error:
                interrupted = _interrupted(error)
                if interrupted is None:
                    raise
            raise interrupted  # outside of the handler, so that the traceback omits the original error

        return call

    return decorate


def write_kafka(frame: Any, topic: str | None = None, **options: str) -> None:
    """Write a batch frame to Kafka with ``write.format("triokafka")`` and its options; ``topic`` applies to all rows.

    Returns when all rows are acknowledged; raises the writer's errors.
    """
    writer = frame.write.format("triokafka").options(**options).mode("append")
    (writer if topic is None else writer.option("topic", topic)).save()


def _interrupted(error: Exception) -> InterruptedBatchError | None:
    """Return a one-line error for a call to the JVM that was interrupted because the query stops; otherwise None.

    Spark searches the error's text with a regular expression that overflows on a Java stack trace of usual length, and
    then prints a thousand lines for a stopped query.
    """
    head = str(error).partition("\n\tat ")[0]
    cause = next((name for name in _INTERRUPTIONS if name in head), None)
    if type(error).__name__ != "Py4JJavaError" or cause is None:
        return None
    return InterruptedBatchError(f"py4j.protocol.Py4JJavaError: An error occurred while calling the function: {cause}")


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    """Refuse options that are not common to the three clients."""
    kinds = (AdminOptions, ProducerOptions, ConsumerOptions)
    common = set.intersection(*({name for name in kind.__dataclass_fields__ if name.islower()} for kind in kinds))
    own = ("bootstrap_servers", "group_id", "ledger")
    for name in options:
        if name not in common:
            near = difflib.get_close_matches(name, sorted({*common, *own}), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else "it takes connection options only"
            raise ConfigurationError(
                f"{name!r} is not an option of kafka_batch, which has {', '.join(own)} and the common options of its"
                f" admin client, producer and reader: {hint}"
            )


# --- the query's state in Spark ---


def _query_id(frame: Any) -> str:
    try:
        return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    except Exception:  # Spark Connect sessions have no context
        return ""


def _query(query_id: str) -> Any:
    """Return the running query; the frame's own session is a copy that does not know it."""
    from pyspark.sql import SparkSession

    session = getattr(SparkSession, "_instantiatedSession", None)
    try:
        return session.streams.get(query_id) if session is not None and query_id else None
    except Exception:
        return None


def _logged(query: Any, batch_id: int) -> list[Offsets]:
    """Return the end offsets of a batch from the query's offset log, by source; an empty entry for sources without
    Kafka offsets. Empty when the log is not available."""
    if query is None or batch_id < 0:
        return []
    try:
        entry = query._jsq.streamingQuery().offsetLog().get(batch_id)
        if not entry.isDefined():
            return []
        kept = entry.get()
        # The second log format (spark.sql.streaming.offsetLog.formatVersion) has sources by name.
        is_by_name = kept.getClass().getSimpleName() == "OffsetMap"
        sources = kept.offsetsMap().values().toSeq() if is_by_name else kept.offsets()
        found = [sources.apply(number) for number in range(sources.size())]
        return [(kafka_offsets(one.get().json()) or {}) if one.isDefined() else {} for one in found]
    except Exception:  # internals that another version of Spark may have changed
        _log.debug("offset log of a query: reading it failed", exc_info=True)
        return []


def _behind(sources: list[Offsets]) -> Offsets:
    """Merge the sources; of several offsets of one partition keep the lowest: a group is never ahead of the query."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for one, offset in source.items():
            found[one] = min(offset, found.get(one, offset))
    return found


def _beginnings(options: Mapping[str, Any], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the partitions' first offsets now. Omits deleted partitions, of which the batch has read nothing."""

    async def look(admin: triokafka.AdminClient) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, "earliest"), timeout_ms=_TIMEOUT_MS)
        gone = {one for one, error in found.errors.items() if isinstance(error, UnknownTopicOrPartitionError)}
        return {one: found[one].offset for one in partitions if one not in gone}

    try:
        return ask_admin(options, look, _TIMEOUT_MS)
    except trio.TooSlowError:
        raise KafkaTimeoutError(f"the brokers returned no offsets within {_TIMEOUT_MS / 1000:.0f} s") from None


def _seen(frame: Any) -> dict[TopicPartition, BatchRange]:
    missing = {"topic", "partition", "offset"} - set(frame.columns)
    if missing:
        raise ConfigurationError(
            f"the offsets of this batch are only in its rows; the frame lacks the columns {', '.join(sorted(missing))}"
        )
    from pyspark.sql import functions

    counted = frame.groupBy("topic", "partition").agg(functions.min("offset"), functions.max("offset"))
    return {
        TopicPartition(topic, partition): BatchRange(first, last + 1)
        for topic, partition, first, last in counted.collect()
    }


def _was_read_twice(query: Any) -> bool:
    """Whether the previous batch was read twice: Spark counts each row as often as it was read."""
    progress = query.lastProgress if query is not None else None
    if not progress or len(progress["sources"]) != 1:
        return False
    source = progress["sources"][0]
    try:
        ends = parse_offsets(source["endOffset"])
        # The start of a query's first batch is unknown, so some double reads of it go unnoticed.
        starts = parse_offsets(source["startOffset"]) if source["startOffset"] not in (None, "null") else {}
    except (ConfigurationError, ValueError, TypeError):
        return False
    records = sum(end - starts.get(one, 0) for one, end in ends.items())
    return 0 < records < int(progress["numInputRows"])
