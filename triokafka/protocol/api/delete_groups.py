"""DeleteGroups (API key 42): delete empty groups with their positions.

Versions 0–2; flexible from 2.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, String


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], api_key=42, versions="0-2", flexible="2+"):
    """Delete groups."""

    groups_names: list[str] = fields.groups()


class DeletableGroupResult(Struct):
    """The outcome for one group."""

    group_id: str = field(String, doc="The group's id.")
    error_code: int = field(
        Int16,
        doc="The error code of the group; 0 if it was deleted.",
        errors=(*fields.GROUP_ERRORS, "NonEmptyGroupError", "GroupIdNotFoundError"),
    )


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    """One result per group of the request."""

    throttle_time_ms: int = fields.throttle_time_ms()
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult), doc="The results.")
