"""Clients of three libraries above their quotas reach the rates within a tenth, alone and several of each together.

Real rates need undisturbed processor time, so these are long runs. `tests/simulation/test_quotas.py` shows the same for
our clients in virtual time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer as PythonProducer

from tests.support.broker_process import BrokerProcess
from triokafka.blocking import KafkaProducer
from triokafka.cli.app import run

LIMIT: Final = 400_000
"""Bytes per second, for all clients of a library together."""
VALUE: Final = b"x" * 8_000
WARM_UP: Final = 5.0
MEASURED: Final = 6.0
Acknowledged = Callable[..., None]


class Count:
    """Counts acknowledged bytes from all threads."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, *_: object) -> None:
        with self._lock:
            self.bytes += len(VALUE)


@contextmanager
def repeated(work: Callable[[], object]) -> Iterator[None]:
    """Repeat the work in a thread until the block ends."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def librdkafka(bootstrap: str, acknowledged: Acknowledged) -> Iterator[None]:
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "client.id": "librdkafka", "linger.ms": 0, "batch.size": 16_384,
         "queue.buffering.max.messages": 20}
    )  # fmt: skip

    def work() -> None:
        try:
            producer.produce("t", VALUE, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.1)

    with repeated(work):
        yield
    producer.purge()
    producer.flush(30)


@contextmanager
def kafka_python(bootstrap: str, acknowledged: Acknowledged) -> Iterator[None]:
    # Large batches, one after the other: with small ones, a busy machine responds too slowly to reach the limit.
    producer = PythonProducer(bootstrap_servers=bootstrap, client_id="kafka-python", batch_size=65_536, linger_ms=0)
    room = threading.Semaphore(8)  # the client has no bound of its own

    def done(*_: object) -> None:
        acknowledged()
        room.release()

    def work() -> None:
        if room.acquire(timeout=0.1):
            producer.send("t", VALUE).add_callback(done)

    with repeated(work):
        yield
    producer.close(timeout=30)


@contextmanager
def ours(bootstrap: str, acknowledged: Acknowledged) -> Iterator[None]:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, client_id="ours", batch_size=16_384, buffer_memory=65_536, max_block_ms=60_000
    )
    with repeated(lambda: producer.send("t", VALUE).add_callback(acknowledged)):
        yield
    producer.close(timeout=30)


CLIENTS: Final = {"librdkafka": librdkafka, "kafka-python": kafka_python, "ours": ours}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """Run a broker with short quota windows, so that the first burst ends soon."""
    process = BrokerProcess(None, settings={"quota.window.num": "3"})
    bootstrap = process.start()
    assert run(["topics", "create", "t", "--config", "retention.bytes=1000000", "-b", bootstrap]) == 0
    yield bootstrap
    assert process.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("libraries", "clients"),
    [
        pytest.param(tuple(CLIENTS), 1, id="one-of-each"),
        *(pytest.param((library,), count, id=f"{library}-{count}") for library in CLIENTS for count in (1, 10, 100)),
    ],
)
def test_producers_reach_their_quota_together(broker: str, libraries: tuple[str, ...], clients: int) -> None:
    counts = {library: Count() for library in libraries}
    with ExitStack() as stack:
        for library in libraries:
            quota = ["quotas", "alter", "--client", library, "-b", broker]
            assert run([*quota, "--producer-byte-rate", str(LIMIT)]) == 0
            stack.callback(run, [*quota, "--remove", "all"])
            for _ in range(clients):
                stack.enter_context(CLIENTS[library](broker, counts[library].add))
        time.sleep(WARM_UP if clients == 1 else 3 * WARM_UP)
        before, began_at = {library: count.bytes for library, count in counts.items()}, time.monotonic()
        time.sleep(MEASURED)
        seconds = time.monotonic() - began_at
        rates = {library: (count.bytes - before[library]) / seconds for library, count in counts.items()}
        undisturbed(broker)
        for library in libraries:  # so that the clients end soon
            assert run(["quotas", "alter", "--client", library, "-b", broker, "--remove", "all"]) == 0
    assert all(0.9 * LIMIT <= rate <= 1.1 * LIMIT for rate in rates.values()), rates


def undisturbed(bootstrap: str) -> None:
    """Check that a client without a quota is not throttled beside the throttled ones."""
    with KafkaProducer(bootstrap_servers=bootstrap, client_id="free") as producer:
        for _ in range(5):
            producer.send("t", VALUE).get(timeout=30)
        metrics = producer.metrics()
        assert metrics is not None
        assert metrics["producer-metrics"]["produce-throttle-time-max"] == 0.0
