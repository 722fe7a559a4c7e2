"""The data source ``triokafka``, whose tasks kill a process at chosen steps of their writes; and its program.

A step is a request or response of the task's producer, such as ``request EndTxn 1``: the first of its kind in this
attempt. A file in the directory ``killed`` records each kill, so that no step kills twice. The victim is the Python
``worker`` of the task, the JVM of its ``executor``, or the ``driver`` with all of its children.

``python -m tests.spark.killing_source BOOTSTRAP TOPIC INPUT CHECKPOINT KILLED VICTIM STEPS MASTER`` runs a streaming
query over the lines of ``INPUT``, one file in each micro-batch, until all are written.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyspark_triokafka
import triokafka
from triokafka.spark.writing import exactly_once, topic_writer
from triokafka.structs import Node

ALL: Final = "all"
_OWN_OPTIONS: Final = ("killed", "victim", "steps")
_DRIVER: Final = "TRIOKAFKA_TEST_DRIVER"


class Killer(triokafka.Hooks):
    """Kills ``victim`` at each of the ``steps`` once, or at every step."""

    def __init__(self, killed: str, victim: str, steps: tuple[str, ...]) -> None:
        self._killed = Path(killed)
        self._victim = victim
        self._steps = steps
        self._seen: Counter[str] = Counter()

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        """See `Hooks`."""
        self._at(f"request {api}")

    def on_response(self, node: Node, api: str, size: int, seconds: float, error: Exception | None) -> None:
        """See `Hooks`."""
        if error is None:
            self._at(f"response {api}")

    def _at(self, event: str) -> None:
        self._seen[event] += 1
        step = f"{event} {self._seen[event]}"
        if ALL in self._steps or step in self._steps:
            try:
                (self._killed / step.replace(" ", "-")).touch(exist_ok=False)
            except FileExistsError:
                return
            kill(self._victim)


def kill(victim: str) -> None:
    """Kill a process of Spark, from its Python worker."""
    if victim != "worker":
        last = int(os.environ[_DRIVER])
        process = os.getpid()
        while process != last and process > 1:
            process = _parent(process)
            is_java = b"java" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]
            if victim == "driver" or is_java:
                os.kill(process, signal.SIGKILL)
            if victim == "executor" and is_java:
                break
    os.kill(os.getpid(), signal.SIGKILL)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class KillingSource(pyspark_triokafka.DefaultSource):
    """``format("killing")``, with the options ``killed``, ``victim`` and ``steps`` (separated by commas)."""

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return "killing"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """See `DataSource`."""
        writer: Any = super().streamWriter(schema, overwrite)
        return KillingWriter(writer.task, {name: self.options[name] for name in _OWN_OPTIONS})

    def _options(self) -> dict[str, Any]:
        return {name: value for name, value in super()._options().items() if name not in _OWN_OPTIONS}


class KillingWriter(topic_writer.ArrowStreamWriter or topic_writer.RowStreamWriter):  # type: ignore[misc]
    """Writes like the source's writer, until it kills its process."""

    def __init__(self, task: Any, options: dict[str, str]) -> None:
        self.task = task
        self._options = options

    def write(self, iterator: Any) -> Any:
        """Write one task."""
        steps = tuple(self._options["steps"].split(","))
        hooks = Killer(self._options["killed"], self._options["victim"], steps)
        # The worker serves other tasks later, each with its own killer.
        clients = SimpleNamespace(
            Producer=partial(triokafka.Producer, hooks=(hooks,)),
            AdminClient=partial(triokafka.AdminClient, hooks=(hooks,)),
        )
        vars(exactly_once)["triokafka"] = clients
        return self.task.write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        """See `DataSourceStreamWriter`."""

    def abort(self, messages: Any, batchId: int) -> None:
        """See `DataSourceStreamWriter`."""


def start(
    spark: Any, frame: Any, bootstrap: str, topic: str, checkpoint: str, *, killed: str, victim: str, steps: str
) -> Any:
    """Start the query over all available data."""
    spark.dataSource.register(KillingSource)
    return (
        frame.writeStream.format("killing")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("transactional", "true")
        .option("killed", killed)
        .option("victim", victim)
        .option("steps", steps)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(
    bootstrap: str, topic: str, source: str, checkpoint: str, killed: str, victim: str, steps: str, master: str
) -> None:
    """Run the query to its end."""
    import triokafka.spark

    os.environ[_DRIVER] = str(os.getpid())
    triokafka.spark.prepare_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("killed again and again")
    settings = {
        **triokafka.spark.session_conf(),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.task.maxFailures": "200",
        "spark.executor.memory": "512m",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.excludeOnFailure.enabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    triokafka.spark.prepare_home(str(Path(checkpoint).parent / "home"))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(source)
    query = start(spark, frame, bootstrap, topic, checkpoint, killed=killed, victim=victim, steps=steps)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
