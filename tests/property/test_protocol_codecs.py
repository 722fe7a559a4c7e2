"""Every generated codec equals the interpreted construct, for every message and version, and loses no data.

The construct tree is the declaration itself and is interpreted by the construct library, byte by byte; the codec is
generated from it. Both must give the same bytes and the same values.
"""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.unit.protocol.fillings import name_of, plain, stored_messages, versions_of, wire_messages
from triokafka.protocol.message import Message, Struct, StructMeta, join_parts
from triokafka.protocol.primitives import NIL_UUID, Number, StringType, UuidType
from triokafka.structs import Buffer

CASES = versions_of([*wire_messages(), *stored_messages()])
MESSAGES = 40  # of each type and version

# Compact lengths take one byte up to 126 and two from 127 on.
TEXTS = ["", "a", "topic", "\x00", "é", "€uro", "\U0001f600", "t" * 126, "t" * 127, "é" * 64]
BLOBS = [b"", b"\x00", b"\xff" * 6, bytes(126), bytes(127), bytes(20_000)]
FLOATS = [0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf")]


def number(random: Random, wire: Number) -> Any:
    """Return any value of a number type; small ones and the limits more often."""
    if wire.code == "?":
        return random.random() < 0.5
    if wire.code == "d":
        return random.choice([*FLOATS, random.uniform(-1e9, 1e9)])
    bits = wire.length * 8
    low = -(2 ** (bits - 1)) if wire.code.islower() else 0
    high = low + 2**bits - 1
    return random.choice([low, high, max(low, -1), 0, 1, random.randint(low, high), random.randint(low, high)])


def one(random: Random, wire: Any, version: int, flexible: bool) -> Any:
    """Return a value of a type."""
    if isinstance(wire, StructMeta):
        return structure(random, wire, version, flexible)
    if isinstance(wire, Number):
        return number(random, wire)
    if isinstance(wire, UuidType):
        return random.choice([NIL_UUID, UUID(int=random.getrandbits(128))])
    return random.choice(TEXTS if isinstance(wire, StringType) else [*BLOBS, random.randbytes(6)])


def structure(random: Random, cls: type[Struct] | StructMeta, version: int, flexible: bool) -> Any:
    """Return a structure with the fields of one version and, in flexible versions, with unknown tagged fields."""
    made = cls()
    for f in cls.__fields__:
        if version not in f.versions:
            continue
        if version in f.nullable and random.random() < 0.5:
            value = None
        elif f.is_array:
            value = [one(random, f.type.element, version, flexible) for _ in range(random.randint(0, 2))]
        else:
            value = one(random, f.type, version, flexible)
        setattr(made, f.name, value)
    if flexible and random.random() < 0.5:
        tags = sorted(random.sample(range(1000, 2**32), random.randint(1, 2)))
        made.unknown_tags = {tag: random.choice([b"", b"\x01", b"abc", bytes(200)]) for tag in tags}
    return made


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name_of)
def test_generated_codec_equals_the_interpreted_construct(cls: type[Message], version: int) -> None:
    construct = cls.construct(version)
    random = Random(f"{cls.__name__} {version}")
    for _ in range(MESSAGES):
        message = structure(random, cls, version, version in cls.flexible)
        data = message.encode(version)
        assert construct.build(message.to_dict()) == data
        pieces: list[Buffer] = []
        marks: list[int] = []
        message.encode_into(pieces, marks, version)
        assert b"".join(join_parts(pieces, marks)) == data
        decoded = cls.decode(data, version)
        assert plain(construct.parse(data)) == plain(decoded.to_dict())
        assert decoded == message
        assert cls.decode(memoryview(bytearray(data)), version) == message
        assert cls.from_dict(decoded.to_dict()) == message


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
