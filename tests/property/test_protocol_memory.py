"""Decoding needs at most 64 times the size of the frame, whatever the frame contains."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.protocol.fillings import name_of, stored_messages, wire_messages
from triokafka.errors import ProtocolError
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.message import MOST_MEMORY, Field, Message, Request, Struct, StructMeta
from triokafka.protocol.primitives import BytesType, StringType, UuidType

MAX_FACTOR = MOST_MEMORY
FRAME_BYTES = 1_000


def smallest(wire: Any, version: int, text: int, tags: bool) -> Any:
    """Return a value of few bytes on the wire: empty or short text, empty lists; with ``tags`` an unknown field
    everywhere.
    """
    if isinstance(wire, StructMeta):
        made: Any = wire()
        for f in wire.__fields__:
            if version in f.versions and f.tag is None:
                setattr(made, f.name, _smallest_field(f, version, text, tags))
        if tags:
            made.unknown_tags = {120: b""}
        return made
    if isinstance(wire, StringType):
        return "ab"[:text] if text < 3 else "é€"
    return b"ab"[:text] if isinstance(wire, BytesType) else wire.zero


def _smallest_field(f: Field, version: int, text: int, tags: bool) -> Any:
    return [] if f.is_array else smallest(f.type, version, text, tags)


def floods(cls: type[Struct], version: int, flexible: bool) -> Iterator[tuple[str, Struct]]:
    """Yield one message for each array in the tree: as many small elements as fit, of each kind."""
    for f in cls.__fields__:
        if version not in f.versions:
            continue
        if f.is_array:
            for text, tags in [(0, False), (1, False), (2, False), (3, False), *([(0, True)] if flexible else [])]:
                made = cls()
                element = f.type.element
                size = len(one_encoded(element, version, flexible, text, tags))
                setattr(made, f.name, [smallest(element, version, text, tags)] * (FRAME_BYTES // size))
                kind = "ids" if isinstance(element, UuidType) else "text"  # known ids are shared objects
                yield f"{f.name} {kind}={text} tags={tags}", made
        if f.struct is not None:
            for name, inner in floods(f.struct, version, flexible):
                made = cls()
                setattr(made, f.name, [inner] if f.is_array else inner)
                yield f"{f.name}.{name}", made


def one_encoded(element: Any, version: int, flexible: bool, text: int, tags: bool) -> bytes:
    """Return the bytes of one element."""
    value = smallest(element, version, text, tags)
    if isinstance(value, Struct):
        return bytes(value.structure(version, flexible=flexible).build(value.to_dict()))
    return bytes(element.variant(compact=flexible, nullable=False).build(value))


def peak_of_decoding(cls: type[Message], version: int, data: bytes, max_memory: int | None = None) -> int:
    """Return the peak memory, in bytes, of decoding, the result included."""
    tracemalloc.start()
    try:
        if max_memory is None:
            message = cls.decode(data, version)
        else:
            message, _ = cls.decode_within(data, version, max_memory=max_memory)
        peak = tracemalloc.get_traced_memory()[1]
        del message
    except ProtocolError:
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak


def flooded(cls: type[Message]) -> Iterator[tuple[int, str, Message, bytes]]:
    """Yield version, kind of element, message and frame, for the lowest, the first flexible and the highest version."""
    for version in sorted({cls.all_versions.min, cls.flexible.min, cls.all_versions.max}):
        if version not in cls.all_versions:
            continue
        for name, message in floods(cls, version, version in cls.flexible):
            assert isinstance(message, Message)
            yield version, name, message, message.encode(version)


@pytest.mark.parametrize("cls", [*wire_messages(), *stored_messages()], ids=name_of)
def test_decoding_needs_at_most_64_times_the_frame(cls: type[Message]) -> None:
    """Arrays and tagged sections are full of elements that are tiny on the wire."""
    for version, name, _, data in flooded(cls):
        cls.decode(data, version)  # compiles the codec once
        factor = peak_of_decoding(cls, version, data) / len(data)
        assert factor <= MAX_FACTOR, f"{cls.__name__} {version} {name}: {factor:.0f} times {len(data)} bytes"
        # A truncated frame must not cost more than a complete one.
        factor = peak_of_decoding(cls, version, data[:-1]) / len(data)
        assert factor <= MAX_FACTOR, f"{cls.__name__} {version} {name} cut: {factor:.0f} times"


@pytest.mark.parametrize("cls", [cls for cls in wire_messages() if issubclass(cls, Request)], ids=name_of)
def test_decoding_a_request_stays_within_its_memory_limit(cls: type[Message]) -> None:
    """Text may take four times its bytes in addition.

    No request is refused for which a fifth of the limit is enough.
    """
    for version, name, message, data in flooded(cls):
        assert cls.decode_within(data, version, max_memory=10**9)[0] == message
        whole = peak_of_decoding(cls, version, data)
        for share in (2, 10):
            allowed = whole // share
            peak = peak_of_decoding(cls, version, data, allowed)
            assert peak <= allowed + 4 * len(data) + 2_000, f"{cls.__name__} {version} {name}: {peak}, not {allowed}"
        if "text=2" in name:  # shared objects, such as empty text and the zero id, cost less than their count
            assert cls.decode_within(data, version, max_memory=5 * whole)[0] == message


def test_a_flood_of_unknown_tags_needs_at_most_64_times_the_frame() -> None:
    request = HeartbeatRequest()
    request.unknown_tags = {tag: b"" for tag in range(10_000)}
    data = request.encode(4)
    HeartbeatRequest.decode(data, 4)
    assert peak_of_decoding(HeartbeatRequest, 4, data) <= MAX_FACTOR * len(data)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_count_is_checked_before_anything_is_allocated(version: int) -> None:
    huge = b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x07"
    data = huge + bytes(200)
    MetadataRequest.decode(MetadataRequest().encode(version), version)
    assert peak_of_decoding(MetadataRequest, version, data) < 20_000
    with pytest.raises(ProtocolError, match="more than the 200 bytes left"):
        MetadataRequest.decode(data, version)
