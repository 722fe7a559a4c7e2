"""The resources that the process uses, as reported by the operating system."""

from __future__ import annotations

import sys
import time

import pytest

from triokafka.world.process_usage import process_usage


def test_processor_time_is_that_of_the_process_and_of_the_calling_thread() -> None:
    before = process_usage()
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    after = process_usage()
    assert after.processor_seconds - before.processor_seconds >= 0.05
    assert after.thread_seconds - before.thread_seconds >= 0.05


@pytest.mark.skipif(sys.platform != "linux", reason="the rest comes from Linux")
def test_memory_files_and_the_time_of_the_start_are_known() -> None:
    usage = process_usage()
    assert usage.resident_bytes is not None and usage.resident_bytes > 1 << 20
    with open(__file__, "rb"):
        more = process_usage()
    assert usage.open_files is not None and more.open_files == usage.open_files + 1
    assert usage.most_open_files is not None and usage.most_open_files >= usage.open_files
    assert usage.started_at is not None and usage.started_at <= time.time()
