"""The delivery recipes of ``examples/`` as processes that are killed, with a broker started as in the documentation."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio

import triokafka
from tests.support.broker_process import broker_process
from triokafka.structs import TopicPartition

ROOT = Path(__file__).parents[2]
PARTITIONS = 2
RECORDS = 300
EVERYTHING = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
KILLS = (1, 37, 60, 113)
"""After so many lines that it printed the process is killed; then it is started again."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


async def written(bootstrap: str, topic: str) -> None:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, PARTITIONS, 1)])
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for partition, offset in sorted(EVERYTHING):
            await producer.send(topic, b"%d" % offset, partition=partition)


async def committed(bootstrap: str, topic: str, group: str) -> set[int]:
    async with triokafka.Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        found = await consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return {0 if position is None else position.offset for position in found.values()}


class Runs:
    """Repeated runs of an example; ``lines`` is the output of all runs."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.lines: list[str] = []
        self._command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *arguments]

    def until(self, done: Callable[[int], bool]) -> None:
        """Run it until ``done`` returns true, called after every line with the number of lines of this run; then kill
        it.
        """
        count = 0
        with subprocess.Popen(
            self._command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self.lines.append(line)
                count += 1
                if done(count):
                    process.send_signal(signal.SIGKILL)  # lines that are still in the pipe count, too

    def records(self) -> Counter[tuple[int, int]]:
        """Return the handled records, by partition and offset."""
        return Counter((int(partition), int(offset)) for partition, offset, _ in map(str.split, self.lines))


def test_at_least_once_loses_no_record_in_crashes(bootstrap: str) -> None:
    trio.run(written, bootstrap, "least")
    runs = Runs("consume_at_least_once", bootstrap, "least", "one")
    for count in KILLS:
        runs.until(count.__eq__)
    runs.until(lambda _: runs.records().keys() >= EVERYTHING)
    assert runs.records().keys() == EVERYTHING


def test_at_most_once_repeats_no_record_in_crashes(bootstrap: str) -> None:
    trio.run(written, bootstrap, "most")
    runs = Runs("consume_at_most_once", bootstrap, "most", "one")
    for count in KILLS:
        runs.until(count.__eq__)
        assert set(runs.records().values()) == {1}
    assert trio.run(committed, bootstrap, "most", "at-most-once") != {0}


def test_results_with_their_offsets_are_exactly_once_through_crashes(bootstrap: str, tmp_path: Path) -> None:
    trio.run(written, bootstrap, "exactly")
    path = str(tmp_path / "results.sqlite")
    runs = Runs("consume_exactly_once", bootstrap, "exactly", path, "one")
    for count in (1, 2, 5):
        runs.until(count.__eq__)

    def stored() -> list[tuple[int, int]]:
        with closing(sqlite3.connect(path)) as database:
            return database.execute("select partition, offset from results order by partition, offset").fetchall()

    runs.until(lambda _: len(stored()) == len(EVERYTHING))
    assert stored() == sorted(EVERYTHING)
