"""The group coordinator's part of transactions: TxnOffsetCommit, and the markers that end a transaction's commits."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.coordinator.group.append_errors import offsets_append_error
from triokafka.coordinator.group.group_shards import GroupShards, check_group_id
from triokafka.coordinator.group.offset_requests import store_offsets
from triokafka.coordinator.group.topics_view import TopicFilter, any_topic
from triokafka.coordinator.offsets import commit as commits
from triokafka.coordinator.runtime.coordinator_log import TransactionalProducer, TransactionMarker
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import run_steps
from triokafka.errors import IllegalGenerationError, KafkaError, StaleMemberEpochError
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from triokafka.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_BY_NAME = 9
"""The version of OffsetCommit that has all fields and names its topics."""


class TransactionRequests:
    """The requests for offsets of transactions."""

    def __init__(self, shards: GroupShards) -> None:
        self._shards = shards
        self._topics = shards.topics

    async def commit_offsets(
        self, request: TxnOffsetCommitRequest, *, guard: object | None, may_read: TopicFilter = any_topic
    ) -> TxnOffsetCommitResponse:
        """Handle TxnOffsetCommit. Waits until the offsets are stored; they take effect when the transaction commits.

        Args:
            guard: proves that the group's partition takes part in the transaction; see `TransactionalProducer`.
        """
        asked, topics_at = _as_offset_commit(request), self._topics.version
        known, response = await run_steps(commits.resolve_topics(asked, _BY_NAME, self._topics, may_read))
        if not known:
            return _as_response(response)
        try:
            check_group_id(request.group_id)
            producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)
            stored = await store_offsets(
                self._shards, asked, known, response, version=_BY_NAME, topics_at=topics_at, producer=producer
            )
            return _as_response(stored)
        except StaleMemberEpochError:
            return commit_failed(request, IllegalGenerationError.code)
        except KafkaError as error:
            return commit_failed(request, offsets_append_error(error))

    def end(self, partition: int, marker: TransactionMarker, reply: Reply[None]) -> None:
        """Append the marker that ends a transaction in a partition of ``__consumer_offsets``, and apply it to the
        offsets. The reply arrives when it is committed. Raises as `CoordinatorRuntime.write`.
        """
        self._shards.runtime.append_marker(partition, marker, reply)


def commit_failed(
    request: TxnOffsetCommitRequest, error_code: int, refused: Mapping[str, int] | None = None
) -> TxnOffsetCommitResponse:
    """Return the response when the whole request failed; ``refused`` are the codes of topics with another error."""
    of_topic = refused or {}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=of_topic.get(topic.name, error_code)
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _as_offset_commit(request: TxnOffsetCommitRequest) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        committed_metadata=one.committed_metadata,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _as_response(response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=one.error_code)
                    for one in topic.partitions
                ],
            )
            for topic in response.topics
        ]
    )
