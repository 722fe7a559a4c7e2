"""FindCoordinator (API key 10): find the broker that coordinates a group or a transactional id.

Versions 0-6. v1: key types and error messages. v3: flexible. v4: many keys in one request (KIP-699). v5:
TRANSACTION_ABORTABLE. v6: share groups, which this broker refuses.

The first FindCoordinator request creates ``__consumer_offsets``, or ``__transaction_state`` for a transactional id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from triokafka import errors
from triokafka.broker_stub.api.brokers import endpoint_of
from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.coordinators.coordinator_entry import CoordinatorEntry, KeyType
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.security.acl import AclOperation, ResourceType

_BATCHED_SINCE: Final = 4
_NO_ERROR: Final = "NONE"  # Kafka's error message for success in versions 1-3


_RESOURCES: Final = {KeyType.GROUP: ResourceType.GROUP, KeyType.TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def _keys(key_type: KeyType) -> Callable[[FindCoordinatorRequest], Iterable[str]]:
    """Return the function from a request to its keys, if they are of this type."""
    return lambda request: (request.coordinator_keys or [request.key]) if request.key_type == key_type else ()


def _failed(
    request: FindCoordinatorRequest, context: RequestContext, code: int, message: str
) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=[_unknown(key, code, message) for key in request.coordinator_keys])
    return _single(_unknown(request.key, code, message))


@handles(
    FindCoordinatorRequest,
    versions=range(0, 7),
    accesses=[
        Access(AclOperation.DESCRIBE, resource_type, _keys(key_type)) for key_type, resource_type in _RESOURCES.items()
    ],
    on_error=_failed,
)
async def find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Find the leader of each key's partition of the coordinator's topic."""
    entry = context.broker.coordinators.for_key_type(request.key_type)
    if entry is None:
        known = request.key_type == KeyType.SHARE
        raise errors.InvalidRequestError(
            "this broker does not serve share groups" if known else f"there is no coordinator type {request.key_type}"
        )
    resource_type = _RESOURCES[KeyType(request.key_type)]
    if context.version >= _BATCHED_SINCE:
        response, budget = FindCoordinatorResponse(), WorkBudget()
        for key in request.coordinator_keys:
            response.coordinators.append(await _find(key, entry, resource_type, context))
            await budget.spend()
        return response
    return _single(await _find(request.key, entry, resource_type, context))


async def _find(
    key: str, entry: CoordinatorEntry[Any], resource_type: ResourceType, context: RequestContext
) -> Coordinator:
    try:
        if context.denied(AclOperation.DESCRIBE, resource_type, key):
            noun = "group" if resource_type is ResourceType.GROUP else "transactional id"
            raise denial(resource_type)(f"not permitted to describe the {noun} {key!r}")
        topic = await context.topic_creation.ensure(entry.topic.name)
        state = topic.partitions[entry.coordinator.runtime.partition_for(key)]
        if state.leader == context.node_id:
            context.replicas.check_online((entry.topic.name, state.partition))
        leader = context.metadata.image.brokers.get(state.leader)
        addresses = [] if leader is None or leader.fenced else endpoint_of(leader, context.listener)
        if not addresses:
            raise errors.CoordinatorNotAvailableError(f"{entry.topic.name}-{state.partition} has no leader now")
    except errors.KafkaStorageError as error:  # Kafka's controller moves leadership away from an offline replica
        return _unknown(key, errors.CoordinatorNotAvailableError.code, str(error))
    except errors.BrokerResponseError as error:
        return _unknown(key, error.code, str(error))
    host, port = addresses[0]
    return Coordinator(key=key, node_id=state.leader, host=host, port=port)


def _unknown(key: str, code: int, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message or None)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if found.error_code else _NO_ERROR,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )
