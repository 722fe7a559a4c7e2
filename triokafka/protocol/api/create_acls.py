"""CreateAcls (API key 30): add access rules.

Versions 1–3; flexible from 2. v3: rules about users.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, String


class AclCreation(Struct):
    """One rule to add."""

    resource_type: int = fields.acl_resource_type()
    resource_name: str = field(String, doc="Name of the resource, or its prefix.")
    resource_pattern_type: int = fields.acl_pattern_type(versions="1+")
    principal: str = field(String, doc="Whom the rule is about, such as ``User:alice``.")
    host: str = field(String, doc="The client's address that the rule is about; ``*`` for every one.")
    operation: int = field(Int8, doc="The operation, by Kafka's number; 1 in a filter matches every operation.")
    permission_type: int = field(Int8, doc="Whether the rule denies (2) or allows (3); 1 in a filter matches both.")


class CreateAclsRequest(Request["CreateAclsResponse"], api_key=30, versions="1-3", flexible="2+"):
    """Add rules."""

    creations: list[AclCreation] = field(Array(AclCreation), doc="The rules to add.")


class AclCreationResult(Struct):
    """The outcome for one rule."""

    error_code: int = fields.acl_error_code()
    error_message: str | None = fields.error_message(nullable="0+")


class CreateAclsResponse(Response, api_key=30, versions="1-3", flexible="2+"):
    """One result per rule, in the order of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    results: list[AclCreationResult] = field(Array(AclCreationResult), doc="The results.")
