"""Kafka's own tools on a cluster of three of our nodes, through brokers and through controllers (KIP-919)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.interop import jvm
from triokafka.cli.cluster.free_ports import free_ports

pytestmark = pytest.mark.interop

_TRIOKAFKA = (sys.executable, "-m", "triokafka")
_STOP_SECONDS = 60


class Cluster(NamedTuple):
    """The addresses of three nodes, by role."""

    brokers: list[str]
    controllers: list[str]
    cluster_id: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run three nodes with both roles and static voters, each in its own process."""
    jvm.require("mvn", "java")
    directory = tmp_path_factory.mktemp("cluster")
    ports = free_ports(6)
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
    voters = ",".join(f"{number}@127.0.0.1:{ports[number + 2]}" for number in (1, 2, 3))
    running = []
    for number in (1, 2, 3):
        path = directory / f"node{number}.properties"
        path.write_text(
            "process.roles=broker,controller\n"
            f"node.id={number}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{ports[number - 1]},CONTROLLER://127.0.0.1:{ports[number + 2]}\n"
            "controller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"controller.quorum.voters={voters}\n"
            f"log.dirs={directory}/data{number}\n"
        )
        subprocess.run([*_TRIOKAFKA, "storage", "format", "-t", cluster_id, "-c", str(path)], check=True)
        running.append(
            subprocess.Popen([*_TRIOKAFKA, "broker", "--config", str(path)], stdout=subprocess.PIPE, text=True)
        )
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
        yield Cluster(
            [f"127.0.0.1:{port}" for port in ports[:3]], [f"127.0.0.1:{port}" for port in ports[3:]], cluster_id
        )
        for process in running:
            process.terminate()
        assert [process.wait(_STOP_SECONDS) for process in running] == [0, 0, 0]
    finally:
        for process in running:
            process.kill()
            process.wait()


def kafka_tool(name: str, *words: str) -> str:
    """Run one of Kafka's tools and return its output."""
    classes = os.path.join(jvm.jars(), "*")
    command = ["java", "-cp", classes, f"org.apache.kafka.tools.{name}", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize("role", ["brokers", "controllers"])
def test_metadata_quorum_tool_shows_one_leader_and_no_lag(cluster: Cluster, role: str) -> None:
    option = "--bootstrap-server" if role == "brokers" else "--bootstrap-controller"
    for address in getattr(cluster, role):
        status = kafka_tool("MetadataQuorumCommand", option, address, "describe", "--status")
        assert re.search(rf"ClusterId: +{cluster.cluster_id}", status), status
        assert re.search(r"LeaderId: +[123]\n", status), status
        shown = kafka_tool("MetadataQuorumCommand", option, address, "describe", "--replication")
        assert len(re.findall(r"\tLeader", shown)) == 1, shown
        assert len(re.findall(r"\tFollower", shown)) == 2, shown


def test_features_tool_reaches_a_controller(cluster: Cluster) -> None:
    shown = kafka_tool("FeatureCommand", "--bootstrap-controller", cluster.controllers[2], "describe")
    assert re.search(r"Feature: metadata.version\s.*FinalizedVersionLevel: 4.0-IV3", shown), shown


def test_cluster_tool_lists_controllers_and_brokers(cluster: Cluster) -> None:
    shown = kafka_tool("ClusterTool", "list-endpoints", "--bootstrap-controller", cluster.controllers[0])
    assert len(re.findall(r"127\.0\.0\.1 .*controller", shown)) == 3, shown
    shown = kafka_tool("ClusterTool", "list-endpoints", "--bootstrap-server", cluster.brokers[0])
    assert len(re.findall(r"127\.0\.0\.1 .*broker", shown)) == 3, shown


def test_topics_tool_creates_a_replicated_topic_through_any_broker(cluster: Cluster) -> None:
    for number, address in enumerate(cluster.brokers):
        create = ("--create", "--topic", f"topic-{number}", "--partitions", "3", "--replication-factor", "3")
        assert f"Created topic topic-{number}." in kafka_tool("TopicCommand", "--bootstrap-server", address, *create)
    shown = kafka_tool("TopicCommand", "--bootstrap-server", cluster.brokers[0], "--describe", "--topic", "topic-2")
    assert len(re.findall(r"Leader: [123]\s", shown)) == 3, shown
