"""``triokafka perf consume``: the run itself, and its final report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import triokafka
from triokafka.cli.app import run
from triokafka.cli.load.read_run import Reading, ReadRun, ReadSummary, Window
from triokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from triokafka.testing import running_broker

COMMAND = [sys.executable, "-m", "triokafka", "perf", "consume"]
KEY, VALUE = b"key", b"some value"


def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)


async def fill(bootstrap: str, records: int, *, topic: str = "t") -> None:
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(records):
            await producer.send(topic, VALUE, key=KEY)
        await producer.send(topic, None)


async def read(reading: Reading, bootstrap: str, windows: list[Window], **options: object) -> ReadSummary:
    settings = {"bootstrap_servers": bootstrap, "group_id": "g", "enable_auto_commit": False, **options}
    with trio.fail_after(60):
        return await ReadRun(reading, settings, windows.append).perform()


@pytest.mark.parametrize("api", ["poll", "arrow"])
async def test_bytes_of_keys_and_values_are_counted_and_nulls_count_zero(api: str) -> None:
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 1_000)
        summary = await read(Reading("t", 1_001, api), broker.bootstrap_servers, [])  # type: ignore[arg-type]
    assert (summary.records, summary.bytes, summary.complete) == (1_001, 1_000 * (len(KEY) + len(VALUE)), True)
    assert summary.records_per_second > 0 and summary.started_at_ms <= summary.ended_at_ms


async def test_run_ends_after_exactly_the_requested_number_of_records() -> None:
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 1_000)
        assert (await read(Reading("t", 137), broker.bootstrap_servers, [])).records == 137


async def test_all_topics_that_match_are_read() -> None:
    async with running_broker() as broker:
        for topic in ("load-1", "load-2", "other"):
            await fill(broker.bootstrap_servers, 9, topic=topic)
        reading = Reading("", 20, include="load-.")
        assert (await read(reading, broker.bootstrap_servers, [], metadata_max_age_ms=100)).complete


async def test_metrics_are_printed_at_the_end() -> None:
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 9)
        words = ["--topic", "t", "--num-records", "5", "-X", "client.id=c", "--print-metrics"]
        done = await trio.to_thread.run_sync(lambda: perf("-b", broker.bootstrap_servers, *words))
        lines = done.stdout.splitlines()
        assert "Metric Name" in done.stdout and done.returncode == 0
        assert any(
            line.split() == ["consumer-fetch-manager-metrics:records-consumed-total:{client-id=c}", ":", "5.000"]
            for line in lines
        ), done.stdout


async def test_reading_starts_at_the_oldest_record_despite_commits_and_commits_nothing() -> None:
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 9)
        async with triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
            at = triokafka.TopicPartition("t", 0)
            await admin.alter_group_offsets("g", {at: 7})
            assert (await read(Reading("t", 10), broker.bootstrap_servers, [])).records == 10
            assert (await admin.list_group_offsets("g"))[at].offset == 7


async def test_time_of_joining_and_of_empty_waits_does_not_count() -> None:
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 9)
        since = trio.current_time()
        summary = await read(Reading("t", 1_000, idle_ms=1_500), broker.bootstrap_servers, [])
        elapsed = trio.current_time() - since
    assert (summary.records, summary.complete, summary.interrupted) == (10, False, False)
    assert summary.seconds <= elapsed - 1.5 - summary.join_seconds


async def test_latest_skips_earlier_records() -> None:
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 9)
        summary = await read(Reading("t", 1, from_latest=True, idle_ms=300), broker.bootstrap_servers, [])
    assert (summary.records, summary.seconds) == (0, 0.0)


async def test_topic_that_does_not_exist_is_an_error_at_once() -> None:
    async with running_broker() as broker:
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nope' does not exist"):
            await read(Reading("nope", 1), broker.bootstrap_servers, [])


async def test_member_without_a_partition_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triokafka.cli.load.read_run.JOIN_MS", 500)
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 1)
        async with triokafka.Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id="g") as other:
            while not other.assignment():
                await other.poll(timeout_ms=100)
            with pytest.raises(KafkaTimeoutError, match="does the group have other"):
                await read(Reading("t", 1), broker.bootstrap_servers, [])


async def test_every_interval_is_reported_even_without_records_and_an_interrupt_ends_the_run() -> None:
    windows: list[Window] = []

    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 9)

        def report(window: Window) -> None:
            windows.append(window)
            if window.all_records == 10 and not window.records:
                signal.raise_signal(signal.SIGINT)

        options = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
        with trio.fail_after(60):
            summary = await ReadRun(Reading("t", 1_000, interval_ms=100), options, report).perform()
    assert (summary.interrupted, summary.records) == (True, 10)
    assert sum(window.records for window in windows) == windows[-1].all_records == 10
    assert windows[-1].records == 0


def test_without_an_address_the_command_starts_and_fills_a_broker_and_reports_it() -> None:
    done = perf("--num-records", "3000", "--record-size", "50", "--json")
    assert done.returncode == 0, done.stderr
    assert "starting and filling a local broker process" in done.stderr
    result = json.loads(done.stdout)
    assert (result["records"], result["bytes"], result["complete"]) == (3_000, 150_000, True)


async def test_columns_are_those_of_kafkas_tool(tmp_path: Path) -> None:
    config = tmp_path / "consumer.properties"
    config.write_text("fetch.max.wait.ms=50\n")
    async with running_broker() as broker:
        await fill(broker.bootstrap_servers, 9)
        where = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--timeout", "3000")
        detailed = ("--show-detailed-stats", "--reporting-interval", "50", "--hide-header", "--date-format", "%Y")
        done = await trio.to_thread.run_sync(
            lambda: perf(*where, "--num-records", "10", "--csv", "--consumer.config", str(config))
        )
        header, line = done.stdout.splitlines()
        row = dict(zip(header.split(", "), line.split(", "), strict=True))
        assert (row["data.consumed.in.nMsg"], len(row["start.time"])) == ("10", len("2026-11-21 10:00:00:000"))
        done = await trio.to_thread.run_sync(lambda: perf(*where, "--num-records", "1000", *detailed))
        assert done.returncode == 1 and "only 10 of 1,000 records arrived: none for 3000 ms" in done.stderr
        windows = [line.split(", ") for line in done.stdout.splitlines()]
        assert windows and all(len(window) == 10 and len(window[0]) == 4 for window in windows)
        assert windows[-1][4] == "10" and {window[6] for window in windows[1:]} == {"0"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--bootstrap-server", "h:1"], "--bootstrap-server needs --topic NAME or --include REGEX"),
        (["--bootstrap-server", "h:1", "--topic", "t", "--include", "t"], "needs --topic NAME or --include REGEX"),
        (["--include", "t"], "--include needs --bootstrap-server"),
        (["--bootstrap-server", "h:1", "--include", "("], "'(' is not a regular expression"),
        (
            ["--bootstrap-server", "h:1", "--topic", "t", "--record-size", "5"],
            "--record-size and --bootstrap-server exclude each other",
        ),
        (["--from-latest"], "--from-latest needs --bootstrap-server"),
        (["--csv", "--json"], "exclude each other"),
        (["--num-records", "0"], "--num-records"),
        (["-X", "fetch.min.byte=1"], "did you mean 'fetch_min_bytes'"),
        (["--consumer-config", "/no/such/file"], "cannot be read"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["perf", "consume", *arguments]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert words in line


def test_unreachable_broker_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    where = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "-X", "default.api.timeout.ms=300"]
    assert run(["perf", "consume", *where]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "127.0.0.1:1" in line
