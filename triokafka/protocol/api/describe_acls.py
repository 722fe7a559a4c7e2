"""DescribeAcls (API key 29): which access rules exist.

Versions 1–3; flexible from 2. v3: rules about users.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, String


class DescribeAclsRequest(Request["DescribeAclsResponse"], api_key=29, versions="1-3", flexible="2+"):
    """Ask for the rules that match a filter."""

    resource_type_filter: int = field(Int8, doc="The resource type; 1 matches every type.")
    resource_name_filter: str | None = fields.acl_resource_name_filter(nullable="0+")
    pattern_type_filter: int = fields.acl_pattern_type_filter(versions="1+")
    principal_filter: str | None = field(String, nullable="0+", doc="The ACL's principal; null for every principal.")
    host_filter: str | None = field(String, nullable="0+", doc="The client's address; null matches every address.")
    operation: int = field(Int8, doc="The operation, by Kafka's number; 1 in a filter matches every operation.")
    permission_type: int = field(Int8, doc="Whether the rule denies (2) or allows (3); 1 in a filter matches both.")


class AclDescription(Struct):
    """One rule."""

    principal: str = field(String, doc="Whom the rule is about, such as ``User:alice``.")
    host: str = field(String, doc="The client's address that the rule is about; ``*`` for every one.")
    operation: int = field(Int8, doc="The operation, by Kafka's number; 1 in a filter matches every operation.")
    permission_type: int = field(Int8, doc="Whether the rule denies (2) or allows (3); 1 in a filter matches both.")


class DescribeAclsResource(Struct):
    """A resource with rules."""

    resource_type: int = fields.acl_resource_type()
    resource_name: str = field(String, doc="Name of the resource, or its prefix.")
    pattern_type: int = fields.acl_pattern_type(versions="1+")
    acls: list[AclDescription] = field(Array(AclDescription), doc="The rules about the resource.")


class DescribeAclsResponse(Response, api_key=29, versions="1-3", flexible="2+"):
    """The rules, by the resource that they are about."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = fields.acl_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    resources: list[DescribeAclsResource] = field(Array(DescribeAclsResource), doc="The resources.")
