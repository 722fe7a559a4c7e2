"""The metrics of a quorum's nodes: elections, commits, appended and fetched records, idle time."""

from __future__ import annotations

import math

import pytest
import trio

from tests.support.raft_cluster import RaftCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.broker_stub.metrics.node_catalogue import raft_samples
from triokafka.broker_stub.raft.quorum_metrics import QuorumMetrics
from triokafka.broker_stub.raft.raft_client import RaftClient


def values(client: RaftClient) -> dict[str, float]:
    prefix = "kafka.server:type=raft-metrics,name="
    found = raft_samples(client, trio.current_time())
    return {sample.name.removeprefix(prefix): sample.value for sample in found if sample.name.startswith(prefix)}


def state(client: RaftClient) -> str:
    (sample,) = (one for one in raft_samples(client, trio.current_time()) if one.name.endswith("current-state"))
    return sample.tags["state"]


@simulated
async def test_leader_and_followers_measure_their_part() -> None:
    cluster = RaftCluster(current_simulation(), observers=1)
    leader = await cluster.leader()
    end = leader.append("orders", "events")
    await cluster.until(lambda: all(member.listener.high_watermark >= end for member in cluster.up))
    await cluster.until(lambda: values(leader.client).get("number-of-observers") == 1)
    observer = cluster.members[4]
    follower = next(member for member in cluster.up if member not in (leader, observer))
    assert [state(member.client) for member in (leader, follower, observer)] == ["leader", "follower", "observer"]

    of_leader, of_follower = values(leader.client), values(follower.client)
    assert of_leader["current-vote"] == of_leader["current-leader"] == leader.node_id
    assert of_leader["append-records-rate"] > 0
    assert of_leader["fetch-records-rate"] == 0
    assert 0 < of_leader["commit-latency-avg"] <= of_leader["commit-latency-max"] < 1_000
    assert 0 < of_leader["election-latency-max"] < 5_000
    assert of_follower["fetch-records-rate"] > 0
    assert of_follower["append-records-rate"] == of_follower["commit-latency-max"] == 0
    assert "number-of-observers" not in of_follower
    assert values(observer.client)["current-vote"] == -1
    assert all(0 <= found["poll-idle-ratio-avg"] <= 1 for found in (of_leader, of_follower))


def test_commit_is_timed_from_the_append() -> None:
    metrics = QuorumMetrics()
    metrics.appended_until(10, 3, now=100.0)
    metrics.appended_until(12, 2, now=100.5)
    metrics.committed(11, now=101.0)
    assert metrics.commits.most(101.0) == pytest.approx(1.0)
    metrics.committed(12, now=101.0)
    assert metrics.commits.average(101.0) == pytest.approx(0.75)
    assert metrics.appended.per_second(101.0) == pytest.approx(5 / 31)  # Kafka's rule: a whole window is added


def test_leader_that_resigns_times_nothing_that_another_one_commits() -> None:
    metrics = QuorumMetrics()
    metrics.appended_until(10, 1, now=0.0)
    metrics.left_leadership()
    metrics.committed(10, now=9.0)
    assert math.isnan(metrics.commits.most(9.0))


def test_election_counts_from_its_first_attempt() -> None:
    metrics = QuorumMetrics()
    metrics.leader_known(1.0)
    assert math.isnan(metrics.elections.most(1.0))
    metrics.election_began(2.0)
    metrics.election_began(4.0)
    metrics.leader_known(5.0)
    metrics.leader_known(6.0)
    assert metrics.elections.average(6.0) == pytest.approx(3.0)


def test_appends_without_a_majority_take_bounded_memory() -> None:
    metrics = QuorumMetrics()
    for offset in range(5_000):
        metrics.appended_until(offset, 1, now=float(offset) / 1_000)
    metrics.committed(5_000, now=10.0)
    assert metrics.commits.most(10.0) == pytest.approx(10.0)
