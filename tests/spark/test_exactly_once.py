"""The sink with ``transactional``: readers with ``read_committed`` get each row once, whatever is killed, repeated or
races.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trio

import triokafka
from tests.spark.killing_source import ALL, start
from tests.spark.test_spark_write import lines, more_lines, sink
from tests.spark.topics import make_topic
from tests.support.cancellation import cancelled_at_each_checkpoint
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.spark.writing.exactly_once import TaskPlace, write_once
from triokafka.spark.writing.record_sink import Written
from triokafka.spark.writing.write_options import WriteOptions


def values(bootstrap: str, topic: str) -> Counter[bytes]:
    """Return the values that readers with ``read_committed`` get."""
    reader = triokafka.read_topic(
        topic, bootstrap_servers=bootstrap, columns=["value"], isolation_level="read_committed"
    )
    return Counter(reader.read_all()["value"].to_pylist())


async def values_in_thread(bootstrap: str, topic: str) -> Counter[bytes]:
    """Do the same as `values`, for a task."""
    return await trio.to_thread.run_sync(values, bootstrap, topic)


def rows(name: str, count: int = 5) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": [b"%s-%d" % (name.encode(), n)]}) for n in range(count)]


def expected(*names: str, count: int = 5) -> Counter[bytes]:
    return Counter(b"%s-%d" % (name.encode(), n) for name in names for n in range(count))


async def attempt(
    bootstrap: str,
    topic: str,
    place: TaskPlace,
    batches: list[pa.RecordBatch],
    between: Callable[[int], Any] = lambda number: None,
) -> Written:
    """Run one attempt of a task; ``between`` is called before each batch is passed on."""
    send, receive = trio.open_memory_channel[pa.RecordBatch](0)

    async def feed() -> None:
        async with send:
            for number, batch in enumerate(batches):
                waits = between(number)
                if waits is not None:
                    await waits
                try:
                    await send.send(batch)
                except trio.BrokenResourceError:
                    return

    settings = {"bootstrap_servers": bootstrap, "linger_ms": 0, "close_timeout_ms": 5_000}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        written = await write_once(receive, place, topic, settings)
        nursery.cancel_scope.cancel()
    return written


async def test_repeated_task_writes_once(bootstrap: str) -> None:
    topic = await trio.to_thread.run_sync(partial(make_topic, bootstrap, partitions=2))
    for batch in range(3):
        place = TaskPlace(f"{topic}-0", batch)
        assert (await attempt(bootstrap, topic, place, rows(f"{batch}"))).records == 5
        for _ in range(2):
            assert (await attempt(bootstrap, topic, place, rows(f"{batch}"))).records == 0
    assert await values_in_thread(bootstrap, topic) == expected("0", "1", "2")


async def test_task_killed_at_every_step_writes_once(bootstrap: str) -> None:
    """Promised: exactly-once sink.

    An attempt that is cancelled at a step leaves a transaction that is aborted, or one that is committed.
    """
    topic = await trio.to_thread.run_sync(make_topic, bootstrap)
    place = TaskPlace(f"{topic}-0", 7)

    async def check() -> None:
        assert await values_in_thread(bootstrap, topic) in (Counter(), expected("a", count=2))

    await cancelled_at_each_checkpoint(lambda: attempt(bootstrap, topic, place, rows("a", 2)), check, limit=300)
    assert await values_in_thread(bootstrap, topic) == expected("a", count=2)


async def test_transaction_of_a_dead_attempt_is_aborted_by_the_next(bootstrap: str) -> None:
    """A killed executor leaves its transaction open, with written records."""
    topic = await trio.to_thread.run_sync(make_topic, bootstrap)
    async with triokafka.Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-0") as dead:
        await dead.transaction().begin()
        await (await dead.send(topic, b"a-0"))
        await attempt(bootstrap, topic, TaskPlace(f"{topic}-0", 0), rows("a"))
        assert await values_in_thread(bootstrap, topic) == expected("a")
        with pytest.raises(KafkaError):
            await (await dead.send(topic, b"zombie"))
    assert await values_in_thread(bootstrap, topic) == expected("a")


async def test_one_of_two_speculative_attempts_writes(bootstrap: str) -> None:
    topic = await trio.to_thread.run_sync(make_topic, bootstrap)
    place = TaskPlace(f"{topic}-0", 0)
    slow_has_written, slow_may_go_on = trio.Event(), trio.Event()
    outcomes: list[object] = []

    def slowly(number: int) -> Any:
        if number < 2:
            return None
        slow_has_written.set()
        return slow_may_go_on.wait()

    async def slow() -> None:
        try:
            outcomes.append(await attempt(bootstrap, topic, place, rows("a"), slowly))
        except* KafkaError as group:
            outcomes.append(group.exceptions[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow)
        with trio.fail_after(60):
            await slow_has_written.wait()
        outcomes.append(await attempt(bootstrap, topic, place, rows("a")))
        slow_may_go_on.set()
    assert await values_in_thread(bootstrap, topic) == expected("a")
    assert isinstance(outcomes[0], Written) and outcomes[0].records == 5
    assert isinstance(outcomes[1], KafkaError)


async def test_task_without_rows_writes_nothing(bootstrap: str) -> None:
    topic = await trio.to_thread.run_sync(make_topic, bootstrap)
    assert (await attempt(bootstrap, topic, TaskPlace(f"{topic}-0", 0), [])).records == 0


def test_option_is_a_switch() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    assert WriteOptions.parse({**given, "transactional": "true"}).transactional
    assert not WriteOptions.parse({**given, "transactional": "off"}).transactional
    with pytest.raises(ConfigurationError, match="'true' or 'false'"):
        WriteOptions.parse({**given, "transactional": "maybe"})
    with pytest.raises(ConfigurationError, match="acks=1"):
        WriteOptions.parse({**given, "transactional": "true", "kafka.acks": "1"})


# ---------------------------------------------------------------- a real Spark


def run(frame: Any, bootstrap: str, topic: str, checkpoint: Path) -> Any:
    query = (
        sink(frame, bootstrap, topic, transactional="true")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(180)
    return query


def test_batch_repeated_by_spark_is_written_once(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """Without the commit file of its last batch, a restarted query runs that batch again."""
    topic = make_topic(bootstrap, partitions=2)
    frame = lines(spark, tmp_path / "in", "a", "b", "c")
    checkpoint = tmp_path / "checkpoint"
    run(frame, bootstrap, topic, checkpoint)
    assert values(bootstrap, topic) == Counter([b"a", b"b", b"c"])
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    more_lines(tmp_path / "in", "d")
    run(frame, bootstrap, topic, checkpoint)
    assert values(bootstrap, topic) == Counter([b"a", b"b", b"c", b"d"])


def test_worker_killed_around_the_commit_writes_once(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    """Each kill ends the query, because a session on local threads does not retry tasks; the next run repeats the
    batch.
    """
    topic = make_topic(bootstrap, partitions=2)
    frame = lines(spark, tmp_path / "in", "a", "b", "c")
    killed = tmp_path / "killed"
    killed.mkdir()
    steps = ("response TxnOffsetCommit 1", "request EndTxn 1", "response EndTxn 1")
    for number in range(len(steps) + 1):
        query = start(
            spark, frame, bootstrap, topic, str(tmp_path / "checkpoint"),
            killed=str(killed), victim="worker", steps=",".join(steps),
        )  # fmt: skip
        try:
            assert query.awaitTermination(180)
            break
        except Exception:
            assert len(list(killed.iterdir())) == number + 1, "a task failed for another reason"
    assert {one.name for one in killed.iterdir()} == {step.replace(" ", "-") for step in steps}
    assert values(bootstrap, topic) == Counter([b"a", b"b", b"c"])


AROUND_THE_WRITE = ",".join(
    f"{event} {api} 1"
    for api in ("InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn")
    for event in ("request", "response")
)
"""The steps at which a program is killed that takes seconds to start."""


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("victim", "steps", "master"),
    [
        ("worker", ALL, "local[2,200]"),
        ("executor", AROUND_THE_WRITE, "local-cluster[2,1,768]"),
        ("driver", AROUND_THE_WRITE, "local[2]"),
    ],
)
def test_process_killed_at_every_step_writes_once(
    victim: str, steps: str, master: str, bootstrap: str, tmp_path: Path
) -> None:
    topic = make_topic(bootstrap, partitions=2)
    source, killed = tmp_path / "in", tmp_path / "killed"
    source.mkdir()
    killed.mkdir()
    for number in range(3):
        more_lines(source, *(f"{number}-{line}" for line in range(50)))
    command = [
        sys.executable, "-m", "tests.spark.killing_source",
        bootstrap, topic, str(source), str(tmp_path / "checkpoint"), str(killed), victim, steps, master,
    ]  # fmt: skip
    log, starts = tmp_path / "log.txt", 0
    while True:
        before = len(list(killed.iterdir()))
        with log.open("ab") as output:
            status = subprocess.run(command, stdout=output, stderr=output, check=False, timeout=1_200).returncode
        starts += 1
        if not status:
            break
        assert victim == "driver" and len(list(killed.iterdir())) > before, log.read_text(errors="replace")[-4_000:]
    done = {one.name for one in killed.iterdir()}
    print(f"{victim}: {len(done)} steps, {starts} starts: {sorted(done)}")
    assert {step.replace(" ", "-") for step in AROUND_THE_WRITE.split(",")} <= done
    assert (starts > 1) is (victim == "driver")
    assert values(bootstrap, topic) == Counter(b"%d-%d" % (number, line) for number in range(3) for line in range(50))


def test_batch_write_is_transactional_too(spark: Any, bootstrap: str) -> None:
    topic = make_topic(bootstrap, partitions=2)
    frame = spark.createDataFrame([(f"{n}",) for n in range(20)], "value string").repartition(3)
    sink(frame, bootstrap, topic, transactional="true").mode("append").save()
    assert values(bootstrap, topic) == Counter(b"%d" % n for n in range(20))
