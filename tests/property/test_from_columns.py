"""Records from columns, for any columns: the same as if each had been appended alone, and no byte out of bounds."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.records.arrow_forms import TYPES, array_of, cut, forms
from tests.unit.records.stacks import STACKS, Stack
from triokafka.records.from_arrow import bytes_chunks
from triokafka.records.plain_appender import RecordAppender as PlainAppender
from triokafka.records.plain_arrow_buffers import BINARY, DICTIONARY, FIXED, LARGE, NULLS, VIEW, BytesChunk
from triokafka.records.plain_from_columns import murmur2

texts = st.text(max_size=20).map(str.encode)
contents = st.lists(st.one_of(st.none(), texts, st.sampled_from([b"", b"k", b"x" * 200])), min_size=1, max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)


@st.composite
def sources(draw: Any, size: int | None = None) -> tuple[list[bytes | None], Any]:
    """Draw a column as a list of bytes, and in one of the forms that users may pass."""
    rows = draw(contents if size is None else st.lists(st.one_of(st.none(), texts), min_size=size, max_size=size))
    if draw(st.booleans()):
        kind = draw(st.sampled_from([None, bytearray, memoryview]))
        return rows, [row if row is None or kind is None else kind(row) for row in rows]
    kind = draw(st.sampled_from(TYPES))
    around = draw(st.lists(texts, max_size=9))
    whole = array_of([*around, *rows, *around], kind)[len(around) : len(around) + len(rows)]
    if draw(st.booleans()):
        whole = cut(whole, draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    return rows, draw(st.sampled_from(list(forms(whole))))


def column(stack: Stack, source: Any) -> Any:
    if isinstance(source, list):
        return stack.kernel.BytesColumn(source)
    return stack.kernel.BytesColumn(None, bytes_chunks(source))


def encoded(appender: Any) -> tuple[bytes, int, int, int]:
    return bytes(appender.buffer[61 : appender.size]), appender.count, appender.base_timestamp, appender.max_timestamp


@given(sources(), st.data())
def test_records_from_columns_are_those_appended_one_by_one(source: tuple[Any, Any], data: st.DataObject) -> None:
    rows, given_values = source
    count = len(rows)
    keys, given_keys = data.draw(st.one_of(st.just(([None] * count, None)), sources(count)))
    times = data.draw(st.one_of(st.none(), st.lists(st.integers(0, 2**62), min_size=count, max_size=count)))
    own = data.draw(st.one_of(st.none(), st.lists(headers, min_size=count, max_size=count)))
    same = data.draw(headers) if own is None else []
    start, limit = data.draw(st.integers(0, count)), data.draw(st.sampled_from([100, 400, 100_000]))
    expected = PlainAppender(limit)
    added = 0
    for i in range(start, count):
        time = 77 if times is None else times[i]
        if expected.append(time, keys[i], rows[i], same if own is None else own[i]) < 0:
            break
        added += 1
    for stack in STACKS:
        made = stack.kernel.RecordColumns(
            column(stack, given_values),
            None if given_keys is None else column(stack, given_keys),
            None if times is None else array("q", times),
            own,
            same,
        )
        appender = stack.kernel.RecordAppender(limit)
        assert made.append_to(appender, start, 77) == added
        assert encoded(appender) == encoded(expected)


@settings(max_examples=12)
@given(
    st.lists(st.sampled_from([0, 1, 63, 64, 100, 8_191, 8_192]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 9_000), st.sampled_from(["null", "key"])), max_size=4),
    st.sampled_from([77, 77 - 2**40, 77 + 2**62]),
    st.integers(0, 60),
    st.integers(0, 40),
)
def test_long_columns_are_encoded_like_single_records(
    sizes: list[int], odd: list[tuple[int, str]], time: int, missing: int, spare: int
) -> None:
    """All sizes of numbers are covered, up to the last byte of the batch and of its buffer."""
    count = 9_000 if max(sizes) < 8_000 else 200
    rows: list[bytes | None] = [bytes([65 + i % 26]) * sizes[i % len(sizes)] for i in range(count)]
    keys: list[bytes | None] = [None] * count
    for position, kind in odd:
        if kind == "null":
            rows[position % count] = None
        else:
            keys[position % count] = b"k"
    whole = PlainAppender(1 << 30)
    whole.append(77, None, b"first")
    for key, row in zip(keys, rows, strict=True):
        whole.append(time, key, row)
    limit = whole.size - missing
    expected = PlainAppender(limit)
    expected.append(77, None, b"first")
    added = 0
    while added < count and expected.append(time, keys[added], rows[added]) >= 0:
        added += 1
    for stack in STACKS:
        for given_values in (rows, array_of(rows, TYPES[0])):
            made = stack.kernel.RecordColumns(column(stack, given_values), stack.kernel.BytesColumn(keys))
            appender = stack.kernel.RecordAppender(limit, 0, bytearray(limit + spare))
            appender.append(77, None, b"first")
            assert made.append_to(appender, 0, time) == added
            assert encoded(appender) == encoded(expected)
            assert len(appender.buffer) == limit + spare


@given(sources(), st.integers(1, 4), st.data())
def test_records_spread_over_batches_stay_in_order_in_each(
    source: tuple[Any, Any], count: int, data: st.DataObject
) -> None:
    rows, given_values = source
    keys, given_keys = data.draw(st.one_of(st.just(([None] * len(rows), None)), sources(len(rows))))
    wanted = data.draw(st.lists(st.integers(-1, count - 1), min_size=len(rows), max_size=len(rows)))
    limit, sticky = data.draw(st.sampled_from([150, 100_000])), data.draw(st.integers(0, count - 1))
    chosen = [
        given if given >= 0 else sticky if key is None else (murmur2(key) & 0x7FFFFFFF) % count
        for given, key in zip(wanted, keys, strict=True)
    ]
    expected: list[list[Any]] = [[] for _ in range(count)]
    for partition, key, value in zip(chosen, keys, rows, strict=True):
        batches = expected[partition]
        if not batches or batches[-1].append(5, key, value) < 0:
            batches.append(PlainAppender(limit))
            batches[-1].append(5, key, value)
    for stack in STACKS:
        made = stack.kernel.RecordColumns(
            column(stack, given_values), None if given_keys is None else column(stack, given_keys)
        )
        partitions = array("q", wanted)
        batches_of: list[list[Any]] = [[] for _ in range(count)]
        done = 0
        while done < len(rows):
            open_ones = [batches[-1] if batches else None for batches in batches_of]
            before = [batch.count if batch is not None else 0 for batch in open_ones]
            taken = made.append_among(open_ones, partitions, done, 5, sticky)
            assert sorted(made.touched) == [
                (i, before[i]) for i, b in enumerate(open_ones) if b is not None and b.count > before[i]
            ]
            done += taken
            if done < len(rows):
                place = made.place(done, partitions, count, sticky)
                batches_of[place].append(stack.kernel.RecordAppender(limit))
        assert list(partitions) == chosen
        assert [[encoded(b) for b in batches] for batches in batches_of] == [
            [encoded(b) for b in batches] for batches in expected
        ]


numbers = st.one_of(st.integers(-3, 40), st.integers(-(2**31), 2**31 - 1))
long_numbers = st.one_of(numbers, st.integers(-(2**63), 2**63 - 1))
blobs = st.one_of(st.none(), st.binary(max_size=40))


@st.composite
def hostile_chunks(draw: Any, depth: int = 0) -> BytesChunk:
    layout = draw(st.sampled_from([NULLS, BINARY, LARGE, FIXED, VIEW, DICTIONARY][: 5 if depth else 6]))
    offsets = {
        BINARY: st.lists(numbers, max_size=8).map(lambda all_: struct.pack(f"<{len(all_)}i", *all_)),
        LARGE: st.lists(long_numbers, max_size=8).map(lambda all_: struct.pack(f"<{len(all_)}q", *all_)),
        VIEW: st.lists(st.tuples(numbers, numbers, numbers, numbers), max_size=8).map(
            lambda all_: b"".join(struct.pack("<4i", *view) for view in all_)
        ),
    }.get(layout, blobs)
    return BytesChunk(
        layout,
        draw(st.integers(-1, 8)),
        draw(st.integers(-1, 5)),
        draw(st.one_of(st.none(), st.binary(max_size=3))),
        draw(st.one_of(offsets, blobs)),
        draw(blobs),
        more=draw(st.lists(st.binary(max_size=40), max_size=3)),
        width=draw(st.integers(-1, 9)),
        indices=struct.pack("<8q", *draw(st.lists(long_numbers, min_size=8, max_size=8))),
        dictionary=draw(hostile_chunks(depth=1)) if layout == DICTIONARY else None,
    )


@given(st.lists(hostile_chunks(), max_size=3))
@example([BytesChunk(LARGE, 1, 0, None, struct.pack("<2q", 0, -1), None)])
@example([BytesChunk(BINARY, 1, 0, None, struct.pack("<2i", 0, -1), None)])
def test_any_buffers_are_read_right_or_refused(chunks: list[BytesChunk]) -> None:
    """The two kernels agree on every position: the same bytes, or the same error message."""
    outcomes = []
    for stack in STACKS:
        outcome: list[Any] = []
        try:
            made = stack.kernel.BytesColumn(None, chunks)
        except ValueError as error:
            outcomes.append([str(error)])
            continue
        for position in range(len(made)):
            try:
                outcome.append(made[position])
            except ValueError as error:
                outcome.append(str(error))
        outcomes.append(outcome)
    assert all(outcome == outcomes[0] for outcome in outcomes)
