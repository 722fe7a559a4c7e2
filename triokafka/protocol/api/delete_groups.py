"""DeleteGroups (API key 42)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], api_key=42, versions="0-2", flexible="2+"):
    """Ask."""

    groups_names: list[str] = field(Array(String), doc="Groups names.")


class DeletableGroupResult(Struct):
    """One item of ``results``."""

    group_id: str = field(String, doc="Group id.")
    error_code: int = field(Int16, doc="Error code.")


class DeleteGroupsResponse(Response, api_key=42, versions="0-2", flexible="2+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, doc="Throttle time ms.")
    results: list[DeletableGroupResult] = field(Array(DeletableGroupResult), doc="Results.")
