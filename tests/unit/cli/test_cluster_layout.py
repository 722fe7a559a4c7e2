"""The files of `triokafka cluster`: roles, ports, quorum, and the files that a second start reuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from triokafka.broker_stub.config import parse_properties
from triokafka.cli.broker_options import WrongUse
from triokafka.cli.cluster.layout import ClusterLayout

HOST = "127.0.0.1"


def layout(directory: Path, count: int, port: int = 0, **settings: str) -> ClusterLayout:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ClusterLayout.of(str(directory), count, HOST, port, named)


def controllers(found: ClusterLayout) -> list[int]:
    return [node.node_id for node in found.nodes if "controller" in node.properties["process.roles"]]


@pytest.mark.parametrize(("count", "expected"), [(1, [1]), (2, [1]), (3, [1, 2, 3]), (5, [1, 2, 3])])
def test_an_odd_number_of_nodes_are_controllers(tmp_path: Path, count: int, expected: list[int]) -> None:
    found = layout(tmp_path, count)
    assert controllers(found) == expected
    for node in found.nodes:
        voters = node.properties["controller.quorum.voters"].split(",")
        assert [int(voter.partition("@")[0]) for voter in voters] == expected


def test_brokers_listen_on_the_following_ports(tmp_path: Path) -> None:
    found = layout(tmp_path, 3, port=19_092)
    assert found.bootstrap_servers == f"{HOST}:19092,{HOST}:19093,{HOST}:19094"
    assert found.nodes[1].properties["advertised.listeners"] == f"PLAINTEXT://{HOST}:19093"


def test_controllers_keep_their_ports(tmp_path: Path) -> None:
    """The voters of a dynamic quorum have their addresses in the metadata log."""
    before = layout(tmp_path, 3)
    for node in before.nodes:
        node.write()
    again = layout(tmp_path, 3)
    names = ("controller.quorum.voters",)
    assert [again.nodes[0].properties[name] for name in names] == [before.nodes[0].properties[name] for name in names]
    assert again.bootstrap_servers != before.bootstrap_servers


def test_no_two_nodes_share_a_port(tmp_path: Path) -> None:
    listeners = [node.properties["listeners"] for node in layout(tmp_path, 5).nodes]
    ports = [address.rpartition(":")[2] for text in listeners for address in text.split(",")]
    assert len(set(ports)) == len(ports) == 8


@pytest.mark.parametrize(
    ("count", "replicas", "min_in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_topics_get_as_many_replicas_as_there_are_nodes_up_to_three(
    tmp_path: Path, count: int, replicas: str, min_in_sync: str
) -> None:
    properties = layout(tmp_path, count).nodes[0].properties
    assert properties["default.replication.factor"] == replicas
    assert properties["min.insync.replicas"] == min_in_sync
    assert properties["offsets.topic.replication.factor"] == replicas


def test_a_setting_is_in_the_properties_of_every_node(tmp_path: Path) -> None:
    found = layout(tmp_path, 3, num_partitions="7")
    for node in found.nodes:
        node.write()
        written = parse_properties(Path(node.config).read_text(), source=node.config)
        assert written["num.partitions"] == "7"
        assert written["node.id"] == str(node.node_id)


@pytest.mark.parametrize("name", ["node_id", "listeners", "log_dirs"])
def test_a_setting_that_differs_between_nodes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongUse, match=name.replace("_", ".")):
        layout(tmp_path, 3, 0, **{name: "9"})


def test_a_second_start_keeps_the_cluster_id(tmp_path: Path) -> None:
    first = layout(tmp_path, 3)
    for node in first.nodes:
        node.write()
    Path(first.nodes[0].data, "meta.properties").write_text(f"version=1\ncluster.id={first.cluster_id}\nnode.id=1\n")
    assert layout(tmp_path, 3).cluster_id == first.cluster_id


def test_another_number_of_nodes_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    for node in layout(tmp_path, 3).nodes:
        node.write()
    with pytest.raises(WrongUse, match="has a cluster of 3 nodes"):
        layout(tmp_path, 5)


def test_ports_beyond_the_last_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="65536"):
        layout(tmp_path, 3, port=65_534)


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="--listen"):
        ClusterLayout.of(str(tmp_path), 3, "no.such.host.invalid", 0, {})
