"""`RaftClient` over real files and virtual time: one node, three nodes, failures."""

from __future__ import annotations

import errno

import pytest
import trio

from tests.support.raft_cluster import Member, RaftCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.broker_stub.metadata.records import encode_snapshot_footer
from triokafka.broker_stub.raft import messages
from triokafka.broker_stub.raft.metadata_log import PARTITION
from triokafka.broker_stub.raft.raft_log_interface import SnapshotId
from triokafka.errors import BrokerNotAvailableError, NotControllerError
from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from triokafka.protocol.api.vote import VoteRequest
from triokafka.records import iter_batches


def take_snapshot(leader: Member) -> SnapshotId:
    """Write a snapshot of all that is committed; return its id."""
    snapshot_id = SnapshotId(leader.client.high_watermark, leader.client.end_epoch)
    writer = leader.client.create_snapshot(snapshot_id, timestamp_ms=0)
    assert writer is not None
    writer.append(encode_snapshot_footer(base_offset=1, epoch=snapshot_id.epoch, timestamp_ms=0))
    writer.finish()
    return snapshot_id


@simulated
async def test_quorum_of_one_leads_without_waiting_for_a_timer() -> None:
    cluster = RaftCluster(current_simulation(), voters=1)
    began = trio.current_time()
    leader = await cluster.leader()
    assert trio.current_time() - began < 0.1
    end = leader.append("orders")
    await cluster.until_committed(end, leader)
    assert leader.committed() == ["orders"]


@simulated
async def test_quorum_of_one_leads_a_new_epoch_after_a_power_cut() -> None:
    cluster = RaftCluster(current_simulation(), voters=1)
    leader = await cluster.leader()
    end = leader.append("orders")
    await cluster.until_committed(end, leader)
    epoch = leader.client.leader.epoch
    await leader.kill()
    leader.start()
    leader = await cluster.leader()
    assert leader.client.leader.epoch > epoch
    assert leader.committed() == ["orders"]


@simulated
async def test_three_nodes_commit_the_leaders_records() -> None:
    cluster = RaftCluster(current_simulation(), observers=1)
    leader = await cluster.leader()
    end = leader.append("orders", "events")
    await cluster.until_committed(end)
    assert [member.committed() for member in cluster.up] == [["orders", "events"]] * 4


@simulated
async def test_a_follower_accepts_no_records() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    follower = next(member for member in cluster.up if member is not leader)
    with pytest.raises(NotControllerError):
        follower.append("orders")


@simulated
async def test_another_node_leads_after_the_leader_is_killed_and_nothing_committed_is_lost() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    end = leader.append("orders")
    await cluster.until_committed(end, leader)
    await leader.kill()
    began = trio.current_time()
    successor = await cluster.leader(other_than=leader)
    assert trio.current_time() - began < 6
    leader.start()
    end = successor.append("events")
    await cluster.until(lambda: len(cluster.up) == 3 and all(m.listener.high_watermark >= end for m in cluster.up))
    assert {tuple(member.committed()) for member in cluster.up} == {("orders", "events")}


@simulated
async def test_a_partitioned_leader_resigns_and_its_records_disappear_after_the_heal() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    cluster.cut.add(leader.node_id)
    leader.append("lost")
    await cluster.until(lambda: not leader.client.is_leader, within=3.5)
    successor = await cluster.leader(other_than=leader)
    end = successor.append("kept")
    cluster.cut.clear()
    await cluster.until_committed(end)
    assert {tuple(member.committed()) for member in cluster.up} == {("kept",)}


@simulated
async def test_a_leader_that_shuts_down_hands_over_within_a_second() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    began = trio.current_time()
    await leader.client.shut_down(timeout=5)
    assert trio.current_time() - began < 1
    successor = await cluster.leader(other_than=leader)
    assert successor.client.leader.epoch > 1


@simulated
async def test_a_node_that_was_away_loads_a_snapshot() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    away = next(member for member in cluster.up if member is not leader)
    await away.kill()
    end = leader.append("orders")
    await cluster.until_committed(end, leader)
    snapshot_id = take_snapshot(leader)
    leader.client._log.delete_before_snapshot(snapshot_id)  # as the snapshot generator does
    await away.host.kill()
    away.host.disk.__init__()  # type: ignore[misc]
    away.start()
    await cluster.until(lambda: away.is_up and away.listener.high_watermark >= end)
    assert away.listener.snapshots == [snapshot_id]


@simulated
async def test_describe_quorum_names_voters_and_observers() -> None:
    cluster = RaftCluster(current_simulation(), observers=1)
    leader = await cluster.leader()
    end = leader.append("orders")
    await cluster.until_committed(end)
    topic = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    response = leader.client.describe_quorum(DescribeQuorumRequest(topics=[topic]), version=2)
    partition = response.topics[0].partitions[0]
    assert partition.leader_id == leader.node_id
    assert partition.high_watermark == end
    assert sorted(voter.replica_id for voter in partition.current_voters) == [1, 2, 3]
    assert [observer.replica_id for observer in partition.observers] == [4]
    assert {voter.log_end_offset for voter in partition.current_voters} == {end}


def _fail(member: Member, file_name: str) -> None:
    """Let every operation on a file fail."""

    def strike(operation: str, path: str, size: int) -> None:
        if file_name in path and operation != "read":
            raise OSError(errno.EIO, "the disk is broken", path)

    member.host.disk.before_operation = strike


@simulated
async def test_a_leader_that_cannot_sync_its_log_leads_no_more_and_the_others_continue() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    leader.append("lost")
    _fail(leader, ".log")
    await cluster.until(lambda: not leader.client.is_leader)
    assert leader.listener.errors
    successor = await cluster.leader(other_than=leader)
    end = successor.append("kept")
    await cluster.until_committed(end, successor)


@simulated
async def test_a_node_that_cannot_store_its_vote_takes_no_part_until_it_can() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    broken = next(member for member in cluster.up if member is not leader)
    _fail(broken, "quorum-state")
    await leader.kill()
    await cluster.until(lambda: broken.client.is_stuck)
    assert broken.listener.errors and broken.listener.leaders[-1].leader_id is None
    await trio.sleep(60)
    assert not cluster.leaders, "the broken node has voted"
    with pytest.raises(BrokerNotAvailableError):
        await broken.client.vote(VoteRequest(), version=2)
    broken.host.disk.before_operation = None
    successor = await cluster.leader()
    end = successor.append("kept")
    await cluster.until_committed(end, broken)
    assert not broken.client.is_stuck


@simulated
async def test_the_others_continue_without_a_node_that_cannot_store_its_vote() -> None:
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    broken = next(member for member in cluster.up if member is not leader)
    _fail(broken, "quorum-state")
    await leader.kill()
    await cluster.until(lambda: broken.client.is_stuck)
    leader.start()
    await cluster.leader()
    assert not broken.client.is_leader


@simulated
async def test_a_waiting_fetch_fails_when_the_node_stops() -> None:
    cluster = RaftCluster(current_simulation(), voters=1)
    leader = await cluster.leader()
    client = leader.client
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=client.leader.epoch,
        fetch_offset=client.end_offset,
        last_fetched_epoch=client.leader.epoch,
        partition_max_bytes=1000,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=9),
        max_wait_ms=60_000,
        min_bytes=1,
        topics=[FetchTopic(topic=messages.TOPIC, topic_id=messages.TOPIC_ID, partitions=[partition])],
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_soon, leader)
        with pytest.raises(BrokerNotAvailableError):
            await client.fetch(request, version=17)


async def _stop_soon(member: Member) -> None:
    await trio.sleep(1)
    await member.host.kill()


@simulated
async def test_a_leader_can_shut_down_at_any_step_of_its_cancellation() -> None:
    """One step lies between the end of its last task and the end of `RaftClient.run`."""
    cluster = RaftCluster(current_simulation())
    for steps in range(8):
        leader = await cluster.leader()
        client = leader.client
        leader.scope.cancel()
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        await client.shut_down(timeout=0)
        await cluster.until(lambda: len(cluster.up) == 2)
        leader.start()
        await cluster.until(lambda: len(cluster.up) == 3)


# A damaged log


def damage(member: Member, offset: int) -> None:
    """Change a bit in the body of the batch with an offset."""
    disk, path = member.host.disk, f"/data/{PARTITION}/{0:020d}.log"
    content = disk.read_file(path)
    (position,) = (info.position for info in iter_batches(content) if info.base_offset == offset)
    file = disk.open(path)
    file.write_at(position + 70, bytes([content[position + 70] ^ 4]))
    file.close()


@simulated
async def test_leader_with_damaged_records_wants_a_snapshot_for_the_node_that_needs_them() -> None:
    """The node gets the records before the damage, then the snapshot, then the rest."""
    cluster = RaftCluster(current_simulation(), observers=1)
    leader = await cluster.leader()
    away = cluster.members[4]
    await cluster.until(lambda: away.is_up and away.listener.high_watermark >= 0)
    await away.kill()
    ends = [leader.append(name) for name in ("orders", "events", "clicks")]
    await cluster.until_committed(ends[-1], leader)
    damage(leader, ends[1] - 1)
    away.start()
    await cluster.until(lambda: leader.listener.needs_snapshot > 0)
    await cluster.until(lambda: away.client.end_offset == ends[0])
    take_snapshot(leader)
    await cluster.until(lambda: away.client.high_watermark >= ends[-1])
    assert away.listener.snapshots and leader.client.is_leader
    after = leader.append("payments")
    await cluster.until_committed(after)
    assert leader.listener.needs_snapshot == 1


@simulated
async def test_leader_that_cannot_send_records_before_they_are_committed_hands_over() -> None:
    """Otherwise nothing would ever be committed again."""
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    end = leader.append("orders")
    await cluster.until_committed(end)
    cluster.cut.add(leader.node_id)
    leader.append("lost")
    damage(leader, end)
    cluster.cut.clear()
    successor = await cluster.leader(other_than=leader)
    after = successor.append("kept")
    await cluster.until_committed(after)
    assert {tuple(member.committed()) for member in cluster.up} == {("orders", "kept")}
    assert not leader.listener.needs_snapshot


@simulated
async def test_two_voters_continue_without_damaged_records_that_are_not_committed() -> None:
    """The leader's log would win every election: the other voter cannot lead before these records are gone."""
    cluster = RaftCluster(current_simulation(), voters=2)
    leader = await cluster.leader()
    end = leader.append("orders")
    await cluster.until_committed(end)
    cluster.cut.add(leader.node_id)
    leader.append("lost")
    leader.append("lost, too")
    damage(leader, end)
    cluster.cut.clear()
    await cluster.until(lambda: leader.client.end_epoch > 1)
    successor = await cluster.leader()
    await cluster.until_committed(successor.append("kept"))
    assert {tuple(member.committed()) for member in cluster.up} == {("orders", "kept")}
    assert leader.listener.errors


@simulated
async def test_damaged_records_that_a_former_leader_may_have_committed_wait_for_the_node_that_has_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = RaftCluster(current_simulation())
    former = await cluster.leader()
    follower, away = (member for member in cluster.up if member is not former)
    end = former.append("orders")
    await cluster.until_committed(end)
    cluster.cut.add(away.node_id)
    reported = former.listener.advanced

    def cut_before_the_follower_hears_of_it(high_watermark: int) -> None:
        reported(high_watermark)
        cluster.cut.add(former.node_id)

    former.listener.advanced = cut_before_the_follower_hears_of_it  # type: ignore[method-assign]
    acknowledged = former.append("events")
    await cluster.until_committed(acknowledged, former)
    assert follower.client.end_offset == acknowledged > follower.client.high_watermark
    damage(follower, end)
    cluster.cut.remove(away.node_id)
    await cluster.until(lambda: follower.client.is_leader)
    await trio.sleep(60)
    assert away.client.end_offset == end and follower.client.end_offset > acknowledged
    assert "may be committed, and no other running node has them, so nothing can be committed now. Start the " in (
        caplog.text
    )
    assert f"may have them: {former.node_id}." in caplog.text
    cluster.cut.clear()
    await cluster.until(lambda: former.client.high_watermark > acknowledged)
    assert former.committed() == ["orders", "events"]


@simulated
async def test_damaged_snapshot_does_not_replace_the_log_of_a_follower() -> None:
    """The follower asks again, the leader then finds the damage, and another snapshot replaces this one."""
    cluster = RaftCluster(current_simulation())
    leader = await cluster.leader()
    away = next(member for member in cluster.up if member is not leader)
    kept = leader.append("orders")
    await cluster.until_committed(kept)
    await away.kill()
    end = leader.append("events")
    await cluster.until_committed(end, leader)
    snapshot_id = take_snapshot(leader)
    leader.client._log.delete_before_snapshot(snapshot_id)  # as the snapshot generator does
    disk, path = leader.host.disk, f"/data/{PARTITION}/{snapshot_id.file_name}"
    content = bytearray(disk.read_file(path))
    content[70] ^= 4
    disk.open(path).write_at(0, bytes(content))
    away.start()
    await cluster.until(lambda: leader.listener.needs_snapshot > 0)
    await trio.sleep(10)
    assert away.client.end_offset == kept and not away.listener.snapshots
    assert take_snapshot(leader) == snapshot_id
    await cluster.until_committed(end, away)
    assert away.listener.snapshots == [snapshot_id]
    assert leader.listener.needs_snapshot == 1
