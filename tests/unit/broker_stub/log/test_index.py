"""The two indexes of a segment."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from triokafka.world.memory import MemoryStorage


def offset_index(storage: MemoryStorage, *, new: bool = True, max_bytes: int = 80) -> OffsetIndex:
    return OffsetIndex(storage, "i", 100, max_bytes=max_bytes, new=new)


def time_index(storage: MemoryStorage, *, new: bool = True, max_bytes: int = 120) -> TimeIndex:
    return TimeIndex(storage, "t", 100, max_bytes=max_bytes, new=new)


def test_an_entry_of_the_offset_index_is_two_big_endian_words() -> None:
    storage = MemoryStorage()
    index = offset_index(storage)
    index.append(103, 4097)
    index.append(2**31 - 1 + 100, 2**31 - 1)
    index.write()
    assert storage.read_file("i") == bytes.fromhex("00000003 00001001 7fffffff 7fffffff")
    assert offset_index(storage, new=False).entries() == [(103, 4097), (2**31 + 99, 2**31 - 1)]


def test_an_entry_of_the_time_index_is_a_long_and_a_word() -> None:
    storage = MemoryStorage()
    index = time_index(storage)
    index.maybe_append(1_700_000_000_123, 107)
    index.maybe_append(1_700_000_000_124, 300)
    index.write()
    assert storage.read_file("t") == bytes.fromhex("0000018bcfe5687b 00000007 0000018bcfe5687c 000000c8")
    assert time_index(storage, new=False).entries() == [(1_700_000_000_123, 107), (1_700_000_000_124, 300)]


def test_a_look_up_finds_the_greatest_entry_at_or_below() -> None:
    index = offset_index(MemoryStorage())
    assert index.lookup(105) == (100, 0)
    for offset in (110, 120, 130):
        index.append(offset, offset * 10)
    assert [index.lookup(o)[0] for o in (0, 109, 110, 119, 120, 999)] == [100, 100, 110, 110, 120, 130]
    assert [index.lookup_position(p)[1] for p in (0, 1099, 1100, 5000)] == [0, 0, 1100, 1300]


@pytest.mark.parametrize("loaded", [True, False])
def test_an_index_knows_how_many_entries_it_has_and_the_last_one(loaded: bool) -> None:
    """The last entry of an empty index is the segment's beginning; a full file takes no more entries."""
    storage = MemoryStorage()
    assert (len(offset_index(storage)), offset_index(storage).last) == (0, (100, 0))
    assert time_index(storage).last == (-1, 100)
    index = offset_index(storage)
    index.append(103, 10)
    index.append(109, 20)
    index.write()
    assert len(storage.read_file("i")) == 16
    again = offset_index(storage, new=False)
    if loaded:
        assert len(again) == 2
    assert again.last == (109, 20)


def test_entries_go_up() -> None:
    index = offset_index(MemoryStorage())
    index.append(110, 50)
    for offset, position in ((110, 60), (120, 50), (99, 70), (100 + 2**31, 70)):
        with pytest.raises(CorruptIndexError):
            index.append(offset, position)


def test_a_time_that_says_nothing_new_is_left_out() -> None:
    index = time_index(MemoryStorage())
    for timestamp, offset in ((-1, 100), (50, 101), (50, 102), (40, 103), (60, 104)):
        index.maybe_append(timestamp, offset)
    assert index.entries() == [(50, 101), (60, 104)]
    assert [index.lookup(t) for t in (49, 50, 59, 60)] == [(-1, 100), (50, 101), (50, 101), (60, 104)]


def test_truncation_drops_entries_at_and_above_the_offset() -> None:
    """The file follows."""
    storage = MemoryStorage()
    index = offset_index(storage)
    for offset in (110, 120, 130):
        index.append(offset, offset)
    index.write()
    index.truncate_to(120)
    assert index.entries() == [(110, 110)]
    index.append(115, 500)
    index.write()
    assert offset_index(storage, new=False).entries() == [(110, 110), (115, 500)]
    index.truncate_to(0)
    index.write()
    assert storage.read_file("i") == b""


def test_an_index_is_full_at_its_size_and_keeps_a_slot_for_the_last_time() -> None:
    offsets, times = offset_index(MemoryStorage(), max_bytes=17), time_index(MemoryStorage(), max_bytes=36)
    offsets.append(101, 1)
    times.maybe_append(1, 101)
    assert not offsets.is_full
    assert not times.is_full
    offsets.append(102, 2)
    times.maybe_append(2, 102)
    assert offsets.is_full
    assert times.is_full


@pytest.mark.parametrize("content", [b"\0" * 7, b"\0" * 16, bytes.fromhex("0000000200000002 0000000100000003")])
def test_a_file_that_no_writer_wrote_is_corrupt(content: bytes) -> None:
    storage = MemoryStorage()
    storage.replace_file("i", content)
    storage.replace_file("t", content + b"\0" * 8)
    with pytest.raises(CorruptIndexError):
        len(offset_index(storage, new=False))
    with pytest.raises(CorruptIndexError):
        len(time_index(storage, new=False))


def test_a_missing_file_is_corrupt_and_read_only_when_needed() -> None:
    index = offset_index(MemoryStorage(), new=False)
    with pytest.raises(CorruptIndexError, match="missing"):
        index.lookup(5)


def test_an_emptied_file_is_to_be_synced_and_a_new_empty_one_is_not() -> None:
    """Otherwise a power cut could bring entries of an earlier log back."""
    storage = MemoryStorage()
    index = offset_index(storage)
    index.write()
    assert not index.unsynced
    index.append(110, 50)
    index.write()
    assert index.unsynced
    index.unsynced = False
    index.clear()
    index.write()
    assert index.unsynced
    assert storage.read_file("i") == b""
