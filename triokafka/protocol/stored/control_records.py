"""Control records: markers among the records of a log that consumers never see.

Transaction markers are in any partition; the others only in the metadata log and its snapshots.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Packer
from struct import error as struct_error
from typing import Final
from uuid import UUID

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String, UInt16, Uuid
from triokafka.protocol.stored.versioned import VersionedMessage
from triokafka.structs import Buffer


class EndTxnMarker(VersionedMessage, versions="0"):
    """The end of a transaction in a partition; its key says whether committed or aborted."""

    coordinator_epoch: int = field(
        Int32,
        doc="The leader epoch of the coordinator's partition, to fence an older coordinator.",
    )


class Voter(Struct):
    """A voter of the quorum."""

    voter_id: int = field(Int32, doc="The voter's id.")
    voter_directory_id: UUID = field(Uuid, versions="1+", doc="The id of the voter's log directory; nil when unknown.")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """A leader was elected, and by which voters."""

    version: int = field(Int16, doc="The version of this record.")
    leader_id: int = field(Int32, doc="The new leader's id.")
    voters: list[Voter] = field(Array(Voter), doc="The voters.")
    granting_voters: list[Voter] = field(Array(Voter), doc="The voters that voted for the leader.")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int = field(Int16, doc="The version of this record.")
    last_contained_log_timestamp: int = field(
        Int64,
        doc="The timestamp of the last record that went into the snapshot, in milliseconds.",
    )


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot: it is complete."""

    version: int = field(Int16, doc="The version of this record.")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the quorum's protocol."""

    version: int = field(Int16, doc="The version of this record.")
    kraft_version: int = field(Int16, doc="The version that is in force from here on.")


class Endpoint(Struct):
    """A listener of the voter."""

    name: str = field(String, doc="The listener's name.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(UInt16, doc="The port to connect to.")


class KRaftVersionFeature(Struct):
    """The quorum protocol versions that the voter can run."""

    min_supported_version: int = field(Int16, doc="The smallest level.")
    max_supported_version: int = field(Int16, doc="The greatest level.")


class VotersRecordVoter(Struct):
    """A voter and its listeners."""

    voter_id: int = field(Int32, doc="The voter's id.")
    voter_directory_id: UUID = field(Uuid, doc="The id of the voter's log directory; nil when unknown.")
    endpoints: list[Endpoint] = field(Array(Endpoint), doc="The voter's listeners.")
    kraft_version_feature: KRaftVersionFeature = field(
        KRaftVersionFeature,
        doc="The quorum protocol versions that the voter can run.",
    )


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters of the quorum and where to reach them."""

    version: int = field(Int16, doc="The version of this record.")
    voters: list[VotersRecordVoter] = field(Array(VotersRecordVoter), doc="The voters.")


class ControlRecordType(IntEnum):
    """The type of a control record: the second number of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KEY: Final = Packer(">hh")


def encode_control_key(kind: ControlRecordType) -> bytes:
    """The key of a control record: key version 0 and the type."""
    return _KEY.pack(0, kind)


def decode_control_key(key: Buffer) -> int:
    """The type of a control record from its key; types that `ControlRecordType` lacks are to be skipped.

    Raises:
        ProtocolError: the key is shorter than four bytes, or its version is negative.
    """
    try:
        version, kind = _KEY.unpack_from(key)
    except struct_error:
        raise ProtocolError("the data ends early", path="ControlRecordKey", offset=0) from None
    if version < 0:
        raise ProtocolError(f"negative version {version}", path="ControlRecordKey.version", offset=0)
    return int(kind)
