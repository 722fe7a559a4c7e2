"""The offset map translates like a list of all pairs, whatever is added, repeated, cut, stored and restored."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.mirror import offset_translation
from triokafka.mirror.offset_translation import OffsetTranslation
from triokafka.mirror.stored_positions import MirrorPositionsError, decode_positions, encode_changes
from triokafka.structs import TopicPartition

PARTITION = TopicPartition("orders", 3)


def test_contiguous_records_are_one_run() -> None:
    offsets = OffsetTranslation(0)
    offsets.add(0, 100, 10)
    offsets.add(10, 110, 5)
    assert len(offsets) == 1
    assert [offsets.translate(n) for n in (0, 9, 14, 15)] == [100, 109, 114, 115]


def test_offset_in_a_gap_is_the_next_record() -> None:
    """Markers and compacted records have no counterpart."""
    offsets = OffsetTranslation(0)
    offsets.add(0, 0, 3)
    offsets.add(7, 3, 2)
    assert [offsets.translate(n) for n in (3, 5, 7, 8, 9)] == [3, 3, 3, 4, 5]


def test_offset_that_is_not_mirrored_yet_or_too_old_is_unknown() -> None:
    offsets = OffsetTranslation(5)
    assert offsets.translate(5) is None
    offsets.add(6, 0, 2)
    assert offsets.translate(4) is None
    assert offsets.translate(5) == 0
    assert offsets.translate(9) is None
    offsets.advance(12)
    assert offsets.translate(12) == 2


def test_records_that_are_repeated_replace_the_old_ones() -> None:
    """After a crash the records behind the stored progress are mirrored again, at the end of the target's log."""
    offsets = OffsetTranslation(0)
    offsets.add(0, 0, 10)
    offsets.add(6, 14, 4)
    assert [offsets.translate(n) for n in (5, 6, 9, 10)] == [5, 14, 17, 18]


class Model:
    """All pairs, and the end."""

    def __init__(self) -> None:
        self.pairs: dict[int, int] = {}
        self.next = 0

    def add(self, upstream: int, downstream: int, count: int) -> None:
        self.rewind(upstream)
        self.pairs.update((upstream + n, downstream + n) for n in range(count))
        self.next = upstream + count

    def rewind(self, upstream: int) -> None:
        self.pairs = {u: d for u, d in self.pairs.items() if u < upstream}

    def translate(self, upstream: int) -> int | None:
        after = [u for u in self.pairs if u >= upstream]
        if after:
            return self.pairs[min(after)]
        return self.pairs[max(self.pairs)] + 1 if self.pairs else None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(-4, 3), st.integers(0, 2), st.integers(1, 5)),
        st.tuples(st.just("advance"), st.integers(0, 4)),
        st.tuples(st.just("store")),
        st.tuples(st.just("crash")),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(STEPS)
def test_map_is_the_list_of_all_pairs(steps: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_translation, "BLOCK", 3)  # so that there are many blocks
        offsets, model, downstream = OffsetTranslation(0), Model(), 0
        disk: dict[bytes, bytes] = {}
        stored = Model()
        for kind, *numbers in steps:
            if kind == "add":
                back, gap, count = numbers
                upstream = max(0, offsets.next_offset + back)
                downstream += gap
                offsets.add(upstream, downstream, count)
                model.add(upstream, downstream, count)
                downstream += count
            elif kind == "advance":
                offsets.advance(offsets.next_offset + numbers[0])
                model.next += numbers[0]
            elif kind == "store":
                store(disk, offsets)
                stored.pairs, stored.next = dict(model.pairs), model.next
            elif disk:
                offsets = decode_positions(disk)[PARTITION].offset_translation()
                model.pairs, model.next = dict(stored.pairs), stored.next
            assert offsets.next_offset == model.next
            assert [offsets.translate(n) for n in range(model.next + 1)] == [
                model.translate(n) for n in range(model.next + 1)
            ]


def store(disk: dict[bytes, bytes], offsets: OffsetTranslation, *, until: int | None = None) -> None:
    for key, value in encode_changes(PARTITION, None, offsets)[:until]:
        if value is None:
            disk.pop(key, None)
        else:
            disk[key] = value


def test_blocks_without_the_next_offset_are_cut_to_the_older_one() -> None:
    """A crash between the records of one store: blocks come first."""
    disk: dict[bytes, bytes] = {}
    offsets = OffsetTranslation(0)
    offsets.add(0, 0, 5)
    store(disk, offsets)
    offsets.add(5, 9, 5)
    store(disk, offsets, until=1)
    restored = decode_positions(disk)[PARTITION].offset_translation()
    assert restored.next_offset == 5
    assert [restored.translate(n) for n in (4, 5, 6)] == [4, 5, None]


def test_oldest_block_goes_when_there_are_too_many() -> None:
    disk: dict[bytes, bytes] = {}
    offsets = OffsetTranslation(0)
    count = offset_translation.BLOCK * (offset_translation.MAX_BLOCKS + 2)
    for number in range(count):
        offsets.add(2 * number, number, 1)
        if number % 50 == 0:
            store(disk, offsets)
    store(disk, offsets)
    assert len(offsets) <= offset_translation.BLOCK * offset_translation.MAX_BLOCKS
    assert len(disk) <= offset_translation.MAX_BLOCKS + 1
    assert offsets.translate(offsets.floor - 1) is None
    assert offsets.translate(2 * count - 1) == count
    restored = decode_positions(disk)[PARTITION].offset_translation()
    assert restored.floor == offsets.floor
    assert restored.translate(offsets.floor + 7) == offsets.translate(offsets.floor + 7)


def test_position_that_the_stored_blocks_do_not_cover_is_unknown() -> None:
    """Whatever prefix of the topic's log was deleted, a translation is the right one or none."""
    log: list[tuple[bytes, bytes | None]] = []
    offsets, after = OffsetTranslation(0), OffsetTranslation(0)
    count = 3 * offset_translation.BLOCK
    for number in range(count + 40):
        after.add(2 * number, number, 1)
        if number < count:
            offsets.add(2 * number, number, 1)
            if number % 50 == 0 or number == count - 1:
                log += encode_changes(PARTITION, None, offsets)
    for deleted in range(len(log)):
        disk = {key: value for key, value in log[deleted:] if value is not None}
        if PARTITION not in decode_positions(disk):
            continue
        restored = decode_positions(disk)[PARTITION].offset_translation()
        assert restored.next_offset == offsets.next_offset
        for again in range(2):
            for upstream in range(0, 2 * count, 7):
                assert restored.translate(upstream) in (None, after.translate(upstream)), (deleted, upstream)
            for number in range(count, count + 40):
                restored.add(2 * number, number, 1)
            assert restored.translate(2 * count + 20) == after.translate(2 * count + 20)
            store(disk, restored)
            restored = decode_positions(disk)[PARTITION].offset_translation()
            assert again or len(restored) >= 40


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_block_does_not_affect_later_blocks(missing: int) -> None:
    disk: dict[bytes, bytes] = {}
    offsets = OffsetTranslation(0)
    for number in range(2 * offset_translation.BLOCK + 5):
        offsets.add(2 * number, number, 1)
    store(disk, offsets)
    del disk[next(key for key in disk if b'"block":%d' % missing in key)]
    restored = decode_positions(disk)[PARTITION].offset_translation()
    first = 2 * offset_translation.BLOCK * (missing + 1)
    assert restored.translate(first - 1 if missing < 2 else 0) is None
    assert restored.translate(first + 4) == (None if missing == 2 else offsets.translate(first + 4))


def test_progress_that_was_stored_without_its_extent_is_read() -> None:
    disk: dict[bytes, bytes] = {}
    offsets = OffsetTranslation(0)
    offsets.add(0, 0, 10)
    store(disk, offsets)
    for key, value in disk.items():
        disk[key] = value.replace(b',"extent":[0,1]', b"")
    restored = decode_positions(disk)[PARTITION].offset_translation()
    assert [restored.translate(n) for n in (0, 9, 10)] == [0, 9, 10]


def test_rewind_drops_offsets_that_the_source_lost() -> None:
    offsets = OffsetTranslation(0)
    offsets.add(0, 0, 10)
    offsets.rewind(4)
    assert offsets.next_offset == 4
    assert [offsets.translate(n) for n in (3, 4, 5)] == [3, 4, None]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"{}", b'{"version":1}', "damaged"),
        (b"no json", b"{}", "damaged"),
        (b'{"topic":"t","partition":0}', b'{"version":2}', "newer than 1"),
        (b'{"topic":"t","partition":0,"block":0}', b'{"version":1,"runs":[[1,2]]}', "damaged"),
    ],
)
def test_damaged_progress_is_an_error_that_names_the_key(key: bytes, value: bytes, problem: str) -> None:
    with pytest.raises(MirrorPositionsError, match=problem):
        decode_positions({key: value})
