"""UpdateRaftVoter (API key 82): a voter of the metadata quorum updates its entry (KIP-853).

Version 0; flexible.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String, UInt16, Uuid


class Listener(Struct):
    """One listener of the voter."""

    name: str = field(String, doc="The listener's name.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(UInt16, doc="The port to connect to.")


class KRaftVersionFeature(Struct):
    """The supported levels of the feature ``kraft.version``."""

    min_supported_version: int = field(Int16, doc="The lowest level supported.")
    max_supported_version: int = field(Int16, doc="The highest level supported.")


class UpdateRaftVoterRequest(Request["UpdateRaftVoterResponse"], api_key=82, versions="0", flexible="0+"):
    """Update the sender's entry among the voters."""

    cluster_id: str | None = fields.cluster_id(nullable="0+")
    current_leader_epoch: int = field(
        Int32,
        doc="The epoch of the leader that the voter knows.",
        errors=("FencedLeaderEpochError", "UnknownLeaderEpochError"),
    )
    voter_id: int = field(Int32, doc="The number of the voter.", errors=("VoterNotFoundError",))
    voter_directory_id: UUID = field(
        Uuid, doc="The id of the directory that holds the voter's log.", errors=("VoterNotFoundError",)
    )
    listeners: list[Listener] = field(
        Array(Listener), doc="The listeners of the voter, with the addresses that others connect to."
    )
    kraft_version_feature: KRaftVersionFeature = field(
        KRaftVersionFeature, doc="The versions of the quorum's protocol that the voter supports."
    )


class CurrentLeader(Struct):
    """The leader that the answering node knows."""

    leader_id: int = field(Int32, default=-1, doc="The leader; -1 for none.")
    leader_epoch: int = field(Int32, default=-1, doc="The latest epoch that the answering node knows; -1 for none.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(Int32, doc="The port to connect to.")


class UpdateRaftVoterResponse(Response, api_key=82, versions="0", flexible="0+"):
    """Whether the voter was updated, and the leader that the answering node knows."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "InconsistentClusterIdError",
            "RequestTimedOutError",
            "VoterNotFoundError",
            "InvalidRequestError",
            "UnsupportedVersionError",
            "NotLeaderForPartitionError",
            "FencedLeaderEpochError",
            "UnknownLeaderEpochError",
        ),
    )
    current_leader: CurrentLeader = field(CurrentLeader, tag=0, doc="The quorum's leader, with its address.")
