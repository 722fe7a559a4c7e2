"""The mirror as a process that is killed while it copies: no record is lost, and exactly-once mode repeats none.

`tests/simulation/test_mirror.py` does the same in virtual time, and also kills brokers and cuts connections.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

import triokafka
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.read_back import read_all
from triokafka.structs import TopicPartition

pytestmark = pytest.mark.long

PARTITIONS: Final = 3
KILLS: Final = 6
LARGE_RUN_BYTES: Final = 10_000_000_000
LARGE_RUN_SECONDS: Final = 150.0
"""The large run fills its source for this long, or up to its size."""
PATIENCE: Final = 600.0


def words(west: str, east: str, *more: str) -> list[str]:
    sides = ["--source", west, "--target", east, "--source-alias", "west", "--target-alias", "east"]
    return [sys.executable, "-m", "triokafka", "mirror", "run", *sides, "--commit-interval-ms", "200", *more]


async def fill(bootstrap: str, seconds: float, value_bytes: int, most_bytes: int) -> int:
    """Send numbered records to all partitions in turn for some seconds; return their number."""
    number, padding = 0, b"." * value_bytes
    deadline = time.monotonic() + seconds
    async with triokafka.Producer(bootstrap_servers=bootstrap, buffer_memory=64_000_000) as producer:
        while time.monotonic() < deadline and number * value_bytes < most_bytes:
            value = b"%d" % number + padding
            await producer.send("orders", value, partition=number % PARTITIONS)
            number += 1
    return number


async def end_offsets(bootstrap: str, topic: str) -> int:
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        asked = {TopicPartition(topic, number): "latest" for number in range(PARTITIONS)}
        return sum(one.offset for one in (await admin.list_offsets(asked)).values())


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_killed_mirror_loses_no_record(exactly_once: bool) -> None:
    more = ["--exactly-once"] if exactly_once else []
    choose = random.Random(7)
    with broker_process() as west, broker_process() as east:
        async with triokafka.AdminClient(bootstrap_servers=west) as admin:
            await admin.create_topics([triokafka.NewTopic("orders", PARTITIONS)])
        sent = 0

        async def write() -> None:
            nonlocal sent
            sent = await fill(west, 20.0, 100, LARGE_RUN_BYTES)

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                for _ in range(KILLS):
                    with running(words(west, east, *more)):
                        await trio.sleep(choose.uniform(1.5, 4.0))  # a kill at a random moment
            with running(words(west, east, *more, "--once", "--json")) as last:
                printed, _ = await trio.to_thread.run_sync(last.communicate)
            assert last.returncode == 0 and json.loads(printed.splitlines()[-1])["lag"] == 0
            source = await read_all(west, {"orders": PARTITIONS})
            target = await read_all(east, {"west.orders": PARTITIONS}, isolation_level="read_committed")
    assert sent == sum(map(len, source.values())) > 0
    for number in range(PARTITIONS):
        copied = [value for _, value in target[TopicPartition("west.orders", number)]]
        original = [value for _, value in source[TopicPartition("orders", number)]]
        assert list(dict.fromkeys(copied)) == original, "records are lost or out of order"
        if exactly_once:
            assert len(copied) == len(original), "records are repeated"


async def test_large_copy_shows_its_progress_and_continues_after_a_kill(tmp_path: Path) -> None:
    """It copies 10 GB, or as much as a producer sends in two and a half minutes."""
    brokers = [BrokerProcess(tmp_path / name, discards_log=True) for name in ("west", "east")]
    try:
        west, east = (broker.start() for broker in brokers)
        async with triokafka.AdminClient(bootstrap_servers=west) as admin:
            await admin.create_topics([triokafka.NewTopic("orders", PARTITIONS)])
        sent = await fill(west, LARGE_RUN_SECONDS, 10_000, LARGE_RUN_BYTES)
        reports: list[dict[str, Any]] = []
        began_at = time.monotonic()
        with running(words(west, east, "--once", "--json", "--status-interval", "1")) as first:
            assert first.stdout is not None
            while not reports or reports[-1]["lag"] > sent / 2:
                line = await trio.to_thread.run_sync(first.stdout.readline)
                assert line, "the mirror ended before half of the records"
                reports.append(json.loads(line))
        with running(words(west, east, "--once", "--json", "--status-interval", "1")) as second:
            printed, _ = await trio.to_thread.run_sync(second.communicate)
        seconds = time.monotonic() - began_at
        assert second.returncode == 0
        later = [json.loads(line) for line in printed.splitlines()]
        assert later[-1]["lag"] == 0 and later[-1]["records"] < sent, "the second process started over"
        assert all(one["lag"] >= 0 and not one["failure"] for one in reports + later)
        assert await end_offsets(east, "west.orders") >= sent
        print(f"{sent * 10_000 / 1e9:.1f} GB in {seconds:.0f} s, {len(reports) + len(later)} reports of progress")
    finally:
        for broker in brokers:
            broker.kill()
