"""Requests with very long lists: their handlers let other tasks run in between, whatever the list is of.

The measure is the number of calls within one step of a task, which does not depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest
import trio

from tests.unit.broker_stub.api.node import batch, running_node
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from triokafka.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from triokafka.protocol.api.delete_groups import DeleteGroupsRequest
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from triokafka.protocol.api.describe_groups import DescribeGroupsRequest
from triokafka.protocol.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from triokafka.protocol.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from triokafka.protocol.api.describe_transactions import DescribeTransactionsRequest
from triokafka.protocol.api.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from triokafka.protocol.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from triokafka.protocol.message import Request

ITEMS: Final = 6_000
MOST_CALLS: Final = 6 * ITEMS
"""A handler that does all in one step needs eight calls and more for each item."""
NAMES: Final = [f"an-unknown-name-of-{number:05}" for number in range(ITEMS)]  # longer than what is decoded at once
NUMBERS: Final = list(range(1, ITEMS + 1))


class Steps(trio.abc.Instrument):
    """Counts the calls within each step of a task."""

    def __init__(self) -> None:
        self.calls = 0
        self.most = 0
        self.task = ""

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Begin to count."""
        self.calls = 0
        sys.setprofile(self._count)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Keep the largest count."""
        sys.setprofile(None)
        if self.calls > self.most:
            self.most, self.task = self.calls, task.name

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


def _markers() -> list[WritableTxnMarker]:
    topics = [WritableTxnMarkerTopic(name="a-topic-that-is-not-there", partition_indexes=[0])]
    return [WritableTxnMarker(producer_id=number, transaction_result=True, topics=topics) for number in NUMBERS]


REQUESTS: Final[dict[str, tuple[Callable[[], Request[Any]], int]]] = {
    "AddPartitionsToTxn": (
        lambda: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES],
        ),
        3,
    ),
    "AlterReplicaLogDirs": (
        lambda: AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/data", topics=[AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in NAMES]
                )
            ]
        ),
        2,
    ),
    "ConsumerGroupDescribe": (lambda: ConsumerGroupDescribeRequest(group_ids=NAMES), 0),
    "DeleteGroups": (lambda: DeleteGroupsRequest(groups_names=NAMES), 2),
    "DeleteTopics": (
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES], timeout_ms=1_000),
        6,
    ),
    "DescribeGroups": (lambda: DescribeGroupsRequest(groups=NAMES), 5),
    "DescribeLogDirs": (
        lambda: DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=[0, 1, 2]) for name in NAMES]
        ),
        4,
    ),
    "DescribeTopicPartitions": (
        lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]),
        0,
    ),
    "DescribeTransactions": (lambda: DescribeTransactionsRequest(transactional_ids=NAMES), 0),
    "DescribeUserScramCredentials": (
        lambda: DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in NAMES]),
        0,
    ),
    "ElectLeaders": (
        lambda: ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=name, partitions=[0]) for name in NAMES], timeout_ms=1_000
        ),
        2,
    ),
    "Fetch": (
        lambda: FetchRequest(
            topics=[
                FetchTopic(topic=name, partitions=[FetchPartition(partition=0, partition_max_bytes=1)])
                for name in NAMES
            ]
        ),
        11,
    ),
    "FindCoordinator": (lambda: FindCoordinatorRequest(coordinator_keys=NAMES), 5),
    "Metadata": (
        lambda: MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        9,
    ),
    "OffsetCommit": (
        lambda: OffsetCommitRequest(
            group_id="g",
            topics=[OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition()]) for name in NAMES],
        ),
        8,
    ),
    "OffsetFetch": (
        lambda: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES]),
        8,
    ),
    "OffsetFetch (stable)": (
        lambda: OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in NAMES], require_stable=True
        ),
        8,
    ),
    "Produce": (
        lambda: ProduceRequest(
            acks=1,
            timeout_ms=1_000,
            topic_data=[
                TopicProduceData(
                    name="a", partition_data=[PartitionProduceData(index=n, records=batch(b"v")) for n in NUMBERS]
                )
            ],
        ),
        9,
    ),
    "WriteTxnMarkers": (lambda: WriteTxnMarkersRequest(markers=_markers()), 1),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_long_request_lets_other_tasks_run_in_between(name: str) -> None:
    async with running_node() as node:
        for topic in ("__consumer_offsets", "__transaction_state"):
            await node.broker.topic_creation.ensure(topic)
        make, version = REQUESTS[name]
        request, steps = make(), Steps()
        trio.lowlevel.add_instrument(steps)
        try:
            await node.call(request, version)
        finally:
            trio.lowlevel.remove_instrument(steps)
            sys.setprofile(None)
        assert steps.most < MOST_CALLS, f"{steps.most} calls in one step of {steps.task}"
