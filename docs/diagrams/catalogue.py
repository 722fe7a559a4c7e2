"""What each diagram says. Names in backquotes are functions and classes of the package; a test looks them up."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from docs.diagrams import sequence, timeline
from docs.diagrams.runs_file import RUNS
from docs.diagrams.sequence import Log, Note, Step
from docs.diagrams.svg import Svg
from docs.diagrams.timeline import Bar, Mark

_MEMBERS: Final = {"A": "a", "B": "b", "C": "c", "D": "d"}


def produce_path() -> Svg:
    """Draw the life of a produced record."""
    task, accumulator, sender, connection, leader = "your task", "accumulator", "sender", "connection", "leader"
    return sequence.draw(
        "The life of a produced record",
        "A record goes from the caller's task into a batch of the accumulator; the sender task drains batches into one "
        "request for each broker; the response settles the batch, frees its memory and wakes the caller.",
        [
            (task, "send"),
            (accumulator, "batches, memory"),
            (sender, "one task"),
            (connection, "one task each"),
            (leader, "a broker"),
        ],
        [
            Step(task, accumulator, "`FastPath.send`\n`BatchOpener.open_batch`"),
            Step(accumulator, task, "a `Delivery`, to be awaited", dashed=True),
            Step(accumulator, sender, "`Wakeup.wake`"),
            Step(sender, accumulator, "`Accumulator.ready`\n`Accumulator.drain`"),
            Step(sender, sender, "`PartitionSequences.assign`\n`ProducerBatch.build`"),
            Step(sender, connection, "`RequestSender.send`\n`BrokerChannel.submit`"),
            Step(connection, leader, "Produce", "a"),
            Step(leader, connection, "ProduceResponse", "a", dashed=True),
            Step(connection, connection, "`read_response`\n`ResponseHandler.answered`"),
            Step(connection, accumulator, "`IncompleteBatches.acknowledge`", "c"),
            Step(accumulator, task, "`ProducerBatch.settle`\ncallbacks, then waiters", "c"),
            Step(accumulator, accumulator, "`BufferPool.release`: room for the next caller", "c"),
            Note("Instead of 9 to 12, after a retriable error or without a response"),
            Step(connection, accumulator, "`IncompleteBatches.retry`: again after a back-off", "fault"),
        ],
    )


def fetch_path() -> Svg:
    """Draw the life of a fetched record."""
    task, buffer, fetcher, leader = "your task", "buffer", "fetcher", "leader"
    return sequence.draw(
        "The life of a fetched record",
        "One task for each broker keeps a fetch on the wire while there is room. Its bytes wait in a buffer and are "
        "decoded in the caller's task, when it asks for records.",
        [
            (task, "poll, async for"),
            (buffer, "bytes"),
            (fetcher, "one task for each broker"),
            (leader, "a broker"),
        ],
        [
            Step(task, fetcher, "`Fetcher.wake`: there is a position, or room"),
            Step(fetcher, fetcher, "`FetchPlanner.round`\n`FetchSessionHandler.plan`"),
            Step(fetcher, leader, "Fetch", "a"),
            Step(leader, fetcher, "FetchResponse", "a", dashed=True),
            Step(fetcher, buffer, "bytes, or an error"),
            Step(fetcher, leader, "the next Fetch, at once", "a"),
            Step(task, buffer, "`RecordWait.wait_for`"),
            Step(buffer, task, "`FetchCollector.take`\n`RecordDecoder.take`", "c"),
            Step(task, task, "records; the position has moved behind them", "c"),
            Step(buffer, fetcher, "`FetchBuffer.remove`: room again"),
        ],
    )


def rebalance_classic() -> Svg:
    """Draw the messages of a classic rebalance."""
    task, member, coordinator, other = "your task", "member", "coordinator", "member D"
    return sequence.draw(
        "A rebalance under the classic protocol",
        "A new member joins. The coordinator tells the others in their heartbeats, waits for all to join, has the "
        "leader assign the partitions, and gives each member its part.",
        [(task, "poll"), (member, "A, the leader"), (coordinator, "a broker"), (other, "joins")],
        [
            Step(other, coordinator, "JoinGroup", "d"),
            Step(coordinator, coordinator, "`prepare_rebalance`: waits for all members"),
            Step(member, coordinator, "Heartbeat", "a"),
            Step(coordinator, member, "REBALANCE_IN_PROGRESS", "a", dashed=True),
            Step(task, member, "`Committer.commit_finished`\n`on_partitions_revoked`"),
            Step(member, coordinator, "JoinGroup, `ClassicJoin.start`", "a"),
            Step(coordinator, coordinator, "`complete_join`: the next generation"),
            Step(coordinator, member, "JoinGroupResponse: all members", "a", dashed=True),
            Step(coordinator, other, "JoinGroupResponse", "d", dashed=True),
            Step(member, member, "`LeaderAssignment.compute`"),
            Step(other, coordinator, "SyncGroup", "d"),
            Step(member, coordinator, "SyncGroup: the assignment", "a"),
            Step(coordinator, coordinator, "the assignment is committed to the log"),
            Step(coordinator, member, "SyncGroupResponse: A's part", "a", dashed=True),
            Step(coordinator, other, "SyncGroupResponse: D's part", "d", dashed=True),
            Step(member, task, "`on_partitions_assigned`\nat the next poll"),
        ],
    )


def rebalance_consumer() -> Svg:
    """Draw the messages of a rebalance under KIP-848."""
    task, member, coordinator, other = "your task", "member C", "coordinator", "member D"
    return sequence.draw(
        "A rebalance under the consumer protocol (KIP-848)",
        "A new member joins. The coordinator computes the target, takes a partition from one member by the response to "
        "its heartbeat, and gives it to the new member once the former owner has reported that it let go.",
        [(task, "poll"), (member, "owns 2 and 5"), (coordinator, "a broker"), (other, "joins")],
        [
            Step(other, coordinator, "ConsumerGroupHeartbeat, epoch 0", "d"),
            Step(coordinator, coordinator, "computes a new target: 5 goes to D"),
            Step(coordinator, other, "epoch 4, no partitions yet", "d", dashed=True),
            Step(member, coordinator, "ConsumerGroupHeartbeat", "c"),
            Step(coordinator, member, "assignment: 2", "c", dashed=True),
            Step(task, member, "`Committer.commit_finished`\n`on_partitions_revoked` of 5"),
            Step(member, coordinator, "ConsumerGroupHeartbeat: owns 2", "c"),
            Step(coordinator, member, "epoch 4", "c", dashed=True),
            Step(other, coordinator, "ConsumerGroupHeartbeat", "d"),
            Step(coordinator, other, "assignment: 5", "d", dashed=True),
            Note("Members A and B read on all the time; C never stops reading 2"),
        ],
    )


def _rebalance(mode: str, title: str, description: str) -> Svg:
    bars: list[dict[str, Any]] = runs()["rebalance"][mode]
    lanes = []
    stops = []
    for partition in sorted({bar["partition"] for bar in bars}):
        mine = [bar for bar in bars if bar["partition"] == partition]
        lane = [Bar(bar["since"], bar["until"], _MEMBERS[bar["member"]], f"member {bar['member']}") for bar in mine]
        for before, after in pairwise(mine):
            gap = after["since"] - before["until"]
            stops.append((before["until"], after["since"]))
            lane.append(Bar(before["until"], after["since"], "fault", f"{gap:.1f} s", weak=True))
        lanes.append((f"partition {partition}", lane))
    marks = [Mark(1.5, "member D joins", "d"), Mark(max(last for _, last in stops), "every partition has a reader")]
    return timeline.draw(title, description, lanes, marks, end=10)


def rebalance_eager_run() -> Svg:
    """Draw who read which partition while an eager group took a member."""
    return _rebalance(
        "eager",
        "Eager rebalance: all members stop",
        "Six partitions over ten seconds. After member D has joined, each member stops reading all its partitions when "
        "its heartbeat tells it of the rebalance, and all begin again together when the last one has joined.",
    )


def rebalance_cooperative_run() -> Svg:
    """Draw who read which partition while a cooperative group took a member."""
    return _rebalance(
        "cooperative",
        "Cooperative rebalance: only the partition that moves stands still",
        "Six partitions over ten seconds. After member D has joined, five partitions are read without a pause; the one "
        "that moves waits until a second rebalance gives it to D.",
    )


def rebalance_consumer_run() -> Svg:
    """Draw who read which partition while a group under KIP-848 took a member."""
    return _rebalance(
        "consumer",
        "Consumer protocol: only the partition that moves stands still, without a rebalance",
        "Six partitions over ten seconds. After member D has joined, five partitions are read without a pause; the one "
        "that moves waits for its former owner's report and for D's next heartbeat.",
    )


def replication() -> Svg:
    """Draw how a record is replicated and the high watermark rises."""
    producer, leader, follower = "producer", "leader", "follower"
    return sequence.draw(
        "Replication and the high watermark",
        "The leader appends a record; the follower fetches it; the follower's next fetch says that it has the record, "
        "which raises the leader's high watermark and answers the producer; the response raises the follower's.",
        [(producer, "acks=all"), (leader, "in sync: leader, follower"), (follower, "one fetcher for each leader")],
        [
            (Log(leader, 5, 5), Log(follower, 5, 5)),
            Step(producer, leader, "Produce", "a"),
            Step(leader, leader, "`Partition.append`: offset 5, not committed"),
            (Log(leader, 6, 5), Log(follower, 5, 5)),
            Step(follower, leader, "Fetch from offset 5", "d"),
            Step(leader, follower, "record 5, high watermark 5", "d", dashed=True),
            Step(follower, follower, "`Partition.append_as_follower`"),
            (Log(leader, 6, 5), Log(follower, 6, 5)),
            Step(follower, leader, "Fetch from offset 6: it has 5", "d"),
            Step(leader, leader, "`Partition.follower_fetched`\n`Partition.advance_high_watermark`"),
            (Log(leader, 6, 6), Log(follower, 6, 5)),
            Step(leader, producer, "ProduceResponse: offset 5", "a", dashed=True),
            Step(leader, follower, "high watermark 6", "d", dashed=True),
            Step(follower, follower, "`Partition.follow_offsets`"),
            (Log(leader, 6, 6), Log(follower, 6, 6)),
        ],
    )


def _state_bars(found: list[dict[str, Any]], since: float, until: float, scale: float) -> list[Bar]:
    colours = {"Leader": "c", "Follower": "a", "Prospective": "b", "Candidate": "b", "Unattached": "d", "Resigned": "d"}
    bars = []
    ends = [one["at"] for one in found[1:]] + [until]
    for one, end in zip(found, ends, strict=True):
        if one["state"] == "down" or end <= since or one["at"] >= until:
            continue
        text = f"{one['state']}, epoch {one['epoch']}"
        first, last = (max(one["at"], since) - since) * scale, (min(end, until) - since) * scale
        bars.append(Bar(first, last, colours[one["state"]], text, weak=one["state"] == "Follower"))
    return bars


def quorum_failover() -> Svg:
    """Draw the states of three controllers while their leader dies and comes back."""
    run = runs()["failover"]
    committed = [at for at, _ in run["committed"] if at > run["killed_at"]]
    pause = committed[0] - max(at for at, _ in run["committed"] if at <= run["killed_at"])
    return timeline.draw(
        "Failover of the metadata quorum",
        "Three controllers over seven seconds. The leader is killed; after the fetch timeout of two seconds a follower "
        "becomes leader in the next epoch; the former leader comes back as a follower.",
        [(f"node {node}", _state_bars(found, 0, run["end"], 1)) for node, found in run["states"].items()],
        [
            Mark(run["killed_at"], f"node {run['leader']} is killed", "fault"),
            Mark(committed[0], f"the next commit, {pause:.1f} s after the last", "c"),
            Mark(run["restarted_at"], f"node {run['leader']} starts"),
        ],
        end=run["end"],
    )


def quorum_election() -> Svg:
    """Draw the election of `quorum_failover` in milliseconds."""
    run = runs()["failover"]
    others = {node: found for node, found in run["states"].items() if int(node) != run["leader"]}
    everything = [one for found in others.values() for one in found]
    changes = [one["at"] for one in everything if run["killed_at"] < one["at"] < run["restarted_at"]]
    led = next(one["at"] for one in everything if (one["state"], one["epoch"]) == ("Leader", 2))
    committed = next(at for at, _ in run["committed"] if at > run["killed_at"])
    since, until = min(changes) - 0.02, committed + 0.05
    return timeline.draw(
        "The election, in milliseconds",
        "The two followers find within a few milliseconds that the leader is silent, ask each other for pre-votes, and "
        "one of them raises the epoch, gets the other's vote and leads.",
        [(f"node {node}", _state_bars(found, since, until, 1000)) for node, found in others.items()],
        [
            Mark((min(changes) - since) * 1000, "fetch timeout: pre-votes", "b"),
            Mark((led - since) * 1000, "a majority of votes", "c"),
            Mark((committed - since) * 1000, "LeaderChange is committed"),
        ],
        end=round((until - since) * 1000),
        unit="milliseconds",
    )


def transaction() -> Svg:
    """Draw the life of a transaction under transaction version 2."""
    producer, coordinator, leader, offsets = "producer", "coordinator", "leader", "group"
    return sequence.draw(
        "The life of a transaction (transaction version 2)",
        "The producer gets an epoch from the coordinator, writes records and offsets, and asks for the end. The "
        "coordinator stores the decision, answers, and writes markers into every partition.",
        [
            (producer, "transaction()"),
            (coordinator, "__transaction_state"),
            (leader, "of orders-0"),
            (offsets, "__consumer_offsets"),
        ],
        [
            Step(producer, coordinator, "InitProducerId", "a"),
            Step(coordinator, producer, "producer id and epoch:\nearlier producers are fenced", "a", dashed=True),
            Step(producer, leader, "Produce, transactional", "a"),
            Step(leader, coordinator, "`TransactionVerifier.admit`\nthe partition joins"),
            Step(leader, leader, "`ProducerStates.check_verified`\nappended, not yet visible"),
            Step(producer, offsets, "TxnOffsetCommit: positions, pending", "a"),
            Step(producer, coordinator, "EndTxn: commit", "a"),
            Step(coordinator, coordinator, "PrepareCommit is in the log:\nnothing can change the outcome", "c"),
            Step(coordinator, producer, "EndTxnResponse: the next epoch", "a", dashed=True),
            Step(coordinator, leader, "WriteTxnMarkers\n`MarkerSender`", "c"),
            Step(coordinator, offsets, "WriteTxnMarkers", "c"),
            Step(leader, leader, "the last stable offset rises:\nread_committed sees the records", "c"),
            Step(coordinator, coordinator, "CompleteCommit", "c"),
        ],
    )


def runs() -> dict[str, Any]:
    """Return the data of the recorded runs."""
    found: dict[str, Any] = json.loads(RUNS.read_text(encoding="utf-8"))
    return found


DIAGRAMS: Final[dict[str, Callable[[], Svg]]] = {
    "produce-path": produce_path,
    "fetch-path": fetch_path,
    "rebalance-classic": rebalance_classic,
    "rebalance-consumer": rebalance_consumer,
    "rebalance-eager-run": rebalance_eager_run,
    "rebalance-cooperative-run": rebalance_cooperative_run,
    "rebalance-consumer-run": rebalance_consumer_run,
    "replication": replication,
    "quorum-failover": quorum_failover,
    "quorum-election": quorum_election,
    "transaction": transaction,
}
"""By file name in ``docs/images``."""
