"""DescribeAcls (API key 29): access rules. There are none here: the authorizer is a Python object of its own.

Versions 1-3. v2: flexible. v3: rules about users.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from triokafka.security.acl import AclOperation

NO_RULES = "No Authorizer is configured."
"""What Kafka says to changes without an authorizer that keeps rules."""


@handles(DescribeAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.DESCRIBE)])
async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Say that rules are not kept here."""
    raise errors.SecurityDisabledError("No Authorizer is configured on the broker")
