"""A transaction coordinator for a `ScriptedCluster`: it checks strictly what producers send, and has no storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.scripted_broker import ScriptedCluster
from triokafka.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from triokafka.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition

_INVALID_PRODUCER_EPOCH, _INVALID_TXN_STATE, _PRODUCER_FENCED = 47, 48, 90
REQUESTS = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)


@dataclass
class _Producer:
    producer_id: int
    epoch: int = 0
    partitions: dict[TopicPartition, int] = field(default_factory=dict)  # with the log's end when it joined
    groups: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    last_end: tuple[int, bool] | None = None

    @property
    def open(self) -> bool:
        return bool(self.partitions or self.groups)


class ScriptedCoordinator:
    """The coordinator of every transactional id, under transaction version ``level``.

    ``committed`` are the values of committed transactions by partition, ``offsets`` the committed ones by group.
    ``ends`` has one item per ended transaction: whether it was committed.
    """

    def __init__(self, cluster: ScriptedCluster, level: int = 2) -> None:
        self.level = level
        self.committed: dict[TopicPartition, list[bytes | None]] = {}
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        self.ends: list[bool] = []
        self._cluster = cluster
        self._producers: dict[str, _Producer] = {}
        self._by_id: dict[int, str] = {}
        cluster.coordinator = self
        for broker in cluster.brokers.values():
            self.serve(broker)

    def serve(self, broker: Any) -> None:
        """Make a broker announce the transactional APIs."""
        broker.api_versions |= {24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5)}
        broker.finalized_features = {"transaction.version": self.level}

    def identity(self, transactional_id: str) -> tuple[int, int]:
        """Return the producer id and epoch."""
        producer = self._producers[transactional_id]
        return producer.producer_id, producer.epoch

    def open(self, transactional_id: str) -> bool:
        """Whether a transaction is open."""
        return self._producers[transactional_id].open

    # ---------------------------------------------------------------- requests

    def answer(self, request: Any, version: int) -> Any:
        """Return the response to one of `REQUESTS`."""
        if isinstance(request, InitProducerIdRequest):
            return self._initialize(request)
        if isinstance(request, AddPartitionsToTxnRequest):
            return self._add_partitions(request)
        if isinstance(request, AddOffsetsToTxnRequest):
            producer, code = self._known(request.transactional_id, request.producer_id, request.producer_epoch)
            if producer is not None:
                producer.groups.setdefault(request.group_id, {})
            return AddOffsetsToTxnResponse(error_code=code)
        if isinstance(request, TxnOffsetCommitRequest):
            return self._commit_offsets(request, version)
        return self._end(request, version)

    def _known(self, transactional_id: str, producer_id: int, epoch: int) -> tuple[_Producer | None, int]:
        producer = self._producers.get(transactional_id)
        if producer is None or producer.producer_id != producer_id:
            return None, 49
        if producer.epoch != epoch:
            return None, _PRODUCER_FENCED
        return producer, 0

    def _initialize(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        assert request.transactional_id is not None
        producer = self._producers.get(request.transactional_id)
        if producer is None:
            self._cluster.next_producer_id += 1
            producer = self._producers[request.transactional_id] = _Producer(self._cluster.next_producer_id)
            self._by_id[producer.producer_id] = request.transactional_id
        else:
            if request.producer_id >= 0 and request.producer_epoch != producer.epoch:
                return InitProducerIdResponse(error_code=_PRODUCER_FENCED)
            if producer.open:
                self._finish(producer, commit=False)
            producer.epoch += 1
        return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert self.level < 2, "Produce adds partitions under transaction version 2"
        producer, code = self._known(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        results = []
        for topic in request.v3_and_below_topics:
            for number in topic.partitions:
                partition = TopicPartition(topic.name, number)
                if producer is not None:
                    producer.partitions.setdefault(partition, len(self._cluster.log[partition]))
            results.append(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
                        for n in topic.partitions
                    ],
                )
            )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def _commit_offsets(self, request: TxnOffsetCommitRequest, version: int) -> TxnOffsetCommitResponse:
        assert (version >= 5) == (self.level >= 2)
        producer, code = self._known(request.transactional_id, request.producer_id, request.producer_epoch)
        if producer is not None and version < 5 and request.group_id not in producer.groups:
            producer, code = None, _INVALID_TXN_STATE
        topics = []
        for topic in request.topics:
            if producer is not None:
                offsets = producer.groups.setdefault(request.group_id, {})
                offsets |= {TopicPartition(topic.name, p.partition_index): p.committed_offset for p in topic.partitions}
            topics.append(
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                        for p in topic.partitions
                    ],
                )
            )
        return TxnOffsetCommitResponse(topics=topics)

    def _end(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        assert (version >= 5) == (self.level >= 2)
        last = self._producers[request.transactional_id]
        if not last.open and last.last_end == (
            request.producer_epoch,
            request.committed,
        ):  # it was executed, but the response was lost
            return EndTxnResponse(producer_id=last.producer_id, producer_epoch=last.epoch)
        producer, code = self._known(request.transactional_id, request.producer_id, request.producer_epoch)
        if producer is None:
            return EndTxnResponse(error_code=code)
        if not producer.open and (request.committed or version < 5):
            return EndTxnResponse(error_code=_INVALID_TXN_STATE)
        producer.last_end = (request.producer_epoch, request.committed)
        self._finish(producer, commit=request.committed)
        if version < 5:
            return EndTxnResponse()
        producer.epoch += 1
        return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)

    def _finish(self, producer: _Producer, *, commit: bool) -> None:
        self.ends.append(commit)
        if commit:
            for partition, start in producer.partitions.items():
                values = [record.value for record in self._cluster.log[partition][start:]]
                self.committed.setdefault(partition, []).extend(values)
            for group, offsets in producer.groups.items():
                self.offsets.setdefault(group, {}).update(offsets)
        producer.partitions.clear()
        producer.groups.clear()

    # ---------------------------------------------------------------- appends

    def check_append(self, partition: TopicPartition, records: Any, version: int) -> int:
        """Return the error code for a Produce request's batch; 0 if it may be appended."""
        for batch in iter_batches(records):
            transactional_id = self._by_id.get(batch.producer_id)
            if transactional_id is None:
                continue
            assert batch.is_transactional
            producer = self._producers[transactional_id]
            if batch.producer_epoch != producer.epoch:
                return _INVALID_PRODUCER_EPOCH
            if version >= 12:
                assert self.level >= 2
                producer.partitions.setdefault(partition, len(self._cluster.log[partition]))
            elif partition not in producer.partitions:
                return _INVALID_TXN_STATE
        return 0
