"""The brokers of the producer comparison."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.clients.brokers import Broker, KafkaBroker, in_memory_broker, sink_broker
from triokafka.cli.load.brokers import MeasurementError

_START_SECONDS: Final = 60


def end_brokers_on_sigterm() -> None:
    """Have SIGTERM unwind this process as an interrupt does: brokers in sessions of their own would stay."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@contextmanager
def noida_db() -> Iterator[KafkaBroker]:
    """Run noida-db with only its Kafka interface, in a temporary directory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="bench-noida-", ignore_cleanup_errors=True) as data:
        command = [
            str(Path(sysconfig.get_path("scripts")) / "noida-db"),
            *("start", "--only", "kafka", "--kafka-port", str(port), "--host", "127.0.0.1", "--data-dir", data),
        ]
        nothing = subprocess.DEVNULL
        end_brokers_on_sigterm()
        process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        try:
            give_up_at = time.monotonic() + _START_SECONDS
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > give_up_at:
                        raise MeasurementError("noida-db did not start") from None
                    time.sleep(0.05)
            yield KafkaBroker(process.pid, f"127.0.0.1:{port}")
        finally:
            # It starts child processes, which share its session.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


BROKERS: Final[dict[str, Callable[[], AbstractContextManager[Broker]]]] = {
    "sink": sink_broker,
    "triokafka broker": in_memory_broker,
    "noida-db": noida_db,
}
"""By name: a broker that only acknowledges, ours in memory, and noida-db."""
