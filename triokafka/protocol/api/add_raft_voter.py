"""AddRaftVoter (API key 80): add a voter to the metadata quorum (KIP-853).

Versions 0–1; flexible. v1: an answer before the change is committed (KIP-1186).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String, UInt16, Uuid


class Listener(Struct):
    """One listener of the new voter."""

    name: str = field(String, doc="The listener's name.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(UInt16, doc="The port to connect to.")


class AddRaftVoterRequest(Request["AddRaftVoterResponse"], api_key=80, versions="0-1", flexible="0+"):
    """Add a voter."""

    cluster_id: str | None = fields.cluster_id(nullable="0+")
    timeout_ms: int = fields.timeout_ms()
    voter_id: int = field(Int32, doc="The number of the new voter.", errors=("DuplicateVoterError",))
    voter_directory_id: UUID = field(Uuid, doc="The id of the directory that holds the new voter's log.")
    listeners: list[Listener] = field(
        Array(Listener), doc="The listeners of the new voter, with the addresses that others connect to."
    )
    ack_when_committed: bool = field(
        Boolean,
        versions="1+",
        default=True,
        doc="Whether the answer waits until the change is committed; otherwise only until the leader has written it.",
    )


class AddRaftVoterResponse(Response, api_key=80, versions="0-1", flexible="0+"):
    """Whether the voter was added."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "InconsistentClusterIdError",
            "RequestTimedOutError",
            "DuplicateVoterError",
            "InvalidRequestError",
            "UnsupportedVersionError",
            "NotLeaderForPartitionError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+", ignorable=True)
