"""``triokafka perf produce``: the run itself, and its final report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from benchmarks.clients.brokers import sink_broker
from benchmarks.clients.catalogue import PRODUCERS
from benchmarks.clients.comparison import compare
from benchmarks.clients.job import Job, Latency, Stall, Throughput
from benchmarks.clients.process import measure
from tests.support.command_output import next_line
from triokafka.cli.load.brokers import MeasurementError
from triokafka.cli.load.load_run import Api, Load, LoadRun, LoadSummary
from triokafka.cli.load.payloads import Numbers, bytes_of, json_values
from triokafka.testing import running_broker

COMMAND = [sys.executable, "-m", "triokafka", "perf", "produce"]


def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)


def one_line(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert "Traceback" not in done.stderr
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr.strip().splitlines()[-1]


def test_numbers_are_sent_and_metrics_printed() -> None:
    done = perf("--num-records", "100", "--payload-monotonic", "--print-metrics", "-X", "client.id=p")
    assert (done.returncode, "Metric Name" in done.stdout) == (0, True), done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "metrics:record-send-total:{client-id=p}" in line]
    assert line.split()[-1] == "100.000"
    one_line(perf("--payload-monotonic", "--record-size", "5"), 2, "exclude each other")


async def run_load(load: Load, bootstrap: str, reports: list[str], **options: object) -> LoadSummary:
    with trio.fail_after(60):
        return await LoadRun(load, {"bootstrap_servers": bootstrap, **options}, reports.append).perform()


@pytest.mark.parametrize("api", ["send", "send-many", "bound"])
@pytest.mark.parametrize("rate", [None, 20_000.0])
async def test_every_record_is_sent_and_acknowledged(api: Api, rate: float | None) -> None:
    async with running_broker() as broker:
        load = Load("t", json_values(50), 3_000, api, rate)
        summary = await run_load(load, broker.bootstrap_servers, [])
    assert (summary.sent, summary.acknowledged, summary.failed) == (3_000, 3_000, 0)
    assert summary.latency.measured > 0
    assert 0 < summary.latency.p50 <= summary.latency.worst
    assert not summary.interrupted


@pytest.mark.parametrize("count", [1, 10, 11, 1_234])
def test_numbers_are_texts_in_order_and_their_bytes_are_known(count: int) -> None:
    numbers = Numbers(2_000)
    texts = [str(number).encode() for number in range(count)]
    assert (list(numbers[:count]), numbers[count - 1], bytes_of(numbers, count)) == (
        texts, texts[-1], sum(map(len, texts))
    )  # fmt: skip


@pytest.mark.parametrize(("api", "records"), [("send", 20), ("send-many", 2_000), ("bound", 20)])
async def test_records_of_transactions_are_committed(api: Api, records: int) -> None:
    async with running_broker() as broker:
        address = broker.bootstrap_servers
        load = Load("t", json_values(50), records, api, transaction_seconds=0.0)
        summary = await run_load(load, address, [], transactional_id="load")
        assert (summary.sent, summary.acknowledged, summary.failed) == (records, records, 0)
        options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with triokafka.Consumer("t", bootstrap_servers=address, **options) as consumer:
            with trio.fail_after(60):
                read = 0
                while read < records:
                    read += sum(map(len, (await consumer.poll(timeout_ms=1_000)).values()))
            ends = await consumer.end_offsets(list(consumer.assignment()))
    assert sum(ends.values()) > records + len(ends), "one transaction only"


async def test_interrupt_ends_the_run_with_a_summary_of_acknowledged_records() -> None:
    def interrupt(_line: str) -> None:
        signal.raise_signal(signal.SIGINT)

    async with running_broker() as broker:
        load = Load("t", json_values(50), 1_000_000, "send", 1_000.0, progress_seconds=0.1)
        options = {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 0}
        with trio.fail_after(60):
            summary = await LoadRun(load, options, interrupt).perform()
    assert summary.interrupted
    assert 0 < summary.acknowledged <= summary.sent < 1_000_000


async def test_progress_is_printed_also_without_acknowledgements() -> None:
    async with running_broker() as broker:
        reports: list[str] = []

        def stop(line: str) -> None:
            reports.append(line)
            signal.raise_signal(signal.SIGINT)

        # No batch fills up, and none lingers out.
        load = Load("t", json_values(50), 1_000_000, "send", 100.0, progress_seconds=0.2)
        options = {"bootstrap_servers": broker.bootstrap_servers, "linger_ms": 10_000, "close_timeout_ms": 5_000}
        with trio.fail_after(60):
            await LoadRun(load, options, stop).perform()
    assert "none for" in reports[0]
    assert " pending" in reports[0]


async def test_failed_records_are_counted_and_the_first_error_is_reported() -> None:
    async with running_broker(message_max_bytes=200) as broker:
        summary = await run_load(Load("t", json_values(1000), 20), broker.bootstrap_servers, [])
    assert summary.acknowledged == 0
    assert summary.failed == 20
    assert summary.first_error


def test_without_arguments_the_command_measures_against_a_sink_and_reports_it() -> None:
    done = perf("--num-records", "5000", "--json")
    assert done.returncode == 0, done.stderr
    assert "only acknowledges" in done.stderr
    result = json.loads(done.stdout)
    assert result["acknowledged"] == 5000
    assert result["latency"]["measured"] == 5000


def test_a_payload_file_and_other_options_reach_the_broker(tmp_path: Path) -> None:
    payload, config = tmp_path / "payload", tmp_path / "producer.properties"
    payload.write_text("one|two")
    config.write_text("acks=1\nenable.idempotence=false\n")
    done = perf(
        *("--against", "memory", "--payload-file", str(payload), "--num-records", "10", "--api", "bound"),
        *("--payload-delimiter", "|", "-X", "request.timeout.ms=5000", "--command-config", str(config)),
    )
    assert done.returncode == 0, done.stderr
    assert "10 records acknowledged" in done.stdout
    assert "keeps all records in memory" in done.stderr


def test_options_of_a_file_precede_the_defaults_of_the_command_only(tmp_path: Path) -> None:
    config = tmp_path / "producer.properties"
    config.write_text("acks=1\nenable.idempotence=true\nbatch.size=1000\n")
    file = ("--command-config", str(config))
    one_line(perf(*file), 2, "enable_idempotence", "acks")
    one_line(perf(*file, "--acks", "all", "-X", "no.such=1"), 2, "no_such")


def test_an_unreachable_broker_is_one_line() -> None:
    done = perf("--bootstrap-server", "127.0.0.1:1", "--topic", "t", "-X", "max_block_ms=500")
    one_line(done, 1, "127.0.0.1:1", "refused")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-X", "liner_ms=3"), ("liner_ms", "linger_ms")),
        (("--linger-ms", "2", "-X", "linger.ms=3"), ("linger_ms", "--help")),
        (("-X", "bootstrap.servers=h:1"), ("bootstrap_servers", "--help")),
        (("-X", "nonsense"), ("NAME=VALUE",)),
        (("-X", "request_timeout_ms=soon"), ("request_timeout_ms", "number")),
        (("-X", "acks=1", "-X", "enable_idempotence=true"), ("enable_idempotence", "acks")),
        (("--acks", "1", "-X", "enable_idempotence=true"), ("enable_idempotence", "acks")),
        (("--bootstrap-server", "127.0.0.1:1"), ("--topic",)),
        (("--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--against", "sink"), ("--against",)),
        (("--throughput", "0"), ("--throughput",)),
        (("--record-size", "5", "--payload-file", "x"), ("exclude",)),
        (("--payload-file", "/no/such/file"), ("/no/such/file: No such file",)),
        (("--record-size", "99999999999"), ("--record-size", "104857600")),
        (("--compare", "-X", "retries=3"), ("--compare",)),
        (("--transactional-id", "x"), ("--against memory",)),
        (("--compare", "--against", "memory", "--transaction-duration-ms", "5"), ("--compare", "--transactional-id")),
        (("--compare", "--payload-delimiter", ";"), ("--compare", "--payload-delimiter")),
        (("--payload-delimiter", "", "--payload-file", __file__), ("--payload-delimiter",)),
        (("--trougput", "5"), ("--throughput",)),
    ],
)
def test_wrong_flags_are_one_line(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    one_line(perf(*arguments), 2, *words)


def test_an_interrupted_command_exits_with_130() -> None:
    process = subprocess.Popen(
        [*COMMAND, "--throughput", "100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert "only acknowledges" in next_line(process.stderr)
        process.send_signal(signal.SIGINT)
        _, error_output = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "Traceback" not in error_output


def test_the_comparison_prints_ratios_of_all_installed_clients() -> None:
    done = perf("--compare", "--rounds", "1", "--num-records", "3000")
    assert done.returncode == 0, done.stderr
    for other in ("confluent produce", "aiokafka send", "kafka-python send"):
        assert f"triokafka send and {other}:" in done.stdout


@pytest.mark.parametrize("client", PRODUCERS)
def test_every_client_sends_the_same_records(client: str) -> None:
    with sink_broker(check_everything=True) as broker:
        job = Job(broker.bootstrap, "t", 2_000, 100, "none")
        result = measure("throughput", client, job)
        assert isinstance(result, Throughput)
        assert result.sent == broker.received("t") == 2_001
        broker.check("t", "none")


@pytest.mark.parametrize("client", ["triokafka send", "confluent produce", "aiokafka send", "kafka-python send"])
def test_every_client_is_measured_at_a_rate_and_when_memory_counts(client: str) -> None:
    with sink_broker() as broker:
        job = Job(broker.bootstrap, "t", 200, 100, "none", linger_ms=0, rate=2_000)
        late = measure("latency", client, job)
        assert isinstance(late, Latency)
        assert late.sent == broker.received("t") == 201
        stalled = measure("stall", client, job._replace(topic="s", seconds=0.2))
        assert isinstance(stalled, Stall)
        assert stalled.sent == broker.received("s")


def test_a_client_that_compresses_less_than_it_reports_fails() -> None:
    with sink_broker() as broker:
        measure("throughput", "triokafka send", Job(broker.bootstrap, "t", 2_000, 100, "none"))
        with pytest.raises(MeasurementError, match="were not sent with lz4"):
            broker.check("t", "lz4")


def test_records_that_differ_from_the_sent_ones_fail_the_comparison() -> None:
    class Forgetful:
        def __init__(self, bootstrap: str) -> None:
            self.bootstrap, self.pid = bootstrap, 0

        def received(self, topic: str, partition: int = 0) -> int:
            return 0

        def check(self, topic: str, compression: str) -> None:
            raise AssertionError("not asked")

        def forget(self, topic: str) -> None:
            raise AssertionError("not asked")

    with sink_broker() as broker:
        job = Job(broker.bootstrap, "t", 1_000, 100, "none")
        with pytest.raises(MeasurementError, match="sent 1001 records, but the broker has 0"):
            compare(["triokafka send"], job, Forgetful(broker.bootstrap), rounds=1, say=lambda line: None)


def test_a_failing_client_is_named_with_its_last_output() -> None:
    with pytest.raises(MeasurementError, match=r"^triokafka send: .*compression_type"):
        measure("throughput", "triokafka send", Job("127.0.0.1:1", "t", 10, 10, "nonsense"))


def test_comparison_without_the_repository_is_refused_in_one_line(tmp_path: Path) -> None:
    """The wheel does not include the drivers of other clients."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "triokafka").symlink_to(Path(triokafka.__file__).parent)
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r}); from triokafka.cli import main;"
        " sys.argv[1:] = ['perf', 'produce', '--compare']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    one_line(done, 2, "--compare needs a checkout", "drivers of the other clients")
