"""Frames: the size prefix, and the headers of requests and responses around a message.

Kafka precedes every request and response by its size in four bytes; the functions that encode include it, those that
decode expect the frame without it. A request's header is version 2 (it ends in tagged fields) where the request is
flexible, else 1; a response's is version 1 where the response is flexible, else 0, except that the answer to
ApiVersions always has version 0, so that a client can read it before it knows what the broker speaks. No I/O.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, TypeVar

from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol import api
from triokafka.protocol.codec_runtime import Malformed, read_uvarint
from triokafka.protocol.message import MOST_MEMORY, Request, Response, join_parts
from triokafka.structs import Buffer

SIZE_BYTES: Final = 4

_API_VERSIONS: Final = 18
_LARGE: Final = 65_536  # copying less costs less than one more buffer
_SIZE = Struct(">i")
_REQUEST_HEADER = Struct(">hhih")
_REQUEST_START = Struct(">ihhih")
_RESPONSE_START = Struct(">ii")
_ENDS_IN_TAGS: Final[dict[tuple[int, int], bool]] = {}
_R = TypeVar("_R", bound=Response)


class RequestHeader(NamedTuple):
    """The header of a request. ``size`` is its length in bytes: the body starts there."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int


def encode_request(
    request: Request[Response], *, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A request as buffers to be sent in order: size prefix, header, body. Larger records are passed on uncopied.

    Raises:
        UnsupportedVersionError: there is no such version, or it cannot carry a value that is set.
        ProtocolError: a value does not fit its field.
    """
    client = b"" if client_id is None else client_id.encode()
    tail = b"\0" if version in request.flexible else b""
    out: list[Buffer] = [b""]
    marks: list[int] = []
    request.encode_into(out, marks, version)
    size = sum(map(len, out)) + _REQUEST_HEADER.size + len(client) + len(tail)
    length = -1 if client_id is None else len(client)
    try:
        start = _REQUEST_START.pack(size, request.api_key, version, correlation_id, length)
    except error as problem:
        raise ProtocolError(f"cannot be encoded: {problem}", path="RequestHeader") from None
    out[0] = start + client + tail
    return join_parts(out, marks)


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request.

    The header of an unknown API or version is read too, by the best guess, so that the caller can answer it.

    Raises:
        ProtocolError: it is truncated or malformed.
    """
    end = len(frame)
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    except error:
        raise ProtocolError("the data ends early", path="RequestHeader", offset=0) from None
    position = _REQUEST_HEADER.size
    if length < -1 or position + length > end:
        problem = f"a client id of {length} bytes, but the frame has {end - position} more"
        raise ProtocolError(problem, path="RequestHeader.client_id", offset=8)
    client_id = None
    if length >= 0:
        # Some clients send their user's input in any encoding; it is only a name for logs and quotas.
        client_id = str(frame[position : position + length], "utf-8", "replace")
        position += length
    try:
        ends_in_tags = _ENDS_IN_TAGS[api_key, version]
    except KeyError:
        known = api.request_type(api_key) if api_key in api.API_NAMES else None
        ends_in_tags = known is not None and version in known.flexible
        if known is not None and version in known.all_versions:  # not an arbitrary number from the client
            _ENDS_IN_TAGS[api_key, version] = ends_in_tags
    if ends_in_tags:
        if position < end and not frame[position]:  # none, as always
            position += 1
        else:
            position = _skip_tags(frame, position, "RequestHeader")
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def decode_request(frame: Buffer) -> tuple[RequestHeader, Request[Response]]:
    """Read a whole request.

    Raises:
        ProtocolError: it is truncated or malformed.
        UnsupportedVersionError: its API or version is not declared; `decode_request_header` can still be used to
            answer it.
    """
    header = decode_request_header(frame)
    if header.api_key not in api.API_NAMES:
        raise UnsupportedVersionError(f"unknown API key {header.api_key}")
    return header, api.request_type(header.api_key).decode(frame, header.api_version, header.size)


def encode_response(response: Response, *, version: int, correlation_id: int) -> list[Buffer]:
    """A response as buffers to be sent in order: size prefix, header, body. Larger records are passed on uncopied, and
    a response of very many elements is not joined.

    Raises the same as `encode_request`.
    """
    out: list[Buffer] = [b""]
    marks: list[int] = []
    response.encode_into(out, marks, version)
    first, last = response.flexible
    tail = b"\0" if first <= version <= last and response.api_key != _API_VERSIONS else b""
    if not marks:
        body = b"".join(out)
        start = _RESPONSE_START.pack(len(body) + SIZE_BYTES + len(tail), correlation_id) + tail
        return [start + body] if len(body) < _LARGE else [start, body]
    out[0] = _RESPONSE_START.pack(sum(map(len, out)) + SIZE_BYTES + len(tail), correlation_id) + tail
    return join_parts(out, marks)


def decode_response_header(response_type: type[Response], frame: Buffer, *, version: int) -> tuple[int, int]:
    """Read the header of a response: correlation id, and where the body starts.

    Raises:
        ProtocolError: it is truncated or malformed.
    """
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
    except error:
        raise ProtocolError("the data ends early", path="ResponseHeader", offset=0) from None
    position = SIZE_BYTES
    if version in response_type.flexible and response_type.api_key != _API_VERSIONS:
        position = _skip_tags(frame, position, "ResponseHeader")
    return correlation_id, position


def decode_response(
    response_type: type[_R], frame: Buffer, *, version: int, max_memory: int | None = None
) -> tuple[int, _R]:
    """Read a whole response: correlation id and message.

    With ``max_memory`` it is refused if its elements would take more bytes of memory.

    Bytes behind the message are let be, as Java's client does: librdkafka's mock appends some.

    Raises:
        ProtocolError: it is truncated or malformed, or too large in memory.
        UnsupportedVersionError: the response has no such version.
    """
    correlation_id, position = decode_response_header(response_type, frame, version=version)
    if max_memory is not None and len(frame) > max_memory // MOST_MEMORY:
        response, _ = response_type.decode_within(frame, version, position, max_memory=max_memory, prefix=True)
        return correlation_id, response
    try:
        return correlation_id, response_type.decode(frame, version, position)
    except ProtocolError:
        # Slower, and needed only for brokers that write too much; everything else fails here once more.
        return correlation_id, response_type.decode_prefix(frame, version, position)


def _skip_tags(frame: Buffer, position: int, path: str) -> int:
    """Step over the tagged section of a header: no tag is known there."""
    start = position
    if position < len(frame) and not frame[position]:
        return position + 1
    try:
        count, position = read_uvarint(frame, position)
        if count * 2 > len(frame) - position:
            raise Malformed(f"{count} tagged fields are more than what is left")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
        if position > len(frame):
            raise IndexError
    except IndexError:
        raise ProtocolError("the data ends early", path=path, offset=start) from None
    except Malformed as problem:
        raise ProtocolError(str(problem), path=path, offset=start) from None
    return position
