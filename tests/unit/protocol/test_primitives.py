"""The wire types as interpreted constructs, and the same types in generated codecs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from construct import ConstructError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.protocol.fillings import plain
from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import (
    Array,
    Boolean,
    Bytes,
    CompactBytes,
    CompactNullableString,
    CompactString,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    String,
    UInt16,
    UInt32,
    Uuid,
    UVarInt,
    VarInt,
    VarLong,
)
from triokafka.protocol.structures import Structure
from triokafka.protocol.tagged_fields import TaggedField, TaggedFields


class Inner(Struct):
    """A structure inside the message below."""

    wide: int = field(VarLong, doc="A long varint.")
    name: str = field(String, doc="A text.")


class EveryType(Message, versions="0-1", flexible="1+"):
    """Types that no Kafka message of ours has, next to those that all have."""

    unsigned: int = field(UVarInt, doc="An unsigned varint.")
    signed: int = field(VarInt, doc="A varint.")
    wide: int = field(VarLong, doc="A long varint.")
    real: float = field(Float64, doc="A number.")
    port: int = field(UInt16, doc="A port.")
    crc: int = field(UInt32, doc="A checksum.")
    flags: list[bool] = field(Array(Boolean), doc="Flags.")
    small: list[int] = field(Array(Int8), nullable="0+", doc="Bytes.")
    varints: list[int] = field(Array(VarInt), doc="Varints.")
    ids: list[UUID] = field(Array(Uuid), doc="Ids.")
    blobs: list[bytes] = field(Array(Bytes), doc="Blobs.")
    inner: Inner = field(Inner, doc="A structure.")
    maybe: Inner | None = field(Inner, nullable="0+", default=None, doc="A structure or null.")


@pytest.mark.parametrize(
    ("wire", "value", "data"),
    [
        (Int8, -2, "fe"),
        (Int16, -2, "fffe"),
        (Int32, 2**31 - 1, "7fffffff"),
        (Int64, -(2**63), "8000000000000000"),
        (UInt16, 65535, "ffff"),
        (UInt32, 2**32 - 1, "ffffffff"),
        (Float64, 1.5, "3ff8000000000000"),
        (Boolean, True, "01"),
        (Uuid, UUID(int=258), "00000000000000000000000000000102"),
        (UVarInt, 127, "7f"),
        (UVarInt, 300, "ac02"),
        (UVarInt, 2**32 - 1, "ffffffff0f"),
        (VarInt, 0, "00"),
        (VarInt, -1, "01"),
        (VarInt, 1, "02"),
        (VarInt, -(2**31), "ffffffff0f"),
        (VarLong, 2**63 - 1, "feffffffffffffffff01"),
        (VarLong, -(2**63), "ffffffffffffffffff01"),
        (String, "é", "0002c3a9"),
        (NullableString, None, "ffff"),
        (CompactString, "", "01"),
        (CompactString, "é", "03c3a9"),
        (CompactNullableString, None, "00"),
        (Bytes, b"\x07", "0000000107"),
        (CompactBytes, b"\x07", "0207"),
        (Array(Int16), [1, 2], "0000000200010002"),
        (Array(Int16, nullable=True), None, "ffffffff"),
        (Array(CompactString, compact=True), ["a"], "020261"),
        (Array(Int16, compact=True, nullable=True), None, "00"),
    ],
)
def test_wire_type_builds_and_parses(wire: Any, value: object, data: str) -> None:
    assert wire.build(value) == bytes.fromhex(data)
    assert wire.parse(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("wire", "data"),
    [
        (UVarInt, "ffffffff10"),
        (UVarInt, "808080808001"),
        (UVarInt, "80"),
        (VarInt, "ffffffffff01"),
        (VarInt, "8080808010"),
        (VarLong, "80808080808080808080808001"),
        (Uuid, "00" * 15),
        (String, "ffff"),
        (NullableString, "fffe"),
        (String, "000561"),
        (CompactString, "00"),
        (Bytes, "7fffffff00"),
        (Array(Int16), "0000000200010"),
        (Array(Int64), "7fffffff" + "00" * 100),
        (Array(Int16), "fffffffe"),
    ],
)
def test_malformed_input_is_refused(wire: Any, data: str) -> None:
    with pytest.raises(ConstructError):
        wire.parse(bytes.fromhex(data if len(data) % 2 == 0 else data[:-1]))


@pytest.mark.parametrize(
    ("wire", "value"),
    [(UVarInt, -1), (UVarInt, 2**32), (VarInt, 2**31), (VarLong, -(2**63) - 1), (String, None), (Int8, 200)],
)
def test_values_out_of_range_are_refused(wire: Any, value: object) -> None:
    with pytest.raises(ConstructError):
        wire.build(value)


def test_tagged_section_keeps_the_last_of_a_repeated_tag_and_orders_on_output() -> None:
    section = TaggedFields([TaggedField(1, "one", Int8, 0)])
    assert section.parse(bytes.fromhex("03 05 01 aa 01 01 07 05 01 bb")) == ({"one": 7}, {5: b"\xbb"})
    assert section.build(({"one": 7}, {5: b"\xbb", 0: b""})) == bytes.fromhex("03 00 00 01 01 07 05 01 bb")
    assert section.build(({"one": 0}, {})) == b"\0"


def test_structure_knows_its_smallest_size() -> None:
    fields = ["a" / Int32, "b" / CompactString, "c" / Array(Int64)]
    assert Structure(None, fields, TaggedFields()).min_size == 4 + 1 + 4 + 1


INNERS = st.builds(Inner, wide=st.integers(-(2**63), 2**63 - 1), name=st.text(st.characters(codec="utf-8")))
MESSAGES = st.builds(
    EveryType,
    unsigned=st.integers(0, 2**32 - 1),
    signed=st.integers(-(2**31), 2**31 - 1),
    wide=st.integers(-(2**63), 2**63 - 1),
    real=st.floats(allow_nan=False),
    port=st.integers(0, 65535),
    crc=st.integers(0, 2**32 - 1),
    flags=st.lists(st.booleans()),
    small=st.none() | st.lists(st.integers(-128, 127)),
    varints=st.lists(st.integers(-(2**31), 2**31 - 1)),
    ids=st.lists(st.uuids()),
    blobs=st.lists(st.binary()),
    inner=INNERS,
    maybe=st.none() | INNERS,
)


@pytest.mark.parametrize("version", [0, 1])
def test_generated_codec_knows_every_type(version: int) -> None:
    construct = EveryType.construct(version)

    @settings(max_examples=60, deadline=None, database=None)
    @given(MESSAGES)
    def holds(message: EveryType) -> None:
        data = message.encode(version)
        assert construct.build(message.to_dict()) == data
        assert plain(construct.parse(data)) == EveryType.decode(data, version).to_dict()
        assert EveryType.decode(bytearray(data), version) == message
        for end in range(len(data)):
            with pytest.raises(ProtocolError):
                EveryType.decode(data[:end], version)

    holds()


@pytest.mark.parametrize("name", ["unsigned", "signed", "wide"])
def test_varint_that_does_not_fit_is_refused_with_its_path(name: str) -> None:
    message = EveryType()
    setattr(message, name, 2**70)
    with pytest.raises(ProtocolError) as caught:
        message.encode(0)
    assert caught.value.path == f"EveryType.{name}"
