"""AddPartitionsToTxn (API key 24): add partitions to a transaction, or verify that they are part of it.

Versions 0-5. v2: PRODUCER_FENCED. v3: flexible. v4: for brokers; several transactions, each to add or to verify
(KIP-890). v5: TRANSACTION_ABORTABLE.

If any partition cannot be added, none is; the others then get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import trio

from triokafka import errors
from triokafka.broker_stub.api.transaction_errors import TRANSACTIONAL_ID, WRITE, transaction_error
from triokafka.broker_stub.authorizer import Access, denial, or_cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import in_portions
from triokafka.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition
from triokafka.topic_names import INTERNAL_TOPICS

_BATCHED_SINCE: Final = 4
_FENCED_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 5
_CLIENT_VERSION: Final = 0
"""The transaction version of clients that add partitions themselves."""
_BROKER_VERSION: Final = 2


def _failed(
    request: AddPartitionsToTxnRequest, context: RequestContext, code: int, message: str
) -> AddPartitionsToTxnResponse:
    if context.version >= _BATCHED_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name, results_by_partition=[_result(number, code) for number in topic.partitions]
        )
        for topic in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


@handles(
    AddPartitionsToTxnRequest,
    versions=range(0, 6),
    # Before v4, clients need permissions for the transactional id and the topics; from v4 on, brokers for the cluster.
    accesses=[
        or_cluster(AclOperation.CLUSTER_ACTION),
        Access(WRITE, TRANSACTIONAL_ID, lambda request: [request.v3_and_below_transactional_id]),
        Access(WRITE, ResourceType.TOPIC, lambda request: [topic.name for topic in request.v3_and_below_topics]),
    ],
    waits=True,
    nodes_since=_BATCHED_SINCE,
    on_error=_failed,
)
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Store the partitions with their transactions, and respond when that is committed."""
    if context.version < _BATCHED_SINCE:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        codes = await _codes(transaction, context)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(codes))
    if context.denied_for_cluster(AclOperation.CLUSTER_ACTION):
        raise denial(ResourceType.CLUSTER)(f"{context.principal} may not act as a broker")
    results = [AddPartitionsToTxnResult(transactional_id=one.transactional_id) for one in request.transactions]

    async def work(transaction: AddPartitionsToTxnTransaction, result: AddPartitionsToTxnResult) -> None:
        result.topic_results = await _results(await _codes(transaction, context))

    # Each may wait, for the end of its producer's last transaction or until its record is committed.
    async with trio.open_nursery() as nursery:
        async for transaction, result in in_portions(zip(request.transactions, results, strict=True)):
            nursery.start_soon(work, transaction, result)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _codes(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> Mapping[TopicPartition, int]:
    """Add or verify the partitions of one transaction; return the error code of each."""
    is_client = context.version < _BATCHED_SINCE
    partitions = await _partitions(transaction.topics)
    if is_client and context.denied(WRITE, TRANSACTIONAL_ID, transaction.transactional_id):
        return dict.fromkeys(partitions, denial(TRANSACTIONAL_ID).code)
    codes: dict[TopicPartition, int] = {}
    async for key in in_portions(partitions):
        codes[key] = _refusal(key, context, is_client=is_client)
    if any(codes.values()):
        async for key in in_portions(partitions):
            codes[key] = codes[key] or errors.OperationNotAttemptedError.code
        return codes
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    try:
        if transaction.verify_only:
            found = await context.transactions.verify_partitions(
                transaction.transactional_id, producer_id=producer_id, producer_epoch=epoch, asked=partitions
            )
            return {key: _known_code(code, context) for key, code in found.items()}
        await context.transactions.add_partitions(
            transaction.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            added=partitions,
            version=_CLIENT_VERSION if is_client else _BROKER_VERSION,
            may_wait=not is_client,
        )
    except errors.KafkaError as error:
        return dict.fromkeys(partitions, transaction_error(error, context, fenced_since=_FENCED_SINCE))
    return dict.fromkeys(partitions, 0)


def _known_code(code: int, context: RequestContext) -> int:
    """Return a code that the version has."""
    if code == errors.TransactionAbortableError.code and context.version < _ABORTABLE_SINCE:
        return errors.InvalidTxnStateError.code
    return code


def _refusal(key: TopicPartition, context: RequestContext, *, is_client: bool) -> int:
    if is_client and (key.topic in INTERNAL_TOPICS or context.denied(WRITE, ResourceType.TOPIC, key.topic)):
        return errors.TopicAuthorizationFailedError.code
    return 0 if context.metadata.image.partition(*key) is not None else errors.UnknownTopicOrPartitionError.code


async def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    named = (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)
    return [partition async for partition in in_portions(named)]


def _result(number: int, code: int) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)


async def _results(codes: Mapping[TopicPartition, int]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    async for (topic, number), code in in_portions(codes.items()):
        topics.setdefault(topic, []).append(_result(number, code))
    return [AddPartitionsToTxnTopicResult(name=name, results_by_partition=results) for name, results in topics.items()]
