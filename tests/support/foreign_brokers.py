"""Broker implementations of other projects in their own processes: the mock cluster in librdkafka, and noida-db.

Both listen on free ports of loopback, and are always stopped at the end.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOCK_CLUSTER = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "ignored", "test.mock.num.brokers": 3, "log_level": 0})
found = {}
while len(found) < 3:
    found = {b.id: f"{b.host}:{b.port}" for b in producer.list_topics(timeout=60).brokers.values()}
print("ready " + ",".join(found.values()), flush=True)
sys.stdin.read()
"""


@contextmanager
def librdkafka_mock() -> Iterator[str]:
    """Yield the bootstrap servers of a mock cluster of three."""
    process = subprocess.Popen([sys.executable, "-c", _MOCK_CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        line = _first_line(process)
        assert line.startswith("ready ")
        yield line.removeprefix("ready ")
    finally:
        process.kill()
        process.communicate()


@contextmanager
def noida_db(data_directory: Path) -> Iterator[str]:
    """Yield the address of a noida-db that serves Kafka's protocol only."""
    port = _free_port()
    command = [
        str(Path(sysconfig.get_path("scripts")) / "noida-db"),
        *("start", "--only", "kafka", "--kafka-port", str(port), "--host", "127.0.0.1"),
        *("--data-dir", str(data_directory)),
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        give_up_at = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "noida-db ended"
                assert time.monotonic() < give_up_at, "noida-db did not start"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        # It starts processes of its own; they share this block's session.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _first_line(process: subprocess.Popen[bytes], timeout: float = 30) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(timeout), "the broker did not start"
    return process.stdout.readline().decode().strip()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
