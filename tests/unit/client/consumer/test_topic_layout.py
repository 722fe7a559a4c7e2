"""The partitions that a leader assigns: those of its metadata."""

from __future__ import annotations

from dataclasses import replace

from triokafka.assignors import NO_RACKS
from triokafka.client.consumer.membership.topic_layout import TopicLayout, TopicLayoutCache, layout_of
from triokafka.network.cluster import Cluster, PartitionMetadata, TopicMetadata
from triokafka.structs import Node

A, B = frozenset("a"), frozenset("b")


def cluster(*replicas: tuple[int, ...], racks: str = "ab") -> Cluster:
    """Return a cluster with topic ``t`` and these replicas; node 1 is in the first of ``racks``, node 2 in the second,
    node 3 in none.
    """
    nodes = {i: Node(i, "h", 9092, rack) for i, rack in ((1, racks[:1] or None), (2, racks[1:2] or None), (3, None))}
    partitions = {
        n: PartitionMetadata(n, -1, replicas=them, offline_replicas=them[1:]) for n, them in enumerate(replicas)
    }
    return Cluster(nodes, {"t": TopicMetadata("t", partitions=partitions), "none": TopicMetadata("none")})


def test_partitions_are_in_the_racks_of_all_their_replicas() -> None:
    """This includes offline replicas, and excludes brokers without a known rack (KIP-881)."""
    layout = layout_of(cluster((1, 2), (2, 3), (3, 9)), ("t", "none", "unknown"), {1: "a", 2: "b"})
    assert layout == TopicLayout({"t": 3}, {"t": (A | B, B, frozenset())})


def test_racks_are_left_out_when_no_member_or_no_broker_has_one() -> None:
    assert TopicLayoutCache().of(cluster((1,)), ("t",), in_racks=False) == TopicLayout({"t": 1}, NO_RACKS)
    assert TopicLayoutCache().of(cluster((1,), racks=""), ("t",), in_racks=True) == TopicLayout({"t": 1}, NO_RACKS)


def test_layout_is_computed_once_per_snapshot() -> None:
    """It is computed again for other topics, and when racks become necessary."""
    last, first, second = TopicLayoutCache(), cluster((1,)), cluster((2,))
    layout = last.of(first, ("t",), in_racks=True)
    assert last.of(first, ("t",), in_racks=True) is layout
    assert last.of(first, ("t",), in_racks=False).racks == NO_RACKS
    assert last.of(first, (), in_racks=True).counts == {}
    moved = last.of(second, ("t",), in_racks=True)
    assert (moved.racks, moved == layout) == ({"t": (B,)}, False)


def test_an_offline_broker_counts_in_its_last_rack_until_it_returns_elsewhere() -> None:
    """KIP-881."""
    last, all_up = TopicLayoutCache(), cluster((1, 2))
    before = last.of(all_up, ("t",), in_racks=True)
    one_down = replace(all_up, nodes={1: all_up.nodes[1]})
    assert last.of(one_down, ("t",), in_racks=True) == before
    elsewhere = last.of(cluster((1, 2), racks="aa"), ("t",), in_racks=True)
    assert elsewhere.racks == {"t": (A,)}
    assert last.of(cluster((1, 2), racks="a"), ("t",), in_racks=True).racks == {"t": (A,)}
    assert last.of(cluster((2,), racks="a"), ("t",), in_racks=True).racks == {"t": (frozenset(),)}
