"""Three nodes that ``triokafka storage format --initial-controllers`` has formatted begin a quorum (KIP-853)."""

from __future__ import annotations

import uuid
from pathlib import Path

import trio

from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import CLUSTER_ID, DATA, SimulatedCluster, SimulatedNode
from triokafka import NewTopic
from triokafka.cli.app import run
from triokafka.structs import format_uuid

IDS = {number: uuid.UUID(int=0x1000_0000_0000_4000_8000_0000_0000_0000 + number) for number in (1, 2, 3)}
PROPERTIES = """\
process.roles=broker,controller
node.id={number}
listeners=PLAINTEXT://node-{number}:9092,CONTROLLER://node-{number}:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.bootstrap.servers=node-1:9093,node-2:9093,node-3:9093
log.dirs={directory}
"""


def format_node(node: SimulatedNode, directory: Path) -> None:
    """Format a directory on the real disk with the command, and copy its files to the node's disk."""
    data = directory / f"data-{node.number}"
    config = directory / f"node-{node.number}.properties"
    config.write_text(PROPERTIES.format(number=node.number, directory=data))
    voters = ",".join(f"{number}@node-{number}:9093:{format_uuid(one)}" for number, one in IDS.items())
    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--initial-controllers", voters]) == 0
    for file in data.rglob("*"):
        if file.is_file():
            copy = Path(DATA) / file.relative_to(data)
            node.host.disk.make_dirs(str(copy.parent))
            node.host.disk.replace_file(str(copy), file.read_bytes())


def voters_of(node: SimulatedNode) -> dict[int, uuid.UUID | None]:
    return {voter.node_id: voter.key.directory_id for voter in node.running_node.metadata.raft.voters}


@simulated
async def test_three_formatted_nodes_elect_a_leader_and_know_each_other(tmp_path: Path) -> None:
    cluster = SimulatedCluster(
        current_simulation(),
        controller_quorum_voters=(),
        controller_quorum_bootstrap_servers=tuple(f"node-{number}:9093" for number in IDS),
    )
    for node in cluster.nodes:
        format_node(node, tmp_path)
    cluster.start()
    await cluster.wait_started()
    first = await cluster.wait_active()
    for node in cluster.nodes:
        assert voters_of(node) == IDS
    await cluster.create_topics({"t": 1})
    async with cluster.admin() as admin:
        quorum = await admin.describe_metadata_quorum()
        assert {voter.replica_id: voter.directory_id for voter in quorum.voters} == IDS
        assert not quorum.observers

        await first.kill()
        second = await cluster.wait_active()
        assert second is not first
        await cluster.retry(lambda: admin.create_topics([NewTopic("u", 1, 2)]))
    for node in cluster.nodes:
        await node.kill()
    cluster.start()
    await cluster.wait_started()
    for node in cluster.nodes:
        assert voters_of(node) == IDS
        with trio.fail_after(30):
            await node.wait_for(lambda image: {"t", "u"} <= image.topics.keys())
    await cluster.stop()
