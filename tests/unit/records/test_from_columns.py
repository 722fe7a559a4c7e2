"""Columns of byte strings out of lists and Arrow, and records from them."""

from __future__ import annotations

import gc
import struct
import weakref
from array import array
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.records.arrow_forms import TYPES, ArrayOnly, StreamOnly, array_of, cut, forms
from tests.unit.records.stacks import Stack
from triokafka.records import decode_records
from triokafka.records.from_arrow import bytes_chunks, integer_chunks
from triokafka.records.plain_arrow_buffers import (
    BINARY,
    DICTIONARY,
    FIXED,
    LARGE,
    VIEW,
    BytesChunk,
    IntegerChunk,
)

CONTENTS = [None, b"a", b"", b"twelve bytes", b"thirteen byte", None, b"z" * 300, b"\xc3\xa9"]


def column(stack: Stack, source: Any) -> Any:
    if hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__"):
        return stack.kernel.BytesColumn(None, bytes_chunks(source))
    return stack.kernel.BytesColumn(source)


def read(stack: Stack, source: Any) -> list[Any]:
    made = column(stack, source)
    return [made[position] for position in range(len(made))]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_layout_is_read_whole_cut_and_in_chunks(stack: Stack, kind: Any) -> None:
    whole = array_of(CONTENTS, kind)
    for form in forms(whole):
        assert read(stack, form) == CONTENTS
    for form in forms(whole[3:7]):
        assert read(stack, form) == CONTENTS[3:7]
    for form in forms(whole[2:2]):
        assert read(stack, form) == []
    for form in forms(cut(whole, [2, 2, 5])):
        assert read(stack, form) == CONTENTS


def test_values_of_one_width_and_values_that_are_all_null(stack: Stack) -> None:
    fixed = pa.array([b"abc", None, b"def"], pa.binary(3))
    for form in forms(fixed):
        assert read(stack, form) == [b"abc", None, b"def"]
    for form in forms(fixed[1:]):
        assert read(stack, form) == [None, b"def"]
    for form in forms(pa.nulls(3)):
        assert read(stack, form) == [None] * 3


def test_extension_types_are_read_as_their_storage_type(stack: Stack) -> None:
    assert read(stack, pa.array(['{"a": 1}', None], pa.json_())) == [b'{"a": 1}', None]


@pytest.mark.parametrize(
    "wrong", [pa.array([1]), pa.array([[b"a"]]), pa.array([1.0]), pa.array([{"a": b"b"}])], ids=str
)
def test_other_types_are_refused_by_name(wrong: Any) -> None:
    for form in forms(wrong):
        with pytest.raises(TypeError, match=r"an Arrow array of type '.*' is not one of binary or string"):
            bytes_chunks(form)
    with pytest.raises(TypeError, match="not one of integers or timestamps"):
        integer_chunks(pa.array(["1"]), timestamps=True)
    with pytest.raises(TypeError, match="not one of integers"):
        integer_chunks(pa.array([1], pa.timestamp("s")))


def test_a_stream_that_fails_says_why() -> None:
    def rows() -> Any:
        raise OSError("the disk is gone")
        yield

    class Failing:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return pa.RecordBatchReader.from_batches(pa.schema({"a": pa.binary()}), rows()).__arrow_c_stream__()

    with pytest.raises(ValueError, match=r"the Arrow stream failed: .*the disk is gone"):
        bytes_chunks(Failing())


def test_memory_of_other_libraries_lives_as_long_as_the_column(stack: Stack) -> None:
    """It is not freed sooner, because it is still read, or later, because it belongs to another library."""

    class Owner(bytearray):
        pass

    for wrap in (ArrayOnly, StreamOnly):
        memory = Owner(b"abcdef")
        gone = weakref.ref(memory)
        offsets = pa.py_buffer(struct.pack("<3i", 0, 3, 6))
        whole = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(memory)])
        made = column(stack, wrap(whole))
        del memory, whole
        gc.collect()
        assert (made[0], made[1], gone() is not None) == (b"abc", b"def", True)
        del made
        gc.collect()
        assert gone() is None


BROKEN = {
    "offsets that go back": BytesChunk(BINARY, 2, 0, None, struct.pack("<3i", 0, 5, 2), b"abcdef"),
    "a negative offset": BytesChunk(BINARY, 1, 0, None, struct.pack("<2i", -4, 2), b"abcdef"),
    "an offset behind the data": BytesChunk(BINARY, 1, 0, None, struct.pack("<2i", 0, 7), b"abcdef"),
    "too few offsets": BytesChunk(BINARY, 3, 0, None, struct.pack("<3i", 0, 1, 2), b"abcdef"),
    "too few offsets for the slice": BytesChunk(BINARY, 1, 2, None, struct.pack("<3i", 0, 1, 2), b"abcdef"),
    "no data": BytesChunk(BINARY, 1, 0, None, struct.pack("<2i", 0, 1), None),
    "no offsets": BytesChunk(BINARY, 1, 0, None, None, b"abcdef"),
    "long offsets behind the data": BytesChunk(LARGE, 1, 0, None, struct.pack("<2q", 0, 1 << 62), b"abcdef"),
    "long offsets that go back": BytesChunk(LARGE, 1, 0, None, struct.pack("<2q", 1 << 62, -(1 << 62)), b"abcdef"),
    "too little validity": BytesChunk(BINARY, 9, 0, b"\xff", struct.pack("<10i", *range(10)), b"abcdefghi"),
    "too few bytes of one width": BytesChunk(FIXED, 3, 0, data=b"abcde", width=2),
    "a width that overflows": BytesChunk(FIXED, 1 << 40, 0, data=b"abcde", width=1 << 40),
    "too few views": BytesChunk(VIEW, 2, 0, None, bytes(31)),
    "a view into no buffer": BytesChunk(VIEW, 1, 0, None, struct.pack("<4i", 13, 0, 0, 0)),
    "a view into a negative buffer": BytesChunk(VIEW, 1, 0, None, struct.pack("<4i", 13, 0, -1, 0), more=[bytes(99)]),
    "a view behind its buffer": BytesChunk(VIEW, 1, 0, None, struct.pack("<4i", 13, 0, 0, 90), more=[bytes(99)]),
    "a view before its buffer": BytesChunk(VIEW, 1, 0, None, struct.pack("<4i", 13, 0, 0, -1), more=[bytes(99)]),
    "a view of negative length": BytesChunk(VIEW, 1, 0, None, struct.pack("<4i", -1, 0, 0, 0), more=[bytes(99)]),
    "an entry that is not there": BytesChunk(
        DICTIONARY, 1, indices=struct.pack("<q", 1), dictionary=BytesChunk(FIXED, 1, data=b"ab", width=2)
    ),
    "too few entry numbers": BytesChunk(
        DICTIONARY, 2, indices=struct.pack("<q", 0), dictionary=BytesChunk(FIXED, 1, data=b"ab", width=2)
    ),
    "a negative length": BytesChunk(BINARY, -1),
    "a negative offset of the chunk": BytesChunk(BINARY, 1, -1, None, bytes(8), b""),
}


@pytest.mark.parametrize("chunk", BROKEN.values(), ids=BROKEN)
def test_broken_buffers_raise_and_are_not_read(stack: Stack, chunk: BytesChunk) -> None:
    with pytest.raises(ValueError, match="the Arrow array is broken"):
        made = stack.kernel.BytesColumn(None, [chunk])
        for position in range(len(made)):
            made[position]


def test_broken_arrays_of_pyarrow_raise(stack: Stack) -> None:
    offsets = pa.py_buffer(struct.pack("<4i", 0, 3, 1_000_000, 3))
    broken = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abc")])
    columns = stack.kernel.RecordColumns(column(stack, broken))
    builder = stack.records.BatchBuilder(1000)
    with pytest.raises(ValueError, match="bytes 3 to 1000000 of a buffer of 3"):
        columns.append_to(builder, 0, 5)
    assert builder.count == 1, "what came before the broken place stays"
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 9]), pa.array([b"a"]), safe=False)
    with pytest.raises(ValueError, match="it names an entry that its dictionary of 1 does not have"):
        column(stack, broken)


def test_integers_of_every_width_become_64_bits(stack: Stack) -> None:
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()):
        for form in forms(pa.array([99, 1, None, 127, 3], kind)[1:]):
            out = array("q", [7] * 6)
            assert [stack.kernel.copy_integers(chunk, out, 1, null=-5) for chunk in integer_chunks(form)] == [-1]
            assert list(out) == [7, 1, -5, 127, 3, 7]


def test_times_of_every_unit_become_milliseconds(stack: Stack) -> None:
    for unit, number in (("s", 1_700_000_000), ("ms", 1_700_000_000_000), ("us", 1_700_000_000_000_999)):
        for form in forms(pa.array([number, None], pa.timestamp(unit, "UTC"))):
            out = array("q", [0, 0])
            (chunk,) = integer_chunks(form, timestamps=True)
            assert stack.kernel.copy_integers(chunk, out, 0, null=4) == -1
            assert list(out) == [1_700_000_000_000, 4]
    before = IntegerChunk("q", 1, data=struct.pack("<q", -1), multiplier=1, divisor=1000)
    out = array("q", [0])
    stack.kernel.copy_integers(before, out, 0, null=0)
    assert out[0] == -1, "rounded down"


def test_the_first_integer_out_of_range_is_named(stack: Stack) -> None:
    out = array("q", [0] * 5)
    (chunk,) = integer_chunks(pa.array([1, None, 3, -2, 9]))
    assert stack.kernel.copy_integers(chunk, out, 0, null=0, low=0) == 3
    (chunk,) = integer_chunks(pa.array([1, 2**64 - 1], pa.uint64()))
    assert stack.kernel.copy_integers(chunk, out, 0, null=0) == 1
    for broken in (
        IntegerChunk("q", 2, data=bytes(15)),
        IntegerChunk("q", -1),
        IntegerChunk("b", 9, 0, b"x", bytes(9)),
    ):
        with pytest.raises(ValueError, match="broken"):
            stack.kernel.copy_integers(broken, array("q", bytes(80)), 0, null=0)
    with pytest.raises(ValueError, match="do not fit"):
        stack.kernel.copy_integers(IntegerChunk("b", 3, data=bytes(3)), out, 3, null=0)


def test_lists_of_integers_become_64_bits(stack: Stack) -> None:
    class Index:
        def __index__(self) -> int:
            return 3

    out = array("q", [7] * 6)
    assert stack.kernel.copy_numbers([0, None, 2**62, Index()], out, null=-1, low=0) == -1
    assert list(out) == [0, -1, 2**62, 3, 7, 7]
    for wrong in (-1, 2**63, True, 1.0, "1", 10**30):
        assert stack.kernel.copy_numbers([1, wrong, 2], out, null=-1, low=0) == 1
    with pytest.raises(ValueError, match="7 numbers at 0 do not fit 6"):
        stack.kernel.copy_numbers([1] * 7, out, null=0)


def test_columns_of_different_lengths_are_refused(stack: Stack) -> None:
    three, two = column(stack, [b"a", b"b", b"c"]), column(stack, [b"a", b"b"])
    with pytest.raises(ValueError, match="3 values but 2 keys"):
        stack.kernel.RecordColumns(three, two)
    with pytest.raises(ValueError, match="3 values but 2 headers"):
        stack.kernel.RecordColumns(three, headers=[(), ()])
    with pytest.raises(ValueError, match="3 values but 1 timestamps"):
        stack.kernel.RecordColumns(three, timestamps=array("q", [1]))
    with pytest.raises(ValueError, match="3 values but 2 partitions"):
        stack.kernel.RecordColumns(three).append_among([], array("q", [0, 0]), 0, 0, 0)


def test_a_bad_record_raises_after_those_before_it(stack: Stack) -> None:
    columns = stack.kernel.RecordColumns(column(stack, [b"a", b"b", 5, b"c"]))
    one, two = stack.records.BatchBuilder(1000), stack.records.BatchBuilder(1000)
    with pytest.raises(TypeError):
        columns.append_to(one, 0, 5)
    assert one.count == 2
    with pytest.raises(TypeError):
        columns.append_among([one, two], array("q", [1, 0, 1, 0]), 0, 5, 0)
    assert sorted(columns.touched) == [(0, 2), (1, 0)]
    assert (one.count, two.count) == (3, 1)


def test_records_are_spread_by_number_by_key_and_to_the_sticky_one(stack: Stack) -> None:
    keys = column(stack, pa.array([b"k", None, b"other", b"k", None]))
    columns = stack.kernel.RecordColumns(column(stack, [b"0", b"1", b"2", bytearray(b"3"), b"4"]), keys)
    builders = [stack.records.BatchBuilder(1000) for _ in range(4)]
    partitions = array("q", [-1, -1, 2, -1, 1])
    by_key = (stack.kernel.murmur2(b"k") & 0x7FFFFFFF) % 4
    assert [columns.place(i, partitions, 4, 3) for i in range(5)] == [by_key, 3, 2, by_key, 1]
    assert columns.append_among(builders, partitions, 0, 9, 3) == 5
    assert list(partitions) == [by_key, 3, 2, by_key, 1]
    found: dict[int, list[bytes]] = {
        number: [r.value for r in decode_records(bytes(b.build()))] for number, b in enumerate(builders) if b.count
    }
    expected: dict[int, list[bytes]] = {}
    for number, value in zip(partitions, (b"0", b"1", b"2", b"3", b"4"), strict=True):
        expected.setdefault(number, []).append(value)
    assert found == expected


def test_spreading_stops_where_there_is_no_batch(stack: Stack) -> None:
    columns = stack.kernel.RecordColumns(column(stack, [b"0", b"1", b"2"]))
    builder = stack.records.BatchBuilder(1000)
    assert columns.append_among([builder, None], array("q", [0, 1, 0]), 0, 9, 0) == 1
    assert columns.append_among([builder, None], array("q", [0, 1, 0]), 2, 9, 0) == 1
    with pytest.raises(ValueError, match="partition 2 of 2"):
        columns.append_among([builder, None], array("q", [2, 1, 0]), 0, 9, 0)


def test_hash_is_that_of_javas_clients(stack: Stack) -> None:
    for key, expected in ((b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)):
        assert stack.kernel.murmur2(key) == expected & 0xFFFFFFFF
        assert stack.kernel.murmur2(bytearray(key)) == expected & 0xFFFFFFFF


def test_list_that_changes_during_the_call_has_no_effect(stack: Stack) -> None:
    class Evil(bytearray):
        pass

    values: list[Any] = [b"a", b"b", b"c"]
    columns = stack.kernel.RecordColumns(column(stack, values), column(stack, pa.array([b"x", b"y", b"z"])))
    builder = stack.records.BatchBuilder(1000)
    values += [b"d"] * 100
    assert columns.append_to(builder, 0, 5) == 3, "the keys end there"
    del values[1:]
    assert columns.append_to(builder, 0, 5) == 1
