"""Every generated codec equals the interpreted construct, for every message and version, and loses no data.

The construct tree is the declaration itself and is interpreted by the construct library, byte by byte; the codec is
generated from it. Both must give the same bytes and the same values.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.protocol.fillings import name_of, plain, stored_messages, versions_of, wire_messages
from triokafka.protocol.message import Field, Message, Struct, StructMeta
from triokafka.protocol.primitives import NIL_UUID, Number, StringType, UuidType

CASES = versions_of([*wire_messages(), *stored_messages()])
QUICK = settings(
    max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["t" * 126, "t" * 127, "é" * 64])
BLOB = st.binary(max_size=6) | st.sampled_from([bytes(126), bytes(127), bytes(20_000)])
IDS = st.just(NIL_UUID) | st.uuids()
TAGS = st.dictionaries(st.integers(1000, 2**32 - 1), st.binary(max_size=3) | st.just(bytes(200)), max_size=2)


def number(wire: Number) -> st.SearchStrategy[Any]:
    """Draw any value of a number type."""
    if wire.code == "?":
        return st.booleans()
    if wire.code == "d":
        return st.floats(allow_nan=False)
    bits = wire.length * 8
    low = -(2 ** (bits - 1)) if wire.code.islower() else 0
    return st.integers(low, low + 2**bits - 1)


def one(draw: st.DrawFn, wire: Any, version: int, flexible: bool) -> Any:
    """Draw a value of a type."""
    if isinstance(wire, StructMeta):
        return structure(draw, wire, version, flexible)  # type: ignore[arg-type]
    if isinstance(wire, Number):
        return draw(number(wire))
    if isinstance(wire, UuidType):
        return draw(IDS)
    return draw(TEXT if isinstance(wire, StringType) else BLOB)


def structure(draw: st.DrawFn, cls: type[Struct], version: int, flexible: bool) -> Any:
    """Draw a structure with the fields of one version."""

    def value(f: Field) -> Any:
        if version in f.nullable and draw(st.booleans()):
            return None
        if not f.is_array:
            return one(draw, f.type, version, flexible)
        return [one(draw, f.type.element, version, flexible) for _ in range(draw(st.integers(0, 2)))]

    made = cls(**{f.name: value(f) for f in cls.__fields__ if version in f.versions})
    if flexible:
        made.unknown_tags = draw(TAGS)
    return made


@st.composite
def messages(draw: st.DrawFn, cls: type[Message], version: int) -> Any:
    """Draw a message with the fields of one version."""
    return structure(draw, cls, version, version in cls.flexible)


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name_of)
def test_generated_codec_equals_the_interpreted_construct(cls: type[Message], version: int) -> None:
    construct = cls.construct(version)

    @QUICK
    @given(messages(cls, version))
    def holds(message: Message) -> None:
        data = message.encode(version)
        assert construct.build(message.to_dict()) == data
        assert b"".join(message.encode_parts(version)) == data
        decoded = cls.decode(data, version)
        assert plain(construct.parse(data)) == plain(decoded.to_dict())
        assert decoded == message
        assert cls.decode(memoryview(bytearray(data)), version) == message
        assert cls.from_dict(decoded.to_dict()) == message

    holds()


def test_unknown_tagged_fields_survive_at_every_depth() -> None:
    """A field of a newer version passes through a reader that does not know it."""
    from triokafka.protocol.api.fetch import FetchRequest, FetchTopic

    request = FetchRequest(topics=[FetchTopic(topic_id=UUID(int=5))])
    request.unknown_tags[900] = b"outer"
    request.topics[0].unknown_tags[7] = b""
    decoded = FetchRequest.decode(request.encode(17), 17)
    assert decoded.unknown_tags == {900: b"outer"}
    assert decoded.topics[0].unknown_tags == {7: b""}
    assert decoded.encode(17) == request.encode(17)
