"""The frame of a cluster metadata record: frame version, type and version as unsigned varints, then the message."""

from __future__ import annotations

from typing import ClassVar, Final

from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.protocol.codec_runtime import Malformed, read_uvarint
from triokafka.protocol.message import Message
from triokafka.structs import Buffer
from triokafka.varint import encode_uvarint

_FRAME_VERSION: Final = 1


class MetadataRecord(Message):
    """A record of ``__cluster_metadata``. ``api_key`` is its type."""

    api_key: ClassVar[int]
    types: ClassVar[dict[int, type[MetadataRecord]]] = {}
    """The declared records by type."""

    def __init_subclass__(cls, *, api_key: int, versions: str, flexible: str) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.api_key = api_key
        MetadataRecord.types[api_key] = cls

    def encode_record(self, version: int) -> bytes:
        """The frame and the message. Raises the same as ``encode``."""
        return (
            encode_uvarint(_FRAME_VERSION)
            + encode_uvarint(self.api_key)
            + encode_uvarint(version)
            + self.encode(version)
        )


def decode_record(data: Buffer) -> MetadataRecord:
    """Read what `MetadataRecord.encode_record` wrote. The classes must be imported: see ``cluster_metadata``.

    Raises:
        ProtocolError: the bytes are no such record.
        UnsupportedVersionError: the frame, the type or the version of the type is not known here.
    """
    try:
        frame_version, position = read_uvarint(data, 0)
        api_key, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError:
        raise ProtocolError("the data ends early", path="MetadataRecord", offset=len(data)) from None
    except Malformed as problem:
        raise ProtocolError(str(problem), path="MetadataRecord", offset=0) from None
    if frame_version != _FRAME_VERSION:
        raise UnsupportedVersionError(
            f"metadata record in frame version {frame_version}; only {_FRAME_VERSION} is known"
        )
    record_type = MetadataRecord.types.get(api_key)
    if record_type is None:
        raise UnsupportedVersionError(f"metadata record of unknown type {api_key}")
    return record_type.decode(data, version, position)
