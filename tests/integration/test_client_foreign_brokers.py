"""Our client against other people's brokers: the mock cluster inside librdkafka, and noida-db.

Both run as processes of their own on free loopback ports, and are ended in any case.
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
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import triokafka
from triokafka.errors import KafkaError

_MOCK_CLUSTER = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "ignored", "test.mock.num.brokers": 3, "log_level": 0})
found = {}
while len(found) < 3:
    found = {b.id: f"{b.host}:{b.port}" for b in producer.list_topics(timeout=10).brokers.values()}
print("ready " + ",".join(found.values()), flush=True)
sys.stdin.read()
"""


def _first_line(process: subprocess.Popen[bytes], timeout: float = 30) -> str:
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        assert selector.select(timeout), "the broker did not come up"
    return process.stdout.readline().decode().strip()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def librdkafka_mock() -> Iterator[str]:
    """Bootstrap servers of a mock cluster of three."""
    process = subprocess.Popen([sys.executable, "-c", _MOCK_CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        line = _first_line(process)
        assert line.startswith("ready ")
        yield line.removeprefix("ready ")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def noida_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a noida-db that speaks Kafka only."""
    port = _free_port()
    command = [
        str(Path(sysconfig.get_path("scripts")) / "noida-db"),
        *("start", "--only", "kafka", "--kafka-port", str(port), "--host", "127.0.0.1"),
        *("--data-dir", str(tmp_path_factory.mktemp("noida"))),
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
                assert time.monotonic() < give_up_at, "noida-db did not come up"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        # It starts processes of its own; the session is this fixture's.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(params=["librdkafka_mock", "noida_db"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Each of the foreign brokers."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def topic() -> str:
    """A topic name of the test's own."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_are_acknowledged_in_order(bootstrap: str, topic: str, compression: str) -> None:
    with trio.fail_after(60):
        async with triokafka.Producer(
            bootstrap_servers=bootstrap, compression_type=compression, max_block_ms=20_000, batch_size=2000
        ) as producer:
            deliveries = [
                await producer.send(topic, b"value %d" % i, key=b"key", headers=[("n", b"%d" % i)]) for i in range(300)
            ]
            offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(offsets[0], offsets[0] + 300))


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_setting_works(bootstrap: str, topic: str, acks: int | str) -> None:
    with trio.fail_after(60):
        async with triokafka.Producer(
            bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False, max_block_ms=20_000
        ) as producer:
            metadata = await (await producer.send(topic, b"value"))
    assert metadata.offset == (-1 if acks == 0 else 0)


async def test_many_records_in_one_call(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with triokafka.Producer(bootstrap_servers=bootstrap, max_block_ms=20_000) as producer:
            ranges = await (await producer.send_many(topic, [b"x" * 100] * 5000, partition=0))
    [(partition, offsets)] = ranges.items()
    assert partition == (topic, 0)
    assert offsets == (0, 4999)


async def test_admin_client_creates_describes_and_deletes_topics(noida_db: str, topic: str) -> None:
    with trio.fail_after(60):
        async with triokafka.AdminClient(bootstrap_servers=noida_db) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, num_partitions=3, replication_factor=1)])
            described = await admin.describe_topics([topic])
            assert len(described[topic].partitions) == 3
            assert topic in [listing.name for listing in await admin.list_topics()]
            await admin.delete_topics([topic])
            with pytest.raises(KafkaError):
                _ = (await admin.describe_topics([topic]))[topic]
