"""Produce (API key 0): append record batches to partitions.

Versions 3-13. ApiVersions advertises 0-13, since librdkafka misreads a higher minimum (KAFKA-18659). v3: transactional
id, record batches v2. v5: log start offset. v7: zstd. v8: errors of single records (KIP-467). v9: flexible.
v10: the current leader and its address in errors (KIP-951). v11: TRANSACTION_ABORTABLE. v12: the request adds its
partitions to the transaction (KIP-890). v13: topic ids (KIP-516).

The request's bytes count towards the client's ``producer_byte_rate``, even if the append fails. With acks=0 the broker
sends no response and closes the connection after an error.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import islice
from struct import Struct
from typing import Final

import trio

from triokafka import errors
from triokafka.broker_stub.api.leaders import current_leader, node_endpoints
from triokafka.broker_stub.api.transaction_errors import TRANSACTIONAL_ID, WRITE
from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.coordinators.transaction_verifier import AppendingProducer, TransactionVerifier
from triokafka.broker_stub.faults.faults import INJECTED, Fault, Faults
from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch, prevalidate
from triokafka.broker_stub.log.verification_guard import VerificationGuard
from triokafka.broker_stub.replica.append_outcome import AppendOutcome
from triokafka.broker_stub.request.client_quotas import QuotaKind
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.deferred_response import DeferredResponse
from triokafka.broker_stub.request.registry import CloseConnectionError, handles
from triokafka.broker_stub.work_budget import BUDGET, run_within_budget
from triokafka.protocol.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from triokafka.protocol.repeated_requests import KnownRequest
from triokafka.protocol.templates import AnswerTemplate, FilledAnswer
from triokafka.records import iter_batches
from triokafka.records.batch import HEADER_SIZE, TRANSACTIONAL
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import Buffer, TopicPartition

_TOPIC_IDS_SINCE: Final = 13
_LEADER_HINTS_SINCE: Final = 10
_LOG_START_SINCE: Final = 5
_ZSTD_SINCE: Final = 7
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22  # the lower byte of a batch's attributes
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43
"""The place of a batch's producer id, epoch and base sequence."""
_ABORTABLE_SINCE: Final = 11
_ADDS_SINCE: Final = 12
_PASSING: Final = frozenset(
    {
        errors.NetworkExceptionError.code,
        errors.CoordinatorLoadInProgressError.code,
        errors.CoordinatorNotAvailableError.code,
        errors.NotCoordinatorError.code,
    }
)
"""Failures to ask the transaction coordinator. No producer expects these codes from a partition's leader."""
_NO_LEADER: Final = LeaderIdAndEpoch()  # shared and read-only
_NOT_LEADER: Final = errors.NotLeaderForPartitionError.code


def _failed(request: ProduceRequest, context: RequestContext, code: int, message: str) -> ProduceResponse | None:
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=-1, error_message=message or None
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


@handles(
    ProduceRequest,
    versions=range(3, 14),
    advertised=range(0, 14),
    accesses=[
        Access(WRITE, TRANSACTIONAL_ID, lambda request: [request.transactional_id or ""]),
        Access(AclOperation.WRITE, ResourceType.TOPIC, lambda request: [t.name for t in request.topic_data]),
    ],
    on_error=_failed,
)
async def produce(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | FilledAnswer | DeferredResponse | None:
    """Append to each partition; with acks=all, the response waits for the in-sync replicas.

    With acks=1 or acks=all it also waits for the flush that ``flush.messages`` requires.
    """
    transactional_id = request.transactional_id
    if (
        transactional_id is not None
        and not context.services.allows_all
        and _has_transactional_records(request)  # others need no permission for the id, as in Kafka
        and context.denied(WRITE, TRANSACTIONAL_ID, transactional_id)
    ):
        raise denial(TRANSACTIONAL_ID)(f"{context.principal} may not use the transactional id {transactional_id!r}")
    broker, version, acks = context.broker, context.header.api_version, request.acks
    replicas = broker.replicas
    faults = broker.faults if broker.faults.armed else None
    entries: dict[TopicPartition, Buffer | PrevalidatedBatch] = {}
    refused: dict[tuple[int, int], AppendOutcome] = {}
    first: dict[TopicPartition, tuple[int, int]] = {}  # a partition's first position in the request
    names: list[str] = []
    spent = 0
    for number, topic in enumerate(request.topic_data):
        name, error = _resolve(topic, context)
        names.append(name)
        for data in topic.partition_data:
            spent += 1
            if not spent % BUDGET:
                await trio.lowlevel.checkpoint()
            if error is not None:
                refused[number, data.index] = AppendOutcome(error.code)
                continue
            key = TopicPartition(name, data.index)
            fault = faults.for_item(0, name, data.index) if faults is not None else None
            try:
                if key in first:
                    entries.pop(key, None)
                    twice = f"{key} is in the request twice"
                    refused[first[key]] = AppendOutcome(errors.InvalidRequestError.code, error_message=twice)
                    raise errors.InvalidRequestError(twice)
                first[key] = number, data.index
                if fault is not None:
                    refused[number, data.index] = _injected(AppendOutcome(), fault)
                else:
                    entries[key] = _checked(data.records, version, transactional_id)
            except errors.BrokerResponseError as failure:
                refused[number, data.index] = _refusal(failure, key, context)
    work = replicas.batches_to_prevalidate(entries)
    if work:
        entries.update(await prevalidate(broker.world, work, lanes=broker.prevalidation_slots, slot=context.slot))
        work.clear()
        _refuse_deleted(entries, refused, first, request, context)
    guards: Mapping[TopicPartition, VerificationGuard | None] = {}
    if transactional_id is not None and (unverified := _unverified(entries, broker.transaction_verifier)):
        guards = await _admit(transactional_id, unverified, entries, refused, first, context)
        _refuse_deleted(entries, refused, first, request, context)
    many = spent > BUDGET
    if len(entries) <= BUDGET:
        outcomes = replicas.append(entries, required_acks=acks, guards=guards)
    else:
        outcomes, left = {}, iter(entries.items())
        while some := dict(islice(left, BUDGET)):
            _refuse_deleted(some, refused, first, request, context)
            outcomes.update(replicas.append(some, required_acks=acks, guards=guards))
            await trio.lowlevel.checkpoint()
    if acks == -1 or (acks == 1 and any(outcome.flushing for outcome in outcomes.values())):
        operation = replicas.delay_produce(outcomes, request.timeout_ms, required_acks=acks)
        if operation is not None:
            entries.clear()
            _forget_records(request, context)
            if not many:
                return DeferredResponse(
                    operation, partial(_respond, request, context, names, outcomes, refused, faults)
                )
            await context.park(operation)
    if not many:
        return _respond(request, context, names, outcomes, refused, faults)
    return await run_within_budget(_steps_to_respond(request, context, names, outcomes, refused, faults))


def _respond(
    request: ProduceRequest,
    context: RequestContext,
    names: Sequence[str],
    outcomes: dict[TopicPartition, AppendOutcome],
    refused: Mapping[tuple[int, int], AppendOutcome],
    faults: Faults | None,
) -> ProduceResponse | FilledAnswer | None:
    """Return the response once the outcomes are known."""
    if context.known is not None and not refused and faults is None and context.header.api_version >= _LOG_START_SINCE:
        (outcome,) = outcomes.values()
        if not outcome.error_code and request.acks:
            context.count_towards(QuotaKind.PRODUCE, context.size)
            return _filled(context.known, outcome, context.header.api_version)
    steps = _steps_to_respond(request, context, names, outcomes, refused, faults)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            response: ProduceResponse | FilledAnswer | None = end.value
            return response


def _steps_to_respond(
    request: ProduceRequest,
    context: RequestContext,
    names: Sequence[str],
    outcomes: dict[TopicPartition, AppendOutcome],
    refused: Mapping[tuple[int, int], AppendOutcome],
    faults: Faults | None,
) -> Generator[int, None, ProduceResponse | FilledAnswer | None]:
    """Return the response once the outcomes are known. Yields the amount of work of each step."""
    version, acks = context.header.api_version, request.acks
    if faults is not None:
        _answer_falsely(outcomes, faults)
    context.count_towards(QuotaKind.PRODUCE, context.size)
    if acks == 0:
        for outcome in (*outcomes.values(), *refused.values()):
            if outcome.error_code:
                raise CloseConnectionError(
                    f"a produce with acks=0 failed with error {outcome.error_code} ({outcome.error_message})"
                )
        return None
    responses = []
    leaders: list[int] = []
    for number, topic in enumerate(request.topic_data):
        partitions = []
        for position, data in enumerate(topic.partition_data, 1):
            if not position % BUDGET:
                yield BUDGET
            index = data.index
            outcome = (refused and refused.get((number, index))) or outcomes[TopicPartition(names[number], index)]
            if not outcome.error_code:
                partitions.append(_appended(index, outcome))
                continue
            answer = _not_appended(index, outcome)
            if outcome.error_code == _NOT_LEADER and version >= _LEADER_HINTS_SINCE:
                leader_id, leader_epoch = outcome.leader or current_leader(names[number], index, context)
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                leaders.append(leader_id)
            partitions.append(answer)
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    if not leaders:
        return ProduceResponse(responses=responses)
    return ProduceResponse(responses=responses, node_endpoints=node_endpoints(leaders, context, NodeEndpoint))


def _resolve(topic: TopicProduceData, context: RequestContext) -> tuple[str, type[errors.BrokerResponseError] | None]:
    """Return the topic's name, and the error for all of its partitions if there is one."""
    name = topic.name
    if context.header.api_version >= _TOPIC_IDS_SINCE:
        found = context.services.metadata.image.topics_by_id.get(topic.topic_id)
        if found is None:
            return "", errors.UnknownTopicIdError
        name = found.name
    if context.denied(AclOperation.WRITE, ResourceType.TOPIC, name):
        return name, denial(ResourceType.TOPIC)
    return name, None


def _refuse_deleted(
    entries: dict[TopicPartition, Buffer | PrevalidatedBatch],
    refused: dict[tuple[int, int], AppendOutcome],
    first: dict[TopicPartition, tuple[int, int]],
    request: ProduceRequest,
    context: RequestContext,
) -> None:
    """Refuse records for topics that were deleted while the handler yielded.

    A new topic with the same name must not receive them.
    """
    if context.version < _TOPIC_IDS_SINCE:
        return
    there = context.metadata.image.topics_by_id
    for key in list(entries):
        number, index = first[key]
        if request.topic_data[number].topic_id not in there:
            del entries[key]
            refused[number, index] = AppendOutcome(errors.UnknownTopicIdError.code)


def _refusal(failure: errors.BrokerResponseError, key: TopicPartition, context: RequestContext) -> AppendOutcome:
    if context.metadata.image.partition(*key) is None:
        failure = errors.UnknownTopicOrPartitionError(f"{key} does not exist")
    return AppendOutcome(failure.code, error_message=str(failure))


def _forget_records(request: ProduceRequest, context: RequestContext) -> None:
    """Release the records from memory while the response waits for replicas or the disk: the log already has them."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None
    if context.let_go is not None:
        context.let_go()


def _checked(records: Buffer | None, version: int, transactional_id: str | None) -> Buffer:
    if not records:
        raise errors.InvalidRecordError("no record batch: a Produce request needs exactly one batch per partition")
    if transactional_id is None and _is_transactional(records):
        raise errors.TransactionalIdAuthorizationFailedError("records of a transaction need a transactional id")
    if version < _ZSTD_SINCE and any(batch.compression == "zstd" for batch in iter_batches(records)):
        raise errors.UnsupportedCompressionTypeError(f"zstd needs Produce version {_ZSTD_SINCE}, this is {version}")
    return records


def _has_transactional_records(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and _is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _is_transactional(records: Buffer) -> bool:
    return len(records) > _ATTRIBUTES and bool(records[_ATTRIBUTES] & TRANSACTIONAL) and records[_MAGIC] == 2


def _unverified(
    entries: Mapping[TopicPartition, Buffer | PrevalidatedBatch], verifier: TransactionVerifier
) -> dict[tuple[int, int], dict[TopicPartition, int]]:
    """Return the base sequences, by producer and partition, of the batches that may begin a transaction there."""
    found: dict[tuple[int, int], dict[TopicPartition, int]] = {}
    for key, data in entries.items():
        records = data.data if isinstance(data, PrevalidatedBatch) else data
        if _is_transactional(records) and len(records) >= HEADER_SIZE:
            producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
            if not verifier.is_open(key, producer_id, epoch):
                found.setdefault((producer_id, epoch), {})[key] = sequence
    return found


async def _admit(
    transactional_id: str,
    unverified: Mapping[tuple[int, int], Mapping[TopicPartition, int]],
    entries: dict[TopicPartition, Buffer | PrevalidatedBatch],
    refused: dict[tuple[int, int], AppendOutcome],
    first: Mapping[TopicPartition, tuple[int, int]],
    context: RequestContext,
) -> Mapping[TopicPartition, VerificationGuard | None]:
    """Verify that the batches are part of their transaction; move the others to ``refused``.

    From v12 on, the partitions are added to the transaction. Returns the guards to append with.
    """
    guards: dict[TopicPartition, VerificationGuard | None] = {}
    for (producer_id, epoch), wanted in unverified.items():
        producer = AppendingProducer(
            transactional_id,
            producer_id,
            epoch,
            adds=context.version >= _ADDS_SINCE,
            knows_abortable=context.version >= _ABORTABLE_SINCE,
        )
        verifier = context.broker.transaction_verifier
        admission = await verifier.admit(producer, wanted, waiting=context.without_slot)
        guards.update(admission.guards)
        for key, code in admission.errors.items():
            del entries[key]
            refused[first[key]] = _not_admitted(code, adds=producer.adds)
    return guards


def _not_admitted(code: int, *, adds: bool) -> AppendOutcome:
    """Return the outcome of a batch that is not admitted. Producers repeat it after a passing error."""
    if code in _PASSING or (code == errors.ConcurrentTransactionsError.code and not adds):
        unverified = "Unable to verify the partition has been added to the transaction. Underlying error:"
        message = f"{unverified} {errors.for_code(code).message}"
        return AppendOutcome(errors.NotEnoughReplicasError.code, error_message=message)
    if code == errors.InvalidTxnStateError.code:
        return AppendOutcome(code, error_message="Partition was not added to the transaction")
    return AppendOutcome(code)


def _injected(outcome: AppendOutcome, fault: Fault) -> AppendOutcome:
    outcome.error_code, outcome.error_message, outcome.leader = fault.error.code, INJECTED, fault.leader
    return outcome


def _answer_falsely(outcomes: dict[TopicPartition, AppendOutcome], faults: Faults) -> None:
    """Let armed faults turn successes into errors after the append."""
    for (topic, partition), outcome in outcomes.items():
        if not outcome.error_code:
            fault = faults.for_item(0, topic, partition, after_append=True)
            if fault is not None:
                _injected(outcome, fault)


def _appended(index: int, outcome: AppendOutcome) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=outcome.base_offset,
        log_append_time_ms=outcome.log_append_time_ms,
        log_start_offset=outcome.log_start_offset,
        current_leader=_NO_LEADER,
    )


def _one_appended(
    topic: TopicProduceData, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> ProduceResponse:
    appended = PartitionProduceResponse(
        index=topic.partition_data[0].index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[appended])]
    )


def _filled(known: KnownRequest, outcome: AppendOutcome, version: int) -> FilledAnswer:
    """Fill the response template of a producer that repeats its request for one partition with new records."""
    template = known.answer
    if template is None:
        template = known.answer = AnswerTemplate(partial(_one_appended, known.request.topic_data[0]), version, 3)
    return FilledAnswer(template, (outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset))


def _not_appended(index: int, outcome: AppendOutcome) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=outcome.error_code,
        base_offset=-1,
        log_start_offset=outcome.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
            for number, text in outcome.record_errors
        ],
        error_message=outcome.error_message,
    )
