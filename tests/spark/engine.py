"""Two ways to run a streaming query: Spark itself, and a stand-in that makes Spark's calls to the source.

The stand-in stores a checkpoint in Spark's files and calls the source in the order that was recorded with Spark 4.3, so
that a case takes milliseconds. The same cases run in Spark itself in the long profile.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import pyspark_triokafka

Trigger = Literal["continual", "available now", "once"]
Row = dict[str, Any]

_WAIT = 180  # seconds that Spark may take for the available data, on a busy machine


class Query(Protocol):
    """A streaming query with a checkpoint. Its sink stores the rows of each batch by the batch's number."""

    batches: dict[int, list[Row]]

    def start(self, trigger: Trigger = "continual", /, **more: str) -> None:
        """Start the query, or restart it from its checkpoint; with ``more`` options."""

    def process_all(self) -> None:
        """Wait until all data are read; or, with the other triggers, until the query ends."""

    def stop(self) -> None:
        """Stop it."""


def rows(query: Query) -> list[Row]:
    """Return the rows of all batches, in order."""
    return [row for number in sorted(query.batches) for row in query.batches[number]]


def values(query: Query) -> list[int]:
    """Return the values of all rows as numbers, sorted; a repeated row is included twice."""
    return sorted(int(row["value"]) for row in rows(query))


def sizes(query: Query) -> list[int]:
    """Return the number of rows of each batch."""
    return [len(query.batches[number]) for number in sorted(query.batches)]


def offsets(checkpoint: Path, batch: int) -> dict[str, dict[str, int]]:
    """Return the end offsets of a batch in a checkpoint."""
    return dict(json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]))


class StandInQuery:
    """Calls the source as Spark does. ``in_batch`` is called with a batch's number when its rows are read.

    ``planned`` is called with it before, and ``in_task`` whenever a task has returned some rows.
    """

    def __init__(self, checkpoint: Path, options: dict[str, str], *, tells_start: bool = True) -> None:
        self.checkpoint = checkpoint
        self.options = options
        self.batches: dict[int, list[Row]] = {}
        self.tasks: dict[int, int] = {}
        self.in_batch: Callable[[int], None] = lambda number: None
        self.planned: Callable[[int], None] = lambda number: None
        self.in_task: Callable[[int], None] = lambda number: None
        self._tells_start = tells_start
        self._reader: Any = None

    def start(self, trigger: Trigger = "continual", /, **more: str) -> None:
        """Create the reader, as a new driver process does."""
        from pyspark.sql.streaming import datasource  # new in Spark 4.2

        source = pyspark_triokafka.DefaultSource({**self.options, **more})
        self._reader = source.streamReader(source.schema())
        self._pickled = pickle.dumps(self._reader)
        self._trigger = trigger
        if trigger == "available now":
            self._reader.prepareForTriggerAvailableNow()
        limit = datasource.ReadAllAvailable() if trigger == "once" else self._reader.getDefaultReadLimit()
        self._limit = limit

    def process_all(self) -> None:
        """Run batches until there are no new data."""
        while self._run_one() and self._trigger != "once":
            pass

    def stop(self) -> None:
        """Drop the reader: Spark kills its process without a notification."""
        self._reader = None

    def _run_one(self) -> bool:
        logged, done = self._log("offsets"), self._log("commits")
        number = max(logged, default=-1)
        if not logged or number in done:
            start = self._offset(number) if logged else json.dumps(self._reader.initialOffset())
            end = json.dumps(
                self._reader.latestOffset(json.loads(start), self._limit)
                if self._tells_start
                else self._reader.latestOffset()
            )
            # The first batch always runs, even an empty one.
            if logged and end == self._offset(number):
                return False
            number += 1
            # Spark writes the offset as Python returned it, with spaces.
            self._write("offsets", number, '{"batchWatermarkMs":0}', end)
            if number:
                self._reader.commit(json.loads(self._offset(number - 1)))
        start = self._offset(number - 1) if number else json.dumps(self._reader.initialOffset())
        self._run(number, start, self._offset(number))
        self._write("commits", number, '{"nextBatchWatermarkMs":0}')
        return True

    def _run(self, number: int, start: str, end: str) -> None:
        partitions = self._reader.partitions(json.loads(start), json.loads(end))
        self.planned(number)
        reader = pickle.loads(self._pickled)
        found = []
        for partition in partitions:
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                found += batch.to_pylist()
                self.in_task(number)
        self.in_batch(number)
        self.batches[number] = found
        self.tasks[number] = len(partitions)

    def _log(self, kind: str) -> set[int]:
        directory = self.checkpoint / kind
        return {int(path.name) for path in directory.iterdir() if path.name.isdigit()} if directory.exists() else set()

    def _offset(self, number: int) -> str:
        return (self.checkpoint / "offsets" / str(number)).read_text().splitlines()[2]

    def _write(self, kind: str, number: int, *lines: str) -> None:
        (self.checkpoint / kind).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / kind / str(number)).write_text("\n".join(("v1", *lines)))


class SparkQuery:
    """The same in Spark; its sink is a function that receives each batch."""

    def __init__(self, spark: Any, checkpoint: Path, options: dict[str, str]) -> None:
        self.checkpoint = checkpoint
        self.options = options
        self.batches: dict[int, list[Row]] = {}
        self.tasks: dict[int, int] = {}
        self.in_batch: Callable[[int], None] = lambda number: None
        self._spark = spark
        self._query: Any = None

    def start(self, trigger: Trigger = "continual", /, **more: str) -> None:
        """Start a query from the checkpoint."""
        frame = self._spark.readStream.format("triokafka").options(**self.options, **more).load()
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        if trigger == "available now":
            writer = writer.trigger(availableNow=True)
        elif trigger == "once":
            writer = writer.trigger(once=True)
        self._trigger = trigger
        self._query = writer.start()

    def process_all(self) -> None:
        """Wait until Spark has read all data."""
        if self._trigger == "continual":
            self._query.processAllAvailable()
        else:
            assert self._query.awaitTermination(_WAIT)

    def stop(self) -> None:
        """Stop the query."""
        self._query.stop()

    def _take(self, frame: Any, number: int) -> None:
        self.tasks[number] = frame.rdd.getNumPartitions()
        found = [row.asDict(recursive=True) for row in frame.collect()]
        self.in_batch(number)
        self.batches[number] = found
