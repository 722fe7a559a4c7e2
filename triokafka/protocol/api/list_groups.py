"""ListGroups (API key 16): the groups that a broker coordinates.

Versions 0–5; flexible from 3. v1: throttle time. v4: filter by state (KIP-518). v5: filter by type (KIP-848).
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, String


class ListGroupsRequest(Request["ListGroupsResponse"], api_key=16, versions="0-5", flexible="3+"):
    """Ask for all groups of a broker, or those in some states or of some types."""

    states_filter: list[str] = field(Array(String), versions="4+", doc="Only groups in these states; empty for all.")
    types_filter: list[str] = field(
        Array(String),
        versions="5+",
        doc="Only groups of these types, such as classic or consumer; empty for all.",
    )


class ListedGroup(Struct):
    """A group in the list."""

    group_id: str = field(String, doc="The group's id.")
    protocol_type: str = field(String, doc="The kind of group.")
    group_state: str = field(String, versions="4+", ignorable=True, doc="The state's name.")
    group_type: str = field(String, versions="5+", ignorable=True, doc="The type's name.")


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    """The groups."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    error_code: int = field(
        Int16,
        doc="The error code of the whole response; 0 means success.",
        errors=("CoordinatorNotAvailableError", "CoordinatorLoadInProgressError", "ClusterAuthorizationFailedError"),
    )
    groups: list[ListedGroup] = field(Array(ListedGroup), doc="The groups.")
