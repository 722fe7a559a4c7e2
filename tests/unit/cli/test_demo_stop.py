"""``triokafka demo`` leaves no process behind when it receives a signal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

pytest.importorskip("rich")

import triokafka.spark
from triokafka.cli.demo.spark_job import totals_from_spark
from triokafka.cli.demo.stopping import StoppedDemo, until_stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_demo_that_receives_a_signal_ends_its_steps(number: int) -> None:
    ended = []

    async def run(data_directory: str) -> str:
        try:
            signal.raise_signal(number)
            await trio.sleep_forever()
        finally:
            ended.append(data_directory)

    with trio.fail_after(60):
        assert await until_stopped(run, "data") == StoppedDemo(number)
    assert ended == ["data"]


async def test_failure_and_result_of_the_demo_pass_unchanged() -> None:
    async def works(data_directory: str) -> str:
        return data_directory

    async def fails(data_directory: str) -> str:
        raise OSError(data_directory)

    assert await until_stopped(works, "data") == "data"
    with pytest.raises(OSError, match=r"^data$"):
        await until_stopped(fails, "data")


async def test_cancelled_demo_ends_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told, program = tmp_path / "told", tmp_path / "spark"
    os.mkfifo(told)
    program.write_text(f"#!/bin/sh\necho $$ > {told}\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(triokafka.spark, "find_java", lambda: "java")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(totals_from_spark, "127.0.0.1:1", "flights")
            spark = int(await trio.to_thread.run_sync(told.read_text))
            nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(spark, 0)
