"""Broker processes that a measurement starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from triokafka.errors import KafkaError

_STOP_SECONDS: Final = 10

SINK: Final = ("-m", "triokafka.cli.load.sink")
"""Python's arguments for a broker that only acknowledges (`sink`)."""

# Without the delay, the memory of a deleted topic is free immediately.
IN_MEMORY: Final = (
    *("-m", "triokafka.cli.load.memory_broker", "--in-memory", "--listen", "127.0.0.1:0"),
    *("--set", "log.segment.delete.delay.ms=0", "--set", "group.initial.rebalance.delay.ms=0"),
)
"""Python's arguments for ``triokafka broker --in-memory`` (`memory_broker`)."""


class MeasurementError(KafkaError):
    """A measurement failed, or its result is implausible."""


@contextmanager
def ready_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a Python process that prints ``ready HOST:PORT`` and exits on SIGTERM or at the end of its standard input.

    Yields the process and HOST:PORT. Raises `MeasurementError` if the process prints anything else first.
    """
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise MeasurementError(f"the broker did not start: python {' '.join(arguments)}")
        yield process, line.split()[1]
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
