"""A broker that stops responding under full load: the producer's memory stays bounded, and no record is lost or
repeated.

The producer runs in its own process, and its resident memory is measured from outside. The broker's process is stopped
(SIGSTOP), and continues later (SIGCONT).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests.support.broker_process import BrokerProcess
from tests.support.read_back import read_all

STALL = 6.0
LONG_STALL = 60.0
ALLOWANCE = 32 << 20
BUFFER_MEMORY = 32 << 20
PARTITIONS = 3
PAGE = os.sysconf("SC_PAGE_SIZE")
CASES = [
    pytest.param("none", False, 100, id="records"),
    pytest.param("none", True, 1_000, id="columns"),
    pytest.param("lz4", True, 1_000, id="compressed-columns"),
]


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


async def measure(bootstrap: str, broker_pid: int, topic: str, stall: float, job: dict[str, Any]) -> dict[str, Any]:
    """Run the producer through a stall; return its report, with ``baseline`` and ``peak`` of its memory in bytes."""
    arguments = json.dumps({"bootstrap": bootstrap, "topic": topic, "partitions": PARTITIONS, **job})
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.support.full_speed_producer", arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    stopped = False
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        with trio.fail_after(stall + 120):
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive_some(1) or b"nothing\n"
            assert line == b"connected\n"
            baseline = peak = resident(process.pid)

            async def watch(seconds: float) -> None:
                # This measures another process over time: there is no event to wait for.
                nonlocal peak
                end = trio.current_time() + seconds
                while trio.current_time() < end:
                    peak = max(peak, resident(process.pid))
                    await trio.sleep(0.02)

            await watch(1.0)
            os.kill(broker_pid, signal.SIGSTOP)
            stopped = True
            await watch(stall)
            os.kill(broker_pid, signal.SIGCONT)
            stopped = False
            await watch(1.0)
            await process.stdin.aclose()
            answer = b""
            while data := await process.stdout.receive_some(10_000):
                answer += data
            assert await process.wait() == 0
            return {**json.loads(answer), "baseline": baseline, "peak": peak}
    finally:
        if stopped:
            os.kill(broker_pid, signal.SIGCONT)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def check(tmp_path: Path, stall: float, compression: str, many: bool, size: int, **options: Any) -> None:
    broker = BrokerProcess(tmp_path / "data")
    try:
        bootstrap = broker.start()
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic("stalled", PARTITIONS, 1)])
        began = time.monotonic()
        found = await measure(
            bootstrap,
            broker.pid,
            "stalled",
            stall,
            {
                "size": size,
                "many": many,
                "options": {
                    "compression_type": compression,
                    "buffer_memory": BUFFER_MEMORY,
                    "max_block_ms": 300_000,
                    "delivery_timeout_ms": 300_000,
                    "close_timeout_ms": 100_000,
                    **options,
                },
            },
        )
        grown = found["peak"] - found["baseline"]
        print(
            f"{compression} {size} B: {sum(found['sent'])} records in {time.monotonic() - began:.1f} s,"
            f" memory grew by {grown / 2**20:.1f} MiB of {(BUFFER_MEMORY + ALLOWANCE) >> 20}"
        )
        assert BUFFER_MEMORY // 2 < grown <= BUFFER_MEMORY + ALLOWANCE, "the buffer was not filled, or not bounded"
        assert found["failed"] == 0
        assert found["acknowledged"] == sum(found["sent"])
        entries = await read_all(bootstrap, {"stalled": PARTITIONS})
        for partition, log in entries.items():
            numbers = [int((value or b"").split(b"|", 1)[0]) for _, value in log]
            twice = [number for number, count in Counter(numbers).items() if count > 1]
            assert not twice, f"{partition} has records more than once: {twice[:10]}"
            assert numbers == list(range(found["sent"][partition.partition]))
    finally:
        broker.close()


@pytest.mark.parametrize(("compression", "many", "size"), CASES)
async def test_memory_stays_bounded_while_the_broker_is_suspended(
    tmp_path: Path, compression: str, many: bool, size: int
) -> None:
    """Requests time out and are sent again meanwhile."""
    await check(tmp_path, STALL, compression, many, size, request_timeout_ms=2_000)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("compression", "many", "size"), CASES)
async def test_memory_stays_bounded_through_a_minute(tmp_path: Path, compression: str, many: bool, size: int) -> None:
    await check(tmp_path, LONG_STALL, compression, many, size)
