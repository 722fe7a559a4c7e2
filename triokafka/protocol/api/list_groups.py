"""ListGroups (API key 16)."""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String


class ListGroupsRequest(Request["ListGroupsResponse"], api_key=16, versions="0-5", flexible="3+"):
    """Ask."""

    states_filter: list[str] = field(Array(String), versions="4+", doc="States filter.")
    types_filter: list[str] = field(Array(String), versions="5+", doc="Types filter.")


class ListedGroup(Struct):
    """One item of ``groups``."""

    group_id: str = field(String, doc="Group id.")
    protocol_type: str = field(String, doc="Protocol type.")
    group_state: str = field(String, versions="4+", ignorable=True, doc="Group state.")
    group_type: str = field(String, versions="5+", ignorable=True, doc="Group type.")


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, doc="Error code.")
    groups: list[ListedGroup] = field(Array(ListedGroup), doc="Groups.")
