"""The programs of ``examples/`` run unchanged, with a broker started as in the documentation."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.broker_process import broker_process
from tests.support.schema_registry import schema_registry
from triokafka import AdminClient
from triokafka.blocking import KafkaAdminClient, KafkaConsumer, KafkaProducer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker_process() as address:
        yield address


def run_example(name: str, *arguments: str) -> str:
    """Return the program's output. Fails with its error output."""
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def started_example(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program; kill it at the end of the block if it still runs."""
    command = [sys.executable, "-u", str(ROOT / "examples" / name), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], start: str) -> list[str]:
    """Return the lines that the program prints, up to one that starts with the text."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith(start):
            return lines
    raise AssertionError(f"the program has ended after {lines}")


def read(bootstrap: str, topic: str, count: int, **options: Any) -> list[Any]:
    """Return the first records of a topic of one partition."""
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", **options)
    found = list(itertools.islice(consumer, count))
    consumer.close()
    return found


def test_consumer_example_reads_the_records_of_the_producer_example(bootstrap: str) -> None:
    produced = run_example("produce.py", bootstrap, "examples")
    assert "examples, partition 0, offset 0" in produced
    assert "OffsetRange(first=1, last=10000)" in produced
    consumed = run_example("consume_group.py", bootstrap, "examples", "3").splitlines()
    assert consumed[0] == "got examples-0"
    assert consumed[1] == "0 0 b'table 4' b'two coffees'"
    assert consumed[-1] == "gave up examples-0"
    (lag,) = run_example("group_lag.py", bootstrap).splitlines()
    group, topic, records = lag.split()
    assert (group, topic) == ("billing", "examples") and int(records) > 0
    *handled, committed = run_example("consume_partitions.py", bootstrap, "examples", "20").splitlines()
    assert [int(line.split()[1]) for line in handled] == list(range(20))
    assert committed == "committed 20"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("produce_backpressure.py", r"sent 5000, waited some time for buffer space\nsent \d+, dropped [1-9]\d+"),
        ("produce_fan_out.py", r"worker \d: \d+ jobs\n(.*\n)*200 results in \d+ batches"),
        ("produce_callbacks.py", r"96 delivered, 4 refused and reported in examples-produce-callbacks-refused"),
        ("produce_watched.py", r"connected to broker -1\n(.*\n)*\d+ records/s, .*\n(.*\n)*healthy: True"),
    ],
)
def test_producer_examples_print_the_expected_output(bootstrap: str, name: str, expected: str) -> None:
    topic = "examples-" + name.removesuffix(".py").replace("_", "-")
    assert re.search(expected, run_example(name, bootstrap, topic))


def test_dead_letters_have_the_reason_and_the_origin(bootstrap: str) -> None:
    topic = "examples-dead-letters"
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in (b"12", b"many", b"0", b"7"):
            producer.send(topic, value, key=b"table 4")
    output = run_example("dead_letters.py", bootstrap, topic, "4")
    assert output.splitlines() == ["handled 12", "dead letter 1", "dead letter 2", "handled 7"]
    letters = read(bootstrap, f"{topic}-dead-letters", 2)
    assert [(letter.key, letter.value, dict(letter.headers)) for letter in letters] == [
        (b"table 4", b"many", {
            "error": b"InvalidOrderError: b'many' is no amount", "tries": b"1", "origin": f"{topic}-0@1".encode()
        }),
        (b"table 4", b"0", {
            "error": b"ValueError: nobody pays nothing", "tries": b"3", "origin": f"{topic}-0@2".encode()
        }),
    ]  # fmt: skip


def test_service_that_gets_sigterm_finishes_commits_and_sends(bootstrap: str) -> None:
    topic = "examples-shutdown"
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"order %d" % number)
    with started_example("graceful_shutdown.py", bootstrap, topic) as process:
        lines_until(process, "handled 2")
        process.send_signal(signal.SIGTERM)
        assert lines_until(process, "3 orders")[-1] == "3 orders handled, receipts sent, group left"
        assert process.wait(60) == 0
    receipts = read(bootstrap, f"{topic}-receipts", 3)
    assert [receipt.value for receipt in receipts] == [b"thanks for order %d" % number for number in range(3)]
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    assert [position.offset for position in admin.list_group_offsets("receipts")["receipts"].values()] == [3]
    admin.close()


async def removed_members(bootstrap: str, group_id: str) -> None:
    """Remove members that were killed: their sessions would expire only after 45 s."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.remove_all_group_members(group_id)


def test_transactional_loop_that_is_killed_bills_every_order_once(bootstrap: str) -> None:
    orders, invoices = "examples-loop-orders", "examples-loop-invoices"
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(20):
            producer.send(orders, b"%d" % number)
            if number in (9, 19):
                producer.flush()
                with started_example("transactional_loop.py", bootstrap, orders, invoices) as process:
                    lines_until(process, "billed")
                    process.kill()
                trio.run(removed_members, bootstrap, "billing-exactly-once")
    with started_example("transactional_loop.py", bootstrap, orders, invoices):
        found = read(bootstrap, invoices, 20, isolation_level="read_committed")
    assert [record.value for record in found] == [b"invoice: %d" % number for number in range(20)]


def test_spans_of_sender_and_handler_are_in_one_trace(bootstrap: str) -> None:
    *spans, _handling, handled = run_example("tracing.py", bootstrap, "examples-tracing").splitlines()
    traces = {line.split(maxsplit=1)[1]: line.split()[0] for line in (*spans, handled)}
    trace = traces["INTERNAL take order"]
    assert traces["PRODUCER create examples-tracing"] == traces["INTERNAL handle order"] == trace
    assert "CONSUMER poll examples-tracing" in traces


def test_values_written_with_a_registered_schema_are_read_back(bootstrap: str) -> None:
    with schema_registry() as registry:
        output = run_example("schema_registry.py", bootstrap, "examples-avro", registry.url).splitlines()
    assert output == [
        "schema 1 {'table': 1, 'dish': 'soup'}",
        "schema 1 {'table': 2, 'dish': 'dumplings'}",
        "schema 1 {'table': 3, 'dish': 'tea'}",
    ]


def test_asyncio_program_reads_its_own_records(bootstrap: str) -> None:
    sent, read_back = run_example("asyncio_orders.py", bootstrap, "examples-asyncio").splitlines()
    assert sent == "sent 100 to partition 0" and read_back == "read and committed 100"


def test_proxy_example_without_arguments_prints_its_usage() -> None:
    command = [sys.executable, str(ROOT / "examples" / "socks5_proxy.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (
        1, f"usage: python {command[1]} HOST:PORT PROXY_HOST PROXY_PORT [TOPIC]\n"
    )  # fmt: skip


def test_simulation_survives_the_kill_with_any_seed() -> None:
    for seed in ("7", "8"):
        assert run_example("simulation.py", seed).startswith(f"seed {seed}: all 200 records, once and in order")


def test_example_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["examples/test_with_broker.py", "examples/test_session_timeout.py", "examples/test_with_faults.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    if "fixture 'kafka_broker' not found" in done.stdout:  # without an installation there are no entry points
        command[3:3] = ["-p", "triokafka.testing.plugin"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
