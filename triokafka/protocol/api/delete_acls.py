"""DeleteAcls (API key 31): remove access rules.

Versions 1–3; flexible from 2. v3: rules about users.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, String


class DeleteAclsFilter(Struct):
    """Which rules to remove."""

    resource_type_filter: int = field(Int8, doc="The resource type; 1 matches every type.")
    resource_name_filter: str | None = fields.acl_resource_name_filter(nullable="0+")
    pattern_type_filter: int = fields.acl_pattern_type_filter(versions="1+")
    principal_filter: str | None = field(String, nullable="0+", doc="The ACL's principal; null for every principal.")
    host_filter: str | None = field(String, nullable="0+", doc="The client's address; null matches every address.")
    operation: int = field(Int8, doc="The operation, by Kafka's number; 1 in a filter matches every operation.")
    permission_type: int = field(Int8, doc="Whether the rule denies (2) or allows (3); 1 in a filter matches both.")


class DeleteAclsRequest(Request["DeleteAclsResponse"], api_key=31, versions="1-3", flexible="2+"):
    """Remove the rules that match any of some filters."""

    filters: list[DeleteAclsFilter] = field(Array(DeleteAclsFilter), doc="The filters.")


class DeleteAclsMatchingAcl(Struct):
    """A rule that matched."""

    error_code: int = fields.acl_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    resource_type: int = fields.acl_resource_type()
    resource_name: str = field(String, doc="Name of the resource, or its prefix.")
    pattern_type: int = fields.acl_pattern_type(versions="1+")
    principal: str = field(String, doc="Whom the rule is about, such as ``User:alice``.")
    host: str = field(String, doc="The client's address that the rule is about; ``*`` for every one.")
    operation: int = field(Int8, doc="The operation, by Kafka's number; 1 in a filter matches every operation.")
    permission_type: int = field(Int8, doc="Whether the rule denies (2) or allows (3); 1 in a filter matches both.")


class DeleteAclsFilterResult(Struct):
    """The rules that one filter has deleted."""

    error_code: int = fields.acl_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(
        Array(DeleteAclsMatchingAcl), doc="The rules that matched the filter."
    )


class DeleteAclsResponse(Response, api_key=31, versions="1-3", flexible="2+"):
    """One result per filter, in the order of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    filter_results: list[DeleteAclsFilterResult] = field(Array(DeleteAclsFilterResult), doc="The results.")
