"""The racks of members and replicas in the leader's assignment (KIP-881)."""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.scripted_reading import ReadableCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.assignors import Assignment, MemberSubscription, PartitionAssignor
from triokafka.assignors.assignor import NO_RACKS, Members, PartitionRacks
from triokafka.protocol.api.join_group import JoinGroupRequest


class RecordingAssignor(PartitionAssignor):
    """Assigns all partitions to every member, and records its arguments."""

    name = "told"

    def __init__(self) -> None:
        self.calls: list[tuple[list[MemberSubscription], PartitionRacks]] = []

    def assign(self, members: Members, partitions: dict[str, int], racks: PartitionRacks = NO_RACKS):  # type: ignore[no-untyped-def, override]
        self.calls.append((list(members.values()), racks))
        return {member: Assignment([triokafka.TopicPartition("t", 0)]) for member in members}


@pytest.mark.parametrize("rack", ["here", ""])
@simulated
async def test_the_leader_assigns_again_when_replicas_are_in_other_racks(rack: str) -> None:
    """The leader reads them from the metadata; in a group without racks they do not matter."""
    simulation = current_simulation()
    cluster = ReadableCluster(t=1)
    cluster.racks = {1: "here"}
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    assignor = RecordingAssignor()
    async with triokafka.Consumer(
        "t",
        bootstrap_servers=address,
        world=simulation.host("client").world,
        group_id="g",
        client_rack=rack,
        metadata_max_age_ms=10_000,
        partition_assignment_strategy=[assignor],
    ) as consumer:
        with trio.move_on_after(15):
            while True:
                await consumer.poll(timeout_ms=1_000)
        cluster.racks = {1: "there"}
        with trio.move_on_after(30):
            while True:
                await consumer.poll(timeout_ms=1_000)
    seen = [(members[0].rack_id, racks) for members, racks in assignor.calls]
    reasons = [request.reason for request in cluster.brokers[1].seen(JoinGroupRequest)]
    if rack:
        assert seen == [("here", {"t": (frozenset({place}),)}) for place in ("here", "there")]
        assert reasons[-1] == "topics or partitions were added or removed, or moved to other racks"
    else:
        assert seen == [(None, NO_RACKS)]
