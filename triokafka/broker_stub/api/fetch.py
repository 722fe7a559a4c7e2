"""Fetch (API key 1): read record batches of many partitions and wait for ``min_bytes`` up to ``max_wait_ms``.

Versions 4-18. v4: isolation level. v5: log start offset. v7: fetch sessions (KIP-227). v9: the client's leader epoch
(KIP-320). v10: zstd. v11: the client's rack (KIP-392). v12: flexible, detection of diverging logs (KIP-595).
v13: topic ids (KIP-516). v15: the follower's broker epoch (KIP-903). v16: addresses of the new leaders in errors
(KIP-951). v17: directory ids (KIP-853). v18: the follower's high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from triokafka import errors
from triokafka.broker_stub.api.leaders import current_leader, node_endpoints
from triokafka.broker_stub.authorizer import Access, or_cluster
from triokafka.broker_stub.replica.read_result import LeaderHint, ReadOutcome
from triokafka.broker_stub.replica.replica_reader import FetchParameters
from triokafka.broker_stub.request.client_quotas import QuotaKind
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import BUDGET
from triokafka.network.fetch_sessions.fetch_context import FetchContext
from triokafka.network.fetch_sessions.fetch_session import PartitionKey, TopicKey, WantedPartition
from triokafka.network.fetch_sessions.fetch_session_cache import FINAL_EPOCH
from triokafka.protocol.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from triokafka.security.acl import AclOperation, ResourceType
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.faults.faults import Faults
    from triokafka.broker_stub.metadata.image import MetadataImage
    from triokafka.broker_stub.replica.partition_rest import PartitionRest
    from triokafka.broker_stub.replica.replica_manager import ReplicaManager
    from triokafka.broker_stub.request.services import BrokerServices

_FOLLOWER_READS_SINCE: Final = 11
_LEADER_HINTS_SINCE: Final = 12
_LEADER_ADDRESSES_SINCE: Final = 16
_NOT_LEADER: Final = errors.NotLeaderForPartitionError.code
_TOPIC_IDS_SINCE: Final = 13
_READ_COMMITTED: Final = 1
_NO_LIMIT: Final = 2**31 - 1
_AT_ONCE: Final = 500
"""Partitions that are looked up before other tasks may run."""

# Defaults that almost every partition of a response shares. Read-only: one response contains hundreds of partitions.
_NO_EPOCH: Final = EpochEndOffset()
_NO_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()
_UNRESOLVED: Final = frozenset(
    {
        errors.UnknownTopicOrPartitionError.code,
        errors.TopicAuthorizationFailedError.code,
        errors.UnknownTopicIdError.code,
    }
)
"""Errors of partitions that were not read. Kafka's list of aborted transactions is empty for them, and else null."""


def _failed(request: FetchRequest, context: RequestContext, code: int, message: str) -> FetchResponse:
    """Return the error at the top level (since v7) and, before topic ids (v13), at every partition."""
    if context.version >= _TOPIC_IDS_SINCE:
        return FetchResponse(error_code=code)
    failed = ReadOutcome(code)
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    _partition(partition.partition, failed, context.version, read_committed=False)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


@handles(
    FetchRequest,
    versions=range(4, 19),
    accesses=[
        or_cluster(AclOperation.CLUSTER_ACTION),  # followers need only this permission
        Access(AclOperation.READ, ResourceType.TOPIC, lambda request: [t.topic for t in request.topics]),
    ],
    on_error=_failed,
)
async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Read the partitions of the fetch session; wait for ``min_bytes``, ``max_wait_ms`` or an error."""
    broker, metadata = context.broker, context.metadata
    if request.isolation_level not in (0, _READ_COMMITTED):
        raise errors.InvalidRequestError(f"isolation level {request.isolation_level} is unknown: it must be 0 or 1")
    version, image = context.header.api_version, metadata.image
    by_id = version >= _TOPIC_IDS_SINCE
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    follower = replica_id >= 0
    max_bytes = min(request.max_bytes, broker.config.current.fetch_max_bytes, _most_at_once(replica_id, context))
    parameters = FetchParameters(
        replica_id=replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),  # a response never exceeds max_bytes, so do not wait for more
        max_bytes=max_bytes,
        read_committed=request.isolation_level == _READ_COMMITTED,
        replica_epoch=request.replica_state.replica_epoch if version >= 15 else -1,
        leader_only=follower or version < _FOLLOWER_READS_SINCE,
        rack=request.rack_id,
    )
    replicas = broker.replicas
    faults = broker.faults if broker.faults.armed and not follower else None
    refused = context.follower and context.denied_for_cluster(AclOperation.CLUSTER_ACTION)
    reader = None
    if request.session_epoch > FINAL_EPOCH and (not refused if follower else faults is None and broker.allows_all):
        # Otherwise faults and permissions may differ with every fetch, so each fetch reads all partitions.
        reader = replicas.reads_as(parameters)
    session = broker.fetch_sessions().context_for(
        session_id=request.session_id,
        epoch=request.session_epoch,
        wanted=(await _wanted(request, by_id)).values(),
        forgotten=[
            (topic.topic_id if by_id else topic.topic, number)
            for topic in request.forgotten_topics_data
            for number in topic.partitions
        ],
        privileged=follower,
        by_topic_id=by_id,
        now=context.now,
        reader=reader,
    )
    plan = _ReadPlan(session, context, image, faults=faults, refused=refused)
    many = len(plan.partitions) > BUDGET
    if many:
        await plan.make()
        await trio.lowlevel.checkpoint()  # with many partitions, each of the following steps takes long
        plan.renew()
    else:
        plan.look_up(plan.partitions)
    outcomes, size, urgent = await replicas.read(plan.readable, parameters, before_waiting=context.yield_slot)
    replicas.traffic.fetches += session.resting
    waits = size < parameters.min_bytes and parameters.max_wait_ms > 0 and bool(plan.readable or session.resting)
    if waits and not urgent and not plan.failed:
        del outcomes  # release the memory of the first read while the request waits
        if many:
            await trio.lowlevel.checkpoint()
        plan.renew()
        try:
            waiting = parameters._replace(max_wait_ms=_longest_wait_ms(request, broker))
            operation = replicas.delay_fetch(plan.readable, waiting, session)
            if operation is not None:
                await context.park(operation)
        finally:
            session.watch(None)
        if reader is not None and replicas.reads_as(parameters) != reader:
            reader = None  # another process of the follower has registered
            session.wake_all()
        plan.renew()
        outcomes, size, urgent = await replicas.read(
            plan.readable, parameters, before_waiting=context.yield_slot, has_waited=True
        )
        replicas.traffic.fetches += session.resting
    readable, failed = plan.readable, plan.failed
    if many:
        await trio.lowlevel.checkpoint()
    if by_id and metadata.image is not image:
        # During the wait, a topic may have been deleted and created again with the same name and another id.
        for key, wanted in readable:
            if wanted.topic not in metadata.image.topics_by_id:
                outcomes[key] = ReadOutcome(errors.UnknownTopicIdError.code)
    if not follower and context.count_towards(QuotaKind.FETCH, size):
        # The response has no records, so the bytes do not count. The client repeats the fetch after the throttle time.
        broker.quotas.take_back(QuotaKind.FETCH, context.user, context.client_id, size, broker.world.now())
        throttled = session.throttle()
        return FetchResponse(error_code=throttled.error_code, session_id=throttled.session_id)
    replicas.traffic.answered(size, follower=follower)
    if size and not follower:
        for key, outcome in outcomes.items():
            if given := len(outcome.records):
                replicas.traffic.consumed(key.topic, given)
    # Partitions that have woken after the read are left to the next fetch.
    results: dict[PartitionKey, ReadOutcome] = {
        wanted.key: outcomes[key] for key, wanted in readable if key in outcomes
    }
    results.update(failed)
    if many:
        for _ in session.prepare(results):
            await trio.lowlevel.checkpoint()
    answered = session.respond(
        results, broker.world.now, None if reader is None else partial(_rest, replicas, parameters, image)
    )
    context.items = len(answered.outcomes)
    response = FetchResponse(
        error_code=answered.error_code,
        session_id=answered.session_id,
        responses=await _responses(answered.outcomes, version, read_committed=parameters.read_committed),
    )
    if version >= _LEADER_ADDRESSES_SINCE and (urgent or failed):
        hints = [outcome.leader_hint for outcome in answered.outcomes.values() if outcome.leader_hint is not None]
        response.node_endpoints = node_endpoints([hint.leader_id for hint in hints], context, NodeEndpoint)
    return response


class _ReadPlan:
    """The partitions that a request reads: those that can be read, and the errors of the others."""

    def __init__(
        self,
        session: FetchContext[ReadOutcome],
        context: RequestContext,
        image: MetadataImage,
        *,
        faults: Faults | None,
        refused: bool,
    ) -> None:
        self.partitions = session.partitions
        self.readable: list[tuple[TopicPartition, WantedPartition]] = []
        self.failed: dict[PartitionKey, ReadOutcome] = {}
        self._session = session
        self._context = context
        self._image = image
        self._faults = faults
        self._refused = refused

    async def make(self) -> None:
        """Look up very many partitions, with checkpoints."""
        partitions = self.partitions
        for start in range(0, len(partitions), _AT_ONCE):
            if start:
                await trio.lowlevel.checkpoint()
            self.look_up(partitions[start : start + _AT_ONCE])

    def renew(self) -> None:
        """Look up the partitions again if some have woken."""
        partitions = self._session.partitions
        if partitions is not self.partitions:
            self.partitions = partitions
            self.readable, self.failed = [], {}
            self.look_up(partitions)

    def look_up(self, partitions: Sequence[WantedPartition]) -> None:
        """Add partitions to the plan."""
        topic: TopicKey | None = None
        name, code, faults = "", 0, self._faults
        for wanted in partitions:
            if wanted.topic is not topic:  # partitions of one topic are usually adjacent: resolve the topic once
                topic = wanted.topic
                name, code = _resolve(topic, self._image, self._context, refused=self._refused)
            if code:
                self.failed[wanted.key] = ReadOutcome(code)
                continue
            fault = faults.for_item(1, name, wanted.partition) if faults is not None else None
            if fault is None:
                self.readable.append((TopicPartition(name, wanted.partition), wanted))
                continue
            outcome = self.failed[wanted.key] = ReadOutcome(fault.error.code)
            if fault.error.code == _NOT_LEADER:
                leader = fault.leader or current_leader(name, wanted.partition, self._context)
                outcome.leader_hint = LeaderHint(*leader)


def _rest(
    replicas: ReplicaManager,
    parameters: FetchParameters,
    image: MetadataImage,
    wanted: WantedPartition,
    outcome: ReadOutcome,
    wake: Callable[[], None],
) -> PartitionRest | None:
    """Let a partition rest in the session if it can; see `ReplicaReader.rest_of`."""
    topic = wanted.topic
    if isinstance(topic, UUID):
        found = image.topics_by_id.get(topic)
        if found is None:
            return None
        topic = found.name
    return replicas.rest_of(parameters, TopicPartition(topic, wanted.partition), wanted, outcome, wake)


def _longest_wait_ms(request: FetchRequest, broker: BrokerServices) -> int:
    """Return how long a Fetch may wait: no longer than a connection may be idle.

    The broker reads nothing while a request waits, so it does not notice that a client has gone. A client that asks for
    a wait of weeks, and goes, must not hold a connection for weeks.
    """
    max_idle_ms = broker.config.current.connections_max_idle_ms
    return min(request.max_wait_ms, max_idle_ms) if max_idle_ms > 0 else request.max_wait_ms


def _most_at_once(replica_id: int, context: RequestContext) -> int:
    """Return the largest response in bytes that the client's fetch quota can ever admit.

    The quota would throttle a larger response every time, and the client would never receive it.
    """
    quotas = context.services.quotas
    if replica_id >= 0 or not quotas.limits(QuotaKind.FETCH):
        return _NO_LIMIT
    return int(min(quotas.most_at_once(context.user, context.client_id), _NO_LIMIT))


async def _wanted(request: FetchRequest, by_id: bool) -> dict[PartitionKey, WantedPartition]:
    """Return the partitions of a request, each once: the last entry of a partition counts, as in Kafka."""
    found: dict[PartitionKey, WantedPartition] = {}
    spent = 0
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            spent += 1
            if not spent % _AT_ONCE:
                await trio.lowlevel.checkpoint()
            number = partition.partition
            found[key, number] = WantedPartition(
                key,
                number,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )
    return found


def _resolve(topic: TopicKey, image: MetadataImage, context: RequestContext, *, refused: bool) -> tuple[str, int]:
    """Return the topic's name, or an empty name and the error code for its partitions.

    The error does not reveal whether a topic exists to a client that may not read it. ``refused``: the client claims to
    be a follower, and may not.
    """
    if refused:
        return "", errors.TopicAuthorizationFailedError.code
    if isinstance(topic, UUID):
        found = image.topics_by_id.get(topic)
        if found is None:
            return "", errors.UnknownTopicIdError.code
        name = found.name
    else:
        name = topic
    denied = not context.follower and context.denied(AclOperation.READ, ResourceType.TOPIC, name)
    return name, errors.TopicAuthorizationFailedError.code if denied else 0


async def _responses(
    outcomes: Mapping[PartitionKey, ReadOutcome], version: int, *, read_committed: bool
) -> list[FetchableTopicResponse]:
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for spent, ((topic, number), outcome) in enumerate(outcomes.items(), 1):
        if not spent % _AT_ONCE:
            await trio.lowlevel.checkpoint()
        response = topics.get(topic)
        if response is None:
            response = topics[topic] = FetchableTopicResponse()
            if isinstance(topic, UUID):
                response.topic_id = topic
            else:
                response.topic = topic
        response.partitions.append(_partition(number, outcome, version, read_committed=read_committed))
    return list(topics.values())


def _partition(number: int, outcome: ReadOutcome, version: int, *, read_committed: bool) -> PartitionData:
    data = PartitionData(
        partition_index=number,
        error_code=outcome.error_code,
        high_watermark=outcome.high_watermark,
        last_stable_offset=outcome.last_stable_offset,
        log_start_offset=outcome.log_start_offset,
        diverging_epoch=_NO_EPOCH,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=_aborted(outcome) if read_committed or outcome.error_code else None,
        records=outcome.records,  # type: ignore[arg-type]  # the encoder passes file slices on unread
    )
    if outcome.preferred_read_replica >= 0 and version >= _FOLLOWER_READS_SINCE:
        data.preferred_read_replica = outcome.preferred_read_replica
    if outcome.diverging_epoch is not None:
        epoch, end_offset = outcome.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if outcome.leader_hint is not None and version >= _LEADER_HINTS_SINCE:
        leader_id, leader_epoch = outcome.leader_hint
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return data


def _aborted(outcome: ReadOutcome) -> list[AbortedTransaction] | None:
    if outcome.error_code:
        return [] if outcome.error_code in _UNRESOLVED else None
    return [AbortedTransaction(producer_id=number, first_offset=offset) for number, offset in outcome.aborted]
