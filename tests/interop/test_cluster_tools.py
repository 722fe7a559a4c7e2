"""``triokafka reassign``, ``leader-election``, ``features``, ``log dirs``, ``topics describe`` and ``mirror`` on a
cluster of Apache Kafka.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.kafka_cluster import TIMEOUT, KafkaCluster, kafka_cluster
from tests.support.broker_process import broker_process
from tests.support.tool import Tool
from triokafka.cli.app import run

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def tool(kafka: KafkaCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return Tool(kafka.bootstrap, capfdbinary, monkeypatch)


def test_partitions_move_with_a_throttle_that_ends_with_the_move(tool: Tool, tmp_path: Path) -> None:
    tool.ok("topics", "create", "moves", "--replica-assignment", "1:2,2:3")
    tool("produce", "moves", stdin="a\nb\nc\n")
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "moves"}]}')
    command = ("reassign", "generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    generated = json.loads(tool.ok(*command, "--json"))
    assert [entry["replicas"] for entry in generated["current"]["partitions"]] == [[1, 2], [2, 3]]
    plan.write_text(json.dumps(generated["proposed"]))
    executed = tool.ok("reassign", "execute", "--reassignment-json-file", str(plan), "--throttle", "10000000")
    assert "The inter-broker throttle limit was set to 10000000 B/s" in executed
    deadline = time.monotonic() + TIMEOUT
    while "in progress" in (verified := tool.ok("reassign", "verify", "--reassignment-json-file", str(plan))):
        assert time.monotonic() < deadline, verified
    assert (
        "Reassignment of partition moves-0 is completed." in verified and "Clearing topic-level throttles" in verified
    )
    described = json.loads(tool.ok("topics", "describe", "moves", "--json"))[0]
    assert not any(name.endswith("throttled.replicas") for name in described["configs"])
    assert all(set(partition["replicas"]) == {2, 3} for partition in described["partitions"])


def test_preferred_leader_is_elected_and_reports_show_missing_replicas(tool: Tool, kafka: KafkaCluster) -> None:
    tool.ok("topics", "create", "led", "--replica-assignment", "2:3:1")
    node = kafka.nodes[1]
    node.end(signal.SIGTERM)
    deadline = time.monotonic() + TIMEOUT
    while "led\tPartition: 0" not in tool.ok("topics", "describe", "led", "--under-replicated-partitions"):
        assert time.monotonic() < deadline
    assert "led\tPartition: 0" in tool.ok("topics", "describe", "led", "--at-min-isr-partitions")
    done = tool("leader-election", "--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert done.status == 1 and "led-0" in done.err
    node.start()
    node.wait_until_listening()
    while tool.ok("topics", "describe", "led", "--under-replicated-partitions"):
        assert time.monotonic() < deadline + TIMEOUT
    elected = tool.ok("leader-election", "--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert elected == "Successfully completed leader election (PREFERRED) for partitions led-0\n"


def test_features_and_directories_are_described(tool: Tool) -> None:
    assert "Feature: metadata.version\tSupportedMinVersion: 3.3-IV3\t" in tool.ok("features", "describe")
    assert "can be upgraded" in tool.ok("features", "upgrade", "--release-version", "4.3", "--dry-run")
    done = tool("features", "downgrade", "--metadata", "3.9", "--dry-run")
    assert done.status == 1 and "Could not downgrade metadata.version to 21." in done.err
    brokers = json.loads(tool.ok("log", "dirs", "--json"))["brokers"]
    assert [broker["broker"] for broker in brokers] == [1, 2, 3]


def test_mirror_reports_that_an_unclean_leader_lacks_mirrored_records(
    tool: Tool, kafka: KafkaCluster, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This test is the last one: a node stays down.

    The log of the other replica becomes longer than the mirrored one.
    """

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 2 * TIMEOUT
        while text not in (described := tool("topics", "describe", "torn").out):
            assert time.monotonic() < deadline, described

    configs = ("--config", "unclean.leader.election.enable=true", "--config", "min.insync.replicas=1")
    tool.ok("topics", "create", "torn", "--replica-assignment", "1:2", *configs)
    tool.ok("produce", "torn", stdin="".join(f"both {number}\n" for number in range(10)))
    kafka.nodes[1].end(signal.SIGKILL)
    wait_for("Isr: 1\t")
    tool.ok("produce", "torn", stdin="".join(f"lost {number}\n" for number in range(5)))
    with broker_process() as east:
        sides = ("--source", kafka.bootstrap, "--target", east, "--source-alias", "west", "--topics", "torn")
        mirror = (*sides, "--offset-syncs", "target", "--once", "--json")
        ran = Tool(east, capfdbinary, monkeypatch)
        assert run(["mirror", "run", *mirror]) == 0
        kafka.nodes[0].end(signal.SIGKILL)
        kafka.nodes[1].start()
        kafka.nodes[1].wait_until_listening()
        wait_for("Leader: 2\t")
        tool.ok("produce", "torn", stdin="".join(f"other {number}\n" for number in range(8)))
        assert run(["mirror", "run", *mirror]) == 0
        status = json.loads(capfdbinary.readouterr().out.decode().splitlines()[-1])
        copied = ran.ok("consume", "west.torn", "--from-beginning", "--until-end").splitlines()
    assert copied == [
        f"{name} {number}" for name, count in (("both", 10), ("lost", 5), ("other", 8)) for number in range(count)
    ]
    assert (status["truncated"], status["lag"]) == (5, 0)
