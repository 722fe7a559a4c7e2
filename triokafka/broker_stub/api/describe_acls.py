"""DescribeAcls (API key 29): list ACLs. This broker stores none: its authorizer is a Python object.

Versions 1-3. v2: flexible. v3: ACLs for user resources.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.broker_stub.authorizer import cluster
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.registry import handles
from triokafka.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from triokafka.security.acl import AclOperation

NO_RULES = "No Authorizer is configured."
"""Kafka's error message for CreateAcls and DeleteAcls without an ACL authorizer."""


@handles(DescribeAclsRequest, versions=range(1, 4), accesses=[cluster(AclOperation.DESCRIBE)])
async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Return SECURITY_DISABLED."""
    raise errors.SecurityDisabledError("No Authorizer is configured on the broker")
