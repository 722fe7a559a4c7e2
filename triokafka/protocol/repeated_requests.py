"""Requests that are alike but for their records: a producer's, one partition a request, a thousand times a second.

Of such a request only the records and the correlation id are read; all else was decoded when it came the first time,
and is the same because its bytes are. Whatever is not known, or not exactly alike, is decoded as ever. No I/O.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from triokafka.protocol.codec_runtime import write_uvarint
from triokafka.protocol.frames import RequestHeader
from triokafka.structs import Buffer

if TYPE_CHECKING:
    from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest
    from triokafka.protocol.templates import AnswerTemplate

_SIZE: Final = Struct(">i")
_CORRELATION_ID_AT: Final = 4  # behind API key and version
_CORRELATION_ID_END: Final = 8
_LONGEST_LENGTH: Final = 5
"""Bytes of the records' length at most."""
_MOST: Final = 32
"""Partitions of a connection that are remembered, the first ones, in 40 KB. All others are decoded each time."""
_LONGEST_FRAME: Final = 4 << 20
"""Bytes of a frame that is compared at most, which takes two copies of it."""
_LONGEST_START: Final = 1_024
"""Bytes before the records' length at most: a topic's name has 249. Long names of a client would be kept with them."""


class KnownRequest:
    """A request that has come before, the part of it that has the records, and how it is usually answered."""

    __slots__ = ("answer", "header", "holder", "request")

    def __init__(self, header: RequestHeader, request: ProduceRequest, holder: PartitionProduceData) -> None:
        self.header = header
        self.request = request
        self.holder = holder
        self.answer: AnswerTemplate | None = None


class RepeatedRequests:
    """The Produce requests of one connection, of one version and one partition each."""

    __slots__ = ("_behind", "_compact", "_end", "_key_and_version", "_known", "_last", "_length", "_size", "_start")

    def __init__(self) -> None:
        self._known: dict[bytes, KnownRequest] = {}  # by the bytes between the correlation id and the records' length
        self._key_and_version = b""
        self._start = 0  # of the records' length
        self._compact = False
        self._behind = b""
        self._size = -1  # of the last frame, with the length and the end of the records in a frame of this size
        self._length = b""
        self._end = 0
        self._last: PartitionProduceData | None = None

    def __len__(self) -> int:
        return len(self._known)

    def read(self, frame: Buffer) -> KnownRequest | None:
        """Return the request in a frame, or None if the caller must decode it. Call `done` before the next one."""
        if not self._known:
            return None
        start = self._start
        head = bytes(frame[: start + _LONGEST_LENGTH])
        if not head.startswith(self._key_and_version):
            return None
        known = self._known.get(head[_CORRELATION_ID_END:start])
        if known is None:
            return None
        size = len(frame)
        if size != self._size:
            self._size, self._end = size, size - len(self._behind)
            self._length = self._length_before(size - start)
        length, end = self._length, self._end
        if not length or not head.startswith(length, start) or frame[end:] != self._behind:
            return None
        holder = self._last = known.holder
        holder.records = memoryview(frame)[start + len(length) : end]
        header = known.header
        (correlation_id,) = _SIZE.unpack_from(head, _CORRELATION_ID_AT)
        known.header = RequestHeader(header.api_key, header.api_version, correlation_id, header.client_id, header.size)
        return known

    def done(self) -> None:
        """Note that the handler no longer reads the records of the last request."""
        if self._last is not None:
            self._last.records = None
            self._last = None

    def learn(self, frame: Buffer, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember a request that was decoded, if it is of the kind that `read` can read."""
        if (
            len(frame) > _LONGEST_FRAME
            or len(self._known) >= _MOST
            or len(request.topic_data) != 1
            or len(request.topic_data[0].partition_data) != 1
        ):
            return
        holder = request.topic_data[0].partition_data[0]
        records = holder.records
        if not records:
            return
        compact = header.api_version in request.flexible
        behind = b"\0\0\0" if compact else b""  # three sections of tagged fields, with none in them
        end = len(frame) - len(behind)
        length = write_uvarint(len(records) + 1) if compact else _SIZE.pack(len(records))
        start = end - len(records) - len(length)
        key_and_version = bytes(frame[:_CORRELATION_ID_AT])
        if start > _LONGEST_START or (
            self._known and (key_and_version != self._key_and_version or start != self._start)
        ):
            return
        if bytes(frame[start:]) != b"".join((length, records, behind)):
            return  # it has tagged fields, or is written in an unusual way
        self._key_and_version, self._start, self._compact, self._behind = key_and_version, start, compact, behind
        self._known[bytes(frame[_CORRELATION_ID_END:start])] = KnownRequest(header, request, holder)
        self._last = holder

    def _length_before(self, rest: int) -> bytes:
        """How the length of records is written where ``rest`` bytes begin with it; nothing when it cannot be."""
        rest -= len(self._behind)
        if not self._compact:
            return _SIZE.pack(rest - _SIZE.size) if rest > _SIZE.size else b""
        for size in range(rest - 1, max(rest - 6, 0), -1):
            length = write_uvarint(size + 1)
            if len(length) + size == rest:
                return length
        return b""
