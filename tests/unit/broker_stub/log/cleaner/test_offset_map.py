"""The map from keys to offsets that does not grow."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from triokafka.broker_stub.log.cleaner.offset_map import (
    ENTRY_BYTES,
    SMALL_ENTRY_BYTES,
    LargeOffsetMap,
    SmallOffsetMap,
    offset_map,
)


@given(
    st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**63 - 1))), st.integers(1, 60), st.binary(max_size=16)
)
def test_map_is_a_dict_of_bounded_size(puts: list[tuple[bytes, int]], room: int, salt: bytes) -> None:
    offsets = LargeOffsetMap(room * ENTRY_BYTES, 0.75, salt=salt)
    model: dict[bytes, int] = {}
    for key, offset in puts:
        fits = key in model or len(model) < offsets.capacity
        assert offsets.put(key, offset) is fits
        if fits:
            model[key] = offset
    assert len(offsets) == len(model)
    assert {key: offsets.get(key) for key, _ in puts} == {key: model.get(key, -1) for key, _ in puts}
    assert offsets.utilization == len(model) / offsets.capacity


def test_load_factor_bounds_how_many_keys_fit() -> None:
    offsets = LargeOffsetMap(1009 * ENTRY_BYTES, 0.9)
    taken = [offsets.put(b"%d" % number, number) for number in range(1009)]
    assert sum(taken) == offsets.capacity == int(1009 * 0.9)
    assert taken == sorted(taken, reverse=True)


def test_map_takes_no_more_memory_than_the_keys_that_are_expected() -> None:
    small = LargeOffsetMap(128 * 1024 * 1024, expected=100)
    assert 100 <= small.capacity < 200


def test_smallest_map_takes_a_key() -> None:
    offsets = LargeOffsetMap(0)
    assert offsets.put(b"a", 1)
    assert offsets.get(b"a") == 1
    assert offsets.get(b"b") == -1


@given(st.lists(st.tuples(st.binary(max_size=3) | st.binary(min_size=40, max_size=60), st.integers(0, 2**63 - 1))))
def test_small_map_is_a_dict(puts: list[tuple[bytes, int]]) -> None:
    offsets = SmallOffsetMap(1000)
    for key, offset in puts:
        assert offsets.put(key, offset)
    model = dict(puts)
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.get(b"another") == -1
    assert len(offsets) == len(model)


def test_map_is_small_where_the_memory_allows_it() -> None:
    room = 100 * SMALL_ENTRY_BYTES
    assert isinstance(offset_map(room, 0.9, expected=90, salt=b""), SmallOffsetMap)
    assert isinstance(offset_map(room, 0.9, expected=91, salt=b""), LargeOffsetMap)


def test_entry_of_a_small_map_takes_no_more_than_documented() -> None:
    tracemalloc.start()
    try:
        offsets = SmallOffsetMap(1)
        for number in range(90_000):
            offsets.put(b"%048d" % number, 2**40 + number)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / len(offsets) <= SMALL_ENTRY_BYTES
