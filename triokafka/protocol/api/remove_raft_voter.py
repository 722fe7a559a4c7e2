"""RemoveRaftVoter (API key 81): remove a voter from the metadata quorum (KIP-853).

Version 0; flexible.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, field
from triokafka.protocol.primitives import Int16, Int32, Uuid


class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"], api_key=81, versions="0", flexible="0+"):
    """Remove a voter."""

    cluster_id: str | None = fields.cluster_id(nullable="0+")
    voter_id: int = field(Int32, doc="The number of the voter.", errors=("VoterNotFoundError",))
    voter_directory_id: UUID = field(
        Uuid, doc="The id of the directory that holds the voter's log.", errors=("VoterNotFoundError",)
    )


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    """Whether the voter was removed."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "InconsistentClusterIdError",
            "RequestTimedOutError",
            "VoterNotFoundError",
            "InvalidRequestError",
            "UnsupportedVersionError",
            "NotLeaderForPartitionError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+", ignorable=True)
