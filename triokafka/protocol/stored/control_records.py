"""control_records."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct as Packer
from struct import error as struct_error
from typing import Final
from uuid import UUID

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String, UInt16, Uuid
from triokafka.structs import Buffer


class EndTxnMarker(Message, versions="0"):
    """EndTxnMarker."""

    coordinator_epoch: int = field(Int32, doc="Coordinator epoch.")


class Voter(Struct):
    """One item of ``voters``."""

    voter_id: int = field(Int32, doc="Voter id.")
    voter_directory_id: UUID = field(Uuid, versions="1+", doc="Voter directory id.")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """LeaderChangeMessage."""

    version: int = field(Int16, doc="Version.")
    leader_id: int = field(Int32, doc="Leader id.")
    voters: list[Voter] = field(Array(Voter), doc="Voters.")
    granting_voters: list[Voter] = field(Array(Voter), doc="Granting voters.")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """SnapshotHeaderRecord."""

    version: int = field(Int16, doc="Version.")
    last_contained_log_timestamp: int = field(Int64, doc="Last contained log timestamp.")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """SnapshotFooterRecord."""

    version: int = field(Int16, doc="Version.")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """KRaftVersionRecord."""

    version: int = field(Int16, doc="Version.")
    kraft_version: int = field(Int16, doc="Kraft version.")


class Endpoint(Struct):
    """One item of ``endpoints``."""

    name: str = field(String, doc="Name.")
    host: str = field(String, doc="Host.")
    port: int = field(UInt16, doc="Port.")


class KRaftVersionFeature(Struct):
    """One item of ``kraft_version_feature``."""

    min_supported_version: int = field(Int16, doc="Min supported version.")
    max_supported_version: int = field(Int16, doc="Max supported version.")


class VotersRecordVoter(Struct):
    """One item of ``voters``."""

    voter_id: int = field(Int32, doc="Voter id.")
    voter_directory_id: UUID = field(Uuid, doc="Voter directory id.")
    endpoints: list[Endpoint] = field(Array(Endpoint), doc="Endpoints.")
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature, doc="Kraft version feature.")


class VotersRecord(Message, versions="0", flexible="0+"):
    """VotersRecord."""

    version: int = field(Int16, doc="Version.")
    voters: list[VotersRecordVoter] = field(Array(VotersRecordVoter), doc="Voters.")


class ControlRecordType(IntEnum):
    """What a control record says: the second number of its key."""

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
