"""Apache Kafka's own command line tools, on a cluster of three of our nodes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster

pytestmark = pytest.mark.interop

TOPIC = "tools"
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with mixed_cluster(tmp_path_factory.mktemp("tools"), [Member(number) for number in (1, 2, 3)]) as running:
        running.create_topic(TOPIC, PARTITIONS)
        yield running


def test_metadata_quorum_describes_three_voters(cluster: MixedCluster) -> None:
    where = ("--bootstrap-controller", cluster.bootstrap_controllers.split(",")[0])
    status = cluster.tool("MetadataQuorumCommand", *where, "describe", "--status")
    found = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
    assert int(found["LeaderId"]) in cluster.nodes
    assert int(found["LeaderEpoch"]) > 0 and int(found["HighWatermark"]) > 0
    voters = {entry["id"] for entry in json.loads(found["CurrentVoters"])}
    assert voters == {1, 2, 3}

    replication = cluster.tool("MetadataQuorumCommand", *where, "describe", "--replication")
    roles = [line.split()[-1] for line in replication.splitlines()[1:] if line.strip()]
    assert sorted(roles) == ["Follower", "Follower", "Leader"]

    through_a_broker = cluster.tool(
        "MetadataQuorumCommand", "--bootstrap-server", cluster.bootstrap, "describe", "--status"
    )
    assert "LeaderId:" in through_a_broker


def test_topics_are_described_created_and_deleted(cluster: MixedCluster) -> None:
    described = cluster.tool("TopicCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", TOPIC)
    rows = [line for line in described.splitlines() if "Partition:" in line]
    assert len(rows) == PARTITIONS
    for row in rows:
        replicas = set(re.search(r"Replicas:\s*([\d,]+)", row)[1].split(","))  # type: ignore[index]
        assert replicas == {"1", "2", "3"}
    assert not _partitions(cluster, "--under-replicated-partitions")
    assert not _partitions(cluster, "--unavailable-partitions")
    cluster.tool(
        *("TopicCommand", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "short-lived"),
        *("--partitions", "2", "--replication-factor", "3"),
    )
    cluster.tool("TopicCommand", "--bootstrap-server", cluster.bootstrap, "--delete", "--topic", "short-lived")


def _partitions(cluster: MixedCluster, which: str) -> list[str]:
    found = cluster.tool("TopicCommand", "--bootstrap-server", cluster.bootstrap, "--describe", which)
    return [line for line in found.splitlines() if "Partition:" in line]


def test_preferred_leaders_are_elected(cluster: MixedCluster) -> None:
    cluster.create_topic("elections", 1)
    [leader] = cluster.leaders("elections")
    cluster.nodes[leader].restart()
    cluster.wait_until_in_sync("elections")
    command = ("LeaderElectionCommand", "--bootstrap-server", cluster.bootstrap, "--election-type", "preferred")
    deadline = time.monotonic() + TIMEOUT
    # The in-sync set that the wait saw may be from before the restart.
    while "Error" in (found := cluster.tool(*command, "--topic", "elections", "--partition", "0", check=False)):
        assert time.monotonic() < deadline, found
    assert "elections-0" in found
    assert cluster.leaders("elections") == [leader]


def test_partitions_are_reassigned(cluster: MixedCluster, tmp_path: Path) -> None:
    cluster.create_topic("moving", 1, 1)
    [leader] = cluster.leaders("moving")
    target = leader % 3 + 1
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "moving", "partition": 0, "replicas": [target]}]})
    )
    arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    assert "Successfully started" in cluster.tool(command, *arguments, "--execute")
    for _ in range(30):
        verified = cluster.tool(command, *arguments, "--verify")
        if "is completed" in verified:
            break
    assert "Reassignment of partition moving-0 is completed." in verified
    assert cluster.leaders("moving") == [target]


def test_features_are_described(cluster: MixedCluster) -> None:
    described = cluster.tool("FeatureCommand", "--bootstrap-server", cluster.bootstrap, "describe")
    assert re.search(r"Feature: metadata.version.*FinalizedVersionLevel: 4\.\d", described)
    by_controller = cluster.tool(
        "FeatureCommand", "--bootstrap-controller", cluster.bootstrap_controllers.split(",")[0], "describe"
    )
    assert "Feature: kraft.version" in by_controller


def test_log_directories_are_described(cluster: MixedCluster) -> None:
    described = cluster.tool("LogDirsCommand", "--bootstrap-server", cluster.bootstrap, "--describe")
    document = json.loads(next(line for line in described.splitlines() if line.startswith("{")))
    assert {broker["broker"] for broker in document["brokers"]} == {1, 2, 3}
    for broker in document["brokers"]:
        [directory] = broker["logDirs"]
        assert directory["error"] is None
        assert {f"{TOPIC}-{number}" for number in range(PARTITIONS)} <= {
            one["partition"] for one in directory["partitions"]
        }


def test_every_broker_answers_with_its_versions(cluster: MixedCluster) -> None:
    answered = cluster.tool("BrokerApiVersionsCommand", "--bootstrap-server", cluster.bootstrap)
    for node in cluster.brokers:
        assert f"(id: {node.number} rack: null" in answered
    assert "UNSUPPORTED" not in next(line for line in answered.splitlines() if "Produce(0)" in line)


def test_our_data_directory_is_described_by_the_storage_tool(cluster: MixedCluster) -> None:
    node = cluster.nodes[1]
    said = cluster.tool("kafka.tools.StorageTool", "info", "-c", str(node.config), check=False)
    assert "node.id=1" in said and "version=1" in said
