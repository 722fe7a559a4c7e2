"""For ``foreachBatch``: what a function needs to know of its micro-batch, and to do its work once.

Spark gives the function a frame and a number. `kafka_batch` adds the offsets that the batch covers, commits them to a
group, keeps in a compacted topic what was done already, and tells when the function makes Spark read Kafka twice.
Everything here runs on the driver.
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
from triokafka.spark.client_settings import HiddenValues
from triokafka.spark.ledger import Ledger
from triokafka.spark.listener import ask_admin, commit_to_group
from triokafka.spark.offsets import Offsets, parse_offsets
from triokafka.spark.query_lag import kafka_offsets
from triokafka.structs import TopicPartition

_log: Final = logging.getLogger(__name__)
_TIMEOUT_MS: Final = 30_000

# As Java calls that a thread was told to end, in the first lines of an error from the JVM.
_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException", "java.io.InterruptedIOException", "java.nio.channels.ClosedByInterruptException",
)  # fmt: skip

BatchFunction = Callable[[Any, "BatchContext"], None]


class InterruptedBatchError(Exception):
    """The query was stopped while a batch's function used its frame."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The offsets of one partition in a batch; ``end`` is the one after the last."""

    start: int
    end: int


@dataclass(slots=True)
class BatchContext:
    """One micro-batch.

    Args:
        batch_id: its number. A batch that is repeated after a crash has the same one, and the same offsets.
        query_id: of the query, the same after a restart from its checkpoint; empty where Spark does not tell it.
    """

    batch_id: int
    query_id: str
    _frame: Any = field(repr=False)
    _settings: _Settings = field(repr=False)
    _query: Any = field(default=None, repr=False)
    _ranges: dict[TopicPartition, BatchRange] | None = field(default=None, repr=False)

    @property
    def ranges(self) -> dict[TopicPartition, BatchRange]:
        """The offsets that the batch covers, from the query's offset log; without partitions that have none.

        Where a query starts is not in that log, nor can it be had from a session of Spark Connect: then one query over
        the frame's columns ``topic``, ``partition`` and ``offset`` finds first and last records, which reads the batch.
        Where partitions begin that are new in the batch, the decorator's brokers are asked.

        Raises:
            ConfigurationError: it is to be had from the frame alone, which lacks one of those columns.
            KafkaError: the brokers cannot be asked.
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
        """Commit where the batch ends to a group, for the tools that show lag: best after the batch's work.

        Args:
            group_id: instead of the decorator's.

        Returns:
            Whether that worked; a failure is a warning in the log, and nothing else: Spark keeps its own offsets.

        Raises:
            ConfigurationError: no group was named. Or the query's log cannot be had, and the frame lacks a column that
                `ranges` needs.
        """
        group = group_id or self._settings.group_id
        if not group:
            raise ConfigurationError("name a group: kafka_batch(group_id=…) or ctx.commit_offsets('…')")
        starts, ends = map(_behind, self._logged())
        if ends:
            # Of a query's first batch the log has the end alone, and no more is needed.
            ends = {one: end for one, end in ends.items() if end > starts.get(one, 0)}
        else:
            ends = {one: each.end for one, each in self.ranges.items()}
        return not ends or commit_to_group(self._settings.options, group, ends, _TIMEOUT_MS)

    @contextmanager
    def once(self, key: str = "") -> Iterator[bool]:
        """Do a piece of work of this batch at most once more than it failed: ``with ctx.once("mail") as due: …``.

        ``due`` is False when the piece was done already in an earlier attempt of this batch. When the block ends
        without an error, that is written to the ledger, acknowledged by all in-sync replicas. A crash between the
        work and that makes it due again.

        Args:
            key: a name for the piece, when a batch has several.

        Raises:
            ConfigurationError: no ledger was named, or Spark does not tell the query's id.
            KafkaError: the ledger cannot be read or written.
        """
        ledger = self._settings.ledger
        if ledger is None:
            raise ConfigurationError("name a topic for what was done: kafka_batch(ledger='…')")
        if not self.query_id:
            raise ConfigurationError("the query's id is not known here, so that nothing can be kept for it")
        name = f"{self.query_id}/{key}".encode()
        last = ledger.last_done(name)
        due = last is None or last < self.batch_id
        yield due
        if due:
            ledger.note(name, self.batch_id)

    def write_kafka(self, frame: Any, topic: str | None = None, **options: str) -> None:
        """`write_kafka` to the decorator's brokers."""
        servers = self._settings.options["bootstrap_servers"]  # the clients take a list, too
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
    """Make a function of (frame, `BatchContext`) what ``foreachBatch`` takes.

    It warns in the log, once for each query, when a batch was read from Kafka more than once: every action on the frame
    reads it again, and so does a plan that uses it twice. ``frame.persist()`` before, and ``unpersist()`` after, read
    it once. Spark tells that with the batch after, so the last batch of a query is not looked at.

    Args:
        bootstrap_servers: brokers for the ledger, for commits, and for `BatchContext.write_kafka`.
        group_id: the group of `BatchContext.commit_offsets`.
        ledger: the compacted topic of `BatchContext.once`; it is made when it is not there.
        options: further ones of the clients, which fit `AdminClient`, `Producer` and `RangeReader`: about connections.

    Raises:
        ConfigurationError: an option is unknown, or cannot be used.
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
            raise interrupted  # here, so that the other one is not shown before it

        return call

    return decorate


def write_kafka(frame: Any, topic: str | None = None, **options: str) -> None:
    """Write a batch frame to Kafka: ``write.format("triokafka")`` with its options, and ``topic`` for all rows.

    Returns when all rows are acknowledged; raises as the writer does.
    """
    writer = frame.write.format("triokafka").options(**options).mode("append")
    (writer if topic is None else writer.option("topic", topic)).save()


def _interrupted(error: Exception) -> InterruptedBatchError | None:
    """The same in a line, where a call to the JVM was interrupted because the query stops.

    Spark looks for that in the whole text with a regular expression, which a Java stack of the usual length lets
    overflow: a thousand lines on the screen for a query that is stopped.
    """
    head = str(error).partition("\n\tat ")[0]
    cause = next((name for name in _INTERRUPTIONS if name in head), None)
    if type(error).__name__ != "Py4JJavaError" or cause is None:
        return None
    return InterruptedBatchError(f"py4j.protocol.Py4JJavaError: An error occurred while calling the function: {cause}")


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    """Options that not all of the three clients have."""
    kinds = (AdminOptions, ProducerOptions, ConsumerOptions)
    common = set.intersection(*({name for name in kind.__dataclass_fields__ if name.islower()} for kind in kinds))
    own = ("bootstrap_servers", "group_id", "ledger")
    for name in options:
        if name not in common:
            near = difflib.get_close_matches(name, sorted({*common, *own}), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else "it takes what is about connections"
            raise ConfigurationError(
                f"{name!r} is not an option of kafka_batch, which has {', '.join(own)} and what its admin client,"
                f" producer and reader have in common: {hint}"
            )


# -------------------------------------------------------------------- what Spark knows


def _query_id(frame: Any) -> str:
    try:
        return frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    except Exception:  # sessions of Spark Connect have no context
        return ""


def _query(query_id: str) -> Any:
    """The running query; the frame's own session is a copy that does not know it."""
    from pyspark.sql import SparkSession

    session = getattr(SparkSession, "_instantiatedSession", None)
    try:
        return session.streams.get(query_id) if session is not None and query_id else None
    except Exception:
        return None


def _logged(query: Any, batch_id: int) -> list[Offsets]:
    """The offsets of a batch's end in the query's log, by source; none of sources that are not of Kafka partitions, or
    have none yet. Empty when they cannot be had."""
    if query is None or batch_id < 0:
        return []
    try:
        entry = query._jsq.streamingQuery().offsetLog().get(batch_id)
        if not entry.isDefined():
            return []
        kept = entry.get()
        # The second form of the log (spark.sql.streaming.offsetLog.formatVersion) has sources by name.
        is_by_name = kept.getClass().getSimpleName() == "OffsetMap"
        sources = kept.offsetsMap().values().toSeq() if is_by_name else kept.offsets()
        found = [sources.apply(number) for number in range(sources.size())]
        return [(kafka_offsets(one.get().json()) or {}) if one.isDefined() else {} for one in found]
    except Exception:  # whatever another version of Spark makes of this
        _log.debug("the offset log of a query cannot be read", exc_info=True)
        return []


def _behind(sources: list[Offsets]) -> Offsets:
    """All together; of several sources of one partition the one that is behind: a group is never ahead of the query."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for one, offset in source.items():
            found[one] = min(offset, found.get(one, offset))
    return found


def _beginnings(options: Mapping[str, Any], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Where the logs begin now; without partitions that are gone, of which the batch has read nothing."""

    async def look(admin: triokafka.AdminClient) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, "earliest"), timeout_ms=_TIMEOUT_MS)
        gone = {one for one, error in found.errors.items() if isinstance(error, UnknownTopicOrPartitionError)}
        return {one: found[one].offset for one in partitions if one not in gone}

    try:
        return ask_admin(options, look, _TIMEOUT_MS)
    except trio.TooSlowError:
        raise KafkaTimeoutError(f"the brokers gave no offsets within {_TIMEOUT_MS / 1000:.0f} s") from None


def _seen(frame: Any) -> dict[TopicPartition, BatchRange]:
    missing = {"topic", "partition", "offset"} - set(frame.columns)
    if missing:
        raise ConfigurationError(
            f"the offsets of this batch are only in its rows, and the frame has no column {', '.join(sorted(missing))}"
        )
    from pyspark.sql import functions

    counted = frame.groupBy("topic", "partition").agg(functions.min("offset"), functions.max("offset"))
    return {
        TopicPartition(topic, partition): BatchRange(first, last + 1)
        for topic, partition, first, last in counted.collect()
    }


def _was_read_twice(query: Any) -> bool:
    """Whether the batch before was: its rows are counted as often as they were read."""
    progress = query.lastProgress if query is not None else None
    if not progress or len(progress["sources"]) != 1:
        return False
    source = progress["sources"][0]
    try:
        ends = parse_offsets(source["endOffset"])
        # A query's first batch does not say where it starts: then some that are read twice are not seen.
        starts = parse_offsets(source["startOffset"]) if source["startOffset"] not in (None, "null") else {}
    except (ConfigurationError, ValueError, TypeError):
        return False
    records = sum(end - starts.get(one, 0) for one, end in ends.items())
    return 0 < records < int(progress["numInputRows"])
