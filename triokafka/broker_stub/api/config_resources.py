"""The resources in requests for configurations: permissions, and errors for all resources of a request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from triokafka.broker_stub.authorizer import Access, denial
from triokafka.broker_stub.metadata.config_resource_checks import check_broker_name
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.broker_stub.request.context import RequestContext
from triokafka.errors import InvalidRequestError
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType

ResultT = TypeVar("ResultT")

_NOT_ALLOWED = "Authorization failed."


def _of(resource_type: int) -> ResourceType:
    """Return the ACL resource type: topic and group for themselves, cluster for every other resource type."""
    match resource_type:
        case ConfigResourceType.TOPIC:
            return ResourceType.TOPIC
        case ConfigResourceType.GROUP:
            return ResourceType.GROUP
        case _:
            return ResourceType.CLUSTER


def config_accesses(operation: AclOperation) -> list[Access]:
    """Return the accesses for a request that has a ``resources`` field."""

    def names(resource_type: ResourceType) -> Access:
        def of_request(request: Any) -> Iterable[str]:
            return [
                CLUSTER_NAME if resource_type is ResourceType.CLUSTER else resource.resource_name
                for resource in request.resources
                if _of(resource.resource_type) is resource_type
            ]

        return Access(operation, resource_type, of_request)

    return [names(kind) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)]


def denied_resources(
    resources: Iterable[Any], operation: AclOperation, context: RequestContext
) -> dict[tuple[int, str], ItemError]:
    """Return the error of each resource for which the client lacks permission, by resource type and name."""
    denied = {}
    for resource in resources:
        kind = _of(resource.resource_type)
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
        if context.denied(operation, kind, name):
            denied[resource.resource_type, resource.resource_name] = ItemError(denial(kind).code, _NOT_ALLOWED)
    return denied


def refused_resources(
    resources: Iterable[Any], operation: AclOperation, context: RequestContext
) -> dict[tuple[int, str], ItemError]:
    """Return the errors of `denied_resources`, and those of the resources of other brokers.

    A broker alters only itself, as in Kafka; a controller, which takes forwarded requests, alters any broker.
    """
    found = denied_resources(resources, operation, context)
    if context.is_on_controller:
        return found
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    for key, count in times.items():
        kind, name = key
        if kind == ConfigResourceType.BROKER and name and count == 1 and key not in found:
            try:
                check_broker_name(name, context.node_id)
            except InvalidRequestError as error:
                found[key] = ItemError.of(error)
    return found


def failed_resources(
    result: Callable[..., ResultT], resources: Iterable[Any], code: int, message: str
) -> list[ResultT]:
    """Return a result with the same error for each resource."""
    return [
        result(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    ]
