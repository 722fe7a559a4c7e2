"""DescribeAcls (API key 29): list the ACLs in the metadata of the cluster.

Versions 1-3. v2: flexible. v3: ACLs for user resources.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import CloseConnectionError, handles
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.protocol.api.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from triokafka.security.acl import AclBindingFilter, AclOperation, AclPatternType, AclPermissionType, ResourceType


def require_stored_acls(context: RequestContext, message: str = "No Authorizer is configured.") -> None:
    """Raise `SecurityDisabledError` if the ACLs of the cluster have no effect on this node."""
    if not context.services.authorizer.stores_acls:
        raise errors.SecurityDisabledError(message)


@handles(DescribeAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.DESCRIBE)])
async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Return the ACLs that match the filter, grouped by resource pattern, from this node's own image."""
    require_stored_acls(context, "No Authorizer is configured on the broker")
    wanted = AclBindingFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        AclPatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        AclPermissionType(request.permission_type),
    )
    if 0 in (request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type):
        raise CloseConnectionError("the request has UNKNOWN elements")  # as Kafka
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    budget = WorkBudget()
    for acl in context.metadata.image.acls:
        await budget.spend(1)
        if not wanted.matches(acl):
            continue
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        )
        context.items += 1
    return DescribeAclsResponse(resources=list(resources.values()))
