"""``kafka-storage``, ``kafka-metadata-quorum`` and ``kafka-features`` on two of our nodes with a dynamic quorum.

The nodes start from the directories that ``kafka-storage`` has formatted. A controller joins and leaves the quorum
(KIP-853), and the cluster is upgraded and downgraded.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.cluster_nodes import Member, Node
from tests.interop.mixed_cluster import TIMEOUT
from tests.interop.tool_session import ToolSession, tool_session
from triokafka.cli.cluster.free_ports import free_ports

pytestmark = pytest.mark.interop

RELEASE: Final = "4.0"


@pytest.fixture(scope="module")
def kafkas() -> Iterator[ToolSession]:
    with tool_session() as session:
        yield session


@pytest.fixture
def nodes(kafkas: ToolSession, tmp_path: Path) -> Iterator[list[Node]]:
    """Two running nodes; the first one is the quorum. Their directories are formatted by Kafka's tool."""
    ports = free_ports(4)
    made = []
    for number in (1, 2):
        broker, controller = ports[2 * number - 2 : 2 * number]
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[1]}",
            "log.dirs": str(tmp_path / f"data-{number}"),
        }
        made.append(Node(Member(number), tmp_path / f"node-{number}", properties, (broker, controller)))
    cluster_id = kafkas("kafka-storage", "random-uuid").out.strip()
    for node, voters in zip(made, ("--standalone", "--no-initial-controllers"), strict=True):
        words = ("format", "-t", cluster_id, "-c", str(node.config), "--release-version", RELEASE, voters)
        formatted = kafkas("kafka-storage", *words)
        assert formatted.status == 0 and "Formatting" in formatted.out, formatted
    try:
        for node in made:
            node.start()
        for node in made:
            node.wait_until_listening()
        yield made
        for node in reversed(made):
            node.end(signal.SIGTERM)
    finally:
        for node in made:
            node.end(signal.SIGKILL)


def test_tools_format_grow_upgrade_and_shrink_a_dynamic_quorum(nodes: list[Node], kafkas: ToolSession) -> None:
    first, second = nodes
    server = ("--bootstrap-server", f"{first.address},{second.address}")

    def quorum() -> tuple[list[int], list[int]]:
        """The ids of voters and observers."""
        shown = kafkas("kafka-metadata-quorum", *server, "describe", "--status")
        found = dict(re.findall(r"^(\w+):\s+(.*)$", shown.out, re.MULTILINE))
        voters, observers = (json.loads(found[name]) for name in ("CurrentVoters", "CurrentObservers"))
        return sorted(one["id"] for one in voters), sorted(one["id"] for one in observers)

    def level() -> str:
        """The finalized level of ``metadata.version``."""
        shown = kafkas("kafka-features", *server, "describe").out
        found = re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: (\S+)", shown)
        assert found, shown
        return found[1]

    deadline = time.monotonic() + TIMEOUT
    while quorum() != ([1], [2]):  # the second node has not fetched from the quorum yet
        assert time.monotonic() < deadline, quorum()
    added = kafkas("kafka-metadata-quorum", "--command-config", str(second.config), *server, "add-controller")
    joined = re.search(
        rf"Added controller 2 with directory id (\S+) and endpoints: CONTROLLER://127.0.0.1:{second.controller_port}",
        added.out,
    )
    assert added.status == 0 and joined, added
    assert quorum() == ([1, 2], [])

    before = level()
    assert before.startswith(RELEASE)
    would = kafkas("kafka-features", *server, "upgrade", "--release-version", "4.1", "--dry-run")
    assert would.status == 0 and "metadata.version can be upgraded" in would.out, would
    assert level() == before
    upgraded = kafkas("kafka-features", *server, "upgrade", "--release-version", "4.1")
    assert upgraded.status == 0 and "metadata.version was upgraded" in upgraded.out, upgraded
    assert level().startswith("4.1")
    refused = kafkas("kafka-features", *server, "upgrade", "--feature", "metadata.version=99")
    assert refused.status == 1 and level().startswith("4.1"), refused
    would = kafkas("kafka-features", *server, "downgrade", "--metadata", before, "--dry-run")
    done = kafkas("kafka-features", *server, "downgrade", "--metadata", before)
    assert would.status == done.status == 0 and "can be downgraded" in would.out, (would, done)
    assert level() == before

    identity = ("--controller-id", "2", f"--controller-directory-id={joined[1]}")
    removed = kafkas("kafka-metadata-quorum", *server, "remove-controller", *identity)
    assert removed.status == 0 and re.match(r"Removed +KRaft controller 2 ", removed.out), removed
    assert quorum()[0] == [1]
    information = kafkas("kafka-storage", "info", "-c", str(second.config))
    assert information.status == 0 and f"directory.id={joined[1]}" in information.out, information
