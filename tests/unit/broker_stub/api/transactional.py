"""A transactional producer that speaks the protocol itself, in either transaction version, without sockets."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from tests.unit.broker_stub.api.node import Node, batch
from triokafka.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from triokafka.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from triokafka.protocol.api.describe_transactions import DescribeTransactionsRequest, TransactionState
from triokafka.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from triokafka.records import decode_records, iter_batches
from triokafka.structs import Buffer


class Transactional:
    """One producer. ``version``: the transaction version, 1 or 2."""

    def __init__(self, node: Node, name: str = "tx", *, version: int = 2) -> None:
        self.node = node
        self.name = name
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self, *, timeout_ms: int = 60_000, keeps: bool = False) -> InitProducerIdResponse:
        """Initialize once; ``keeps`` sends the present id and epoch (KIP-360)."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        if keeps:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        response = await self.node.call(request, 5)
        if not response.error_code:
            self.take(response.producer_id, response.producer_epoch)
        return response

    async def start(self) -> Transactional:
        """Initialize, and repeat it while the coordinator requires it."""
        await self.node.broker.topic_creation.ensure("__transaction_state")
        while (code := (await self.init()).error_code) == 51:
            await trio.sleep(0.001)
        assert code == 0
        return self

    def take(self, producer_id: int, epoch: int) -> None:
        """Continue with this id and epoch."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()

    async def add(self, topic: str, *partitions: int, api_version: int = 3) -> list[int]:
        """Send AddPartitionsToTxn; return the error codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))],
        )
        response = await self.node.call(request, api_version)
        return [
            one.partition_error_code
            for found in response.results_by_topic_v3_and_below
            for one in found.results_by_partition
        ]

    def records(self, topic: str, *values: bytes, partition: int = 0) -> bytes:
        """The next batch for a partition, without advancing the sequence."""
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get((topic, partition), 0),
            transactional=True,
        )

    async def produce(self, topic: str, *values: bytes, partition: int = 0, api_version: int | None = None) -> int:
        """Write one batch; return the error code."""
        records = self.records(topic, *values, partition=partition)
        if api_version is None:
            api_version = 12 if self.version == 2 else 11
        answer = await self.node.produce(
            topic, records, partition=partition, version=api_version, transactional_id=self.name
        )
        if not answer.error_code:
            key = topic, partition
            self.sequences[key] = self.sequences.get(key, 0) + len(values)
        return answer.error_code

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Add the partition if the version requires it, and write."""
        if self.version < 2:
            assert await self.add(topic, partition) == [0]
        while (code := await self.produce(topic, *values, partition=partition)) == 51:
            await trio.sleep(0.001)
        assert code == 0

    async def send_end(self, *, commits: bool = True) -> EndTxnResponse:
        """Send EndTxn once, with the present id and epoch; do not take the id and epoch of the answer."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        return await self.node.call(request, 5 if self.version == 2 else 4)

    async def end(self, *, commits: bool = True) -> None:
        """End the transaction, and wait until every partition has its marker."""
        response = await self.send_end(commits=commits)
        assert response.error_code == 0
        if self.version == 2:
            self.take(response.producer_id, response.producer_epoch)
        await self.settled()

    async def describe(self) -> TransactionState:
        """The coordinator's description of this transactional id."""
        response = await self.node.call(DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
        return response.transaction_states[0]

    async def settled(self) -> str:
        """Wait until the id's transaction is complete; return its state."""
        while (state := (await self.describe()).transaction_state).startswith("Prepare"):
            await trio.sleep(0.001)
        return state

    async def add_group(self, group_id: str) -> int:
        """Send AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return (await self.node.call(request, 3)).error_code

    async def commit_offset(
        self,
        group_id: str,
        topic: str,
        offset: int,
        *,
        member: tuple[str, int, str | None] = ("", -1, None),
        api_version: int | None = None,
    ) -> int:
        """Send TxnOffsetCommit for partition 0; ``member`` is its id, generation and instance id."""
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id=member[0],
            generation_id=member[1],
            group_instance_id=member[2],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[TxnOffsetCommitRequestPartition(committed_offset=offset)]
                )
            ],
        )
        if api_version is None:
            api_version = 5 if self.version == 2 else 3
        response = await self.node.call(request, api_version)
        return response.topics[0].partitions[0].error_code


async def committed_values(node: Node, topic: str, *, partitions: int = 1) -> list[bytes]:
    """The values that a read_committed consumer sees, by partition."""
    values: list[bytes] = []
    for partition in range(partitions):
        offset = 0
        while True:
            fetched = await node.fetch(topic, *[offset] * (partition + 1), isolation_level=1)
            part = fetched[partition]
            assert part.error_code == 0
            data = part.records or b""
            if not data:
                assert offset == part.last_stable_offset
                break
            aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or []]
            values += visible(data, aborted)
            offset = list(iter_batches(data))[-1].next_offset
    return values


def visible(data: Buffer, aborted: Sequence[tuple[int, int]]) -> list[bytes]:
    """The values of a fetched partition without those of aborted transactions, as a consumer filters them."""
    left = sorted(aborted, key=lambda one: one[1])
    active: set[int] = set()
    values: list[bytes] = []
    for info in iter_batches(data):
        while left and left[0][1] <= info.last_offset:
            active.add(left.pop(0)[0])
        if info.is_control:
            active.discard(info.producer_id)
        elif not (info.is_transactional and info.producer_id in active):
            piece = memoryview(data)[info.position : info.end]
            values += [bytes(record.value or b"") for record in decode_records(piece)]
    return values
