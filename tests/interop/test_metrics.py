"""The metrics library and the lists of metrics, compared with Apache Kafka's."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio

import triokafka
from tests.interop import jvm
from tests.support.broker_process import BrokerProcess
from tests.support.metric_scripts import scripts
from triokafka.client.admin import ConfigResource
from triokafka.testing import running_broker

DATA = Path(__file__).parents[1] / "data"

pytestmark = pytest.mark.interop


def test_the_values_in_the_data_file_equal_kafkas() -> None:
    """``tests/data/metric_statistics.jsonl`` is the output of ``MetricStatistics``: generate it again and compare."""
    done = subprocess.run(
        ["java", *jvm.QUICK_START, "-cp", jvm.compiled(), "MetricStatistics"],
        input="".join(f"{line}\n" for line in scripts()),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (DATA / "metric_statistics.jsonl").read_text()


def pushed_names(text: str, client_id: str) -> dict[str, float]:
    """Return the last value of each metric that a receiver of Apache Kafka printed."""
    lines = [line.split() for line in text.splitlines() if line.startswith(f"PUSHED {client_id} ")]
    return {name: float(value) for _, _, _, name, value in lines}


def log_of(directory: Path) -> str:
    """Return the output of a node of Apache Kafka."""
    return (directory / "server.log").read_text(encoding="utf-8", errors="replace")


async def test_java_producer_pushes_to_our_broker() -> None:
    async with running_broker() as broker:
        address = broker.bootstrap_servers
        async with triokafka.AdminClient(bootstrap_servers=address) as admin:
            wanted = {"metrics": "*", "interval.ms": "500", "match": "client_software_name=apache-kafka-java"}
            await admin.incremental_alter_configs({ConfigResource.client_metrics("all"): wanted})
        sent = int(await trio.to_thread.run_sync(jvm.run_java, "PushingProducer", address, "orders", "6"))
        samples = [one for one in broker.broker.metrics() if one.tags.get("client_id") == "java"]
        values = {one.name.removeprefix("kafka_client:type="): one.value for one in samples}
        assert 0 < values["producer.record.send.total"] <= sent  # an idle Java producer closes without a last push
        assert values["producer.connection.creation.total"] >= 1
        (instance,) = broker.broker.dispatcher.services.telemetry.instances.values()
        assert instance.facts.client_software_name == "apache-kafka-java"


async def test_our_producer_pushes_to_apache_kafka(tmp_path: Path) -> None:
    """A plug-in receives the metrics, and decodes them with Kafka's own OpenTelemetry classes."""
    jvm.compiled()
    with jvm.apache_kafka(tmp_path, class_path=str(jvm.CLASSES), metric_reporters="TelemetryReceiver") as address:
        async with triokafka.AdminClient(bootstrap_servers=address) as admin:
            wanted = {"metrics": "org.apache.kafka.producer.", "interval.ms": "300", "match": "client_id=ours"}
            await admin.incremental_alter_configs({ConfigResource.client_metrics("all"): wanted})
            await admin.create_topics(["orders"])
        async with triokafka.Producer(bootstrap_servers=address, client_id="ours", compression_type="zstd") as producer:
            for _ in range(20):
                await (await producer.send("orders", b"x"))
            with trio.fail_after(60):
                while "PUSHED ours false" not in log_of(tmp_path):
                    await trio.sleep(0.2)
        with trio.fail_after(60):
            while "PUSHED ours true" not in log_of(tmp_path):
                await trio.sleep(0.2)
        text = log_of(tmp_path)
        sends = [line.split() for line in text.splitlines() if ".producer.record.send.total " in line]
        assert sum(float(words[-1]) for words in sends if words[1] == "ours") == 20
        assert "org.apache.kafka.producer.request.latency.avg" in pushed_names(text, "ours")
        assert "unreadable" not in text


def test_kafkas_tool_and_ours_print_the_same() -> None:
    """``kafka-client-metrics`` and ``triokafka client-metrics``, on our broker."""
    process = BrokerProcess(None)
    address = process.start()
    try:
        theirs = partial(jvm.run_java, "org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", address)
        changed = ("--metrics", "org.apache.kafka.", "--interval", "5000", "--match", "client_id=a.*")
        output = theirs("--alter", "--name", "theirs", *changed)
        assert ours(address, "alter", "--name", "ours", *changed) == output.replace("theirs", "ours")
        assert ours(address, "list").split() == sorted(theirs("--list").split()) == ["ours", "theirs"]
        described = theirs("--describe", "--name", "theirs")
        assert ours(address, "describe", "--name", "theirs") == described
        assert ours(address, "describe", "--name", "ours") == described.replace("theirs", "ours")
        assert ours(address, "describe", "--name", "absent") == theirs("--describe", "--name", "absent")
        assert ours(address, "delete", "--name", "theirs") == theirs("--delete", "--name", "ours").replace(
            "ours", "theirs"
        )
        assert ours(address, "list") == ""
    finally:
        process.stop()


def ours(address: str, command: str, *options: str) -> str:
    """Return the output of ``triokafka client-metrics``."""
    words = [sys.executable, "-m", "triokafka", "client-metrics", command, *options, "--bootstrap-server", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
