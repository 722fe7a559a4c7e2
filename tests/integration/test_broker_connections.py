"""The cost of ten thousand idle connections beside five hundred busy ones on one broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.integration.test_broker_abuse import Running, create_topic, logged_broker
from tests.support.abuse import GoodClient, resident_bytes

IDLE, BUSY = 10_000, 500
_MOST_BYTES_EACH = 24_000

_HOLD = """
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
request = bytes.fromhex("0000000e001200000000000100046964 6c65".replace(" ", ""))
held = []
for _ in range(int(sys.argv[3])):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    connection.sendall(request)
    assert connection.recv(10_000)
    held.append(connection)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_connections(broker: Running, count: int) -> Iterator[None]:
    """Hold connections from another process, each of which was used once."""
    command = [sys.executable, "-c", _HOLD, broker.host, str(broker.port), str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
    finally:
        process.communicate()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_idle_connections_cost_little_and_do_not_slow_the_busy_ones(tmp_path: Path) -> None:
    """Prints the memory of an idle connection."""
    with logged_broker(tmp_path, {}) as broker:
        alone, among = GoodClient(broker.host, broker.port), GoodClient(broker.host, broker.port)
        trio.run(create_topic, broker.host, broker.port)
        trio.run(_busy, alone)
        before = resident_bytes(broker.pid)
        with held_connections(broker, IDLE):
            after = resident_bytes(broker.pid)
            assert broker.metric('kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}') == IDLE
            trio.run(_busy, among)
        each = (after - before) / IDLE
        print(f"connections: {each:,.0f} bytes of the broker's memory for each of {IDLE} idle ones", flush=True)
        for share in (0.5, 0.99):
            print(
                f"connections: latency p{share * 100:g} of {BUSY} busy ones {among.quantile(share) * 1000:.2f} ms, "
                f"{alone.quantile(share) * 1000:.2f} without the idle ones",
                flush=True,
            )
        assert each < _MOST_BYTES_EACH


async def _busy(client: GoodClient) -> None:
    """Run rounds of six requests on every connection, with a pause between rounds."""
    async with trio.open_nursery() as nursery:
        for number in range(BUSY):
            nursery.start_soon(_start_later, client, number / BUSY * 5)


async def _start_later(client: GoodClient, seconds: float) -> None:
    await trio.sleep(seconds)
    await client.run(10, pause=5)
