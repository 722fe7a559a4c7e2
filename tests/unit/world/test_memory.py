"""Storage in memory: a file system, and its state after a power cut."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from triokafka.errors import IllegalStateError
from triokafka.world.memory import DiskFault, MemoryStorage
from triokafka.world.power_cut import SyncFailure


def write(storage: MemoryStorage, path: str, content: bytes, *, at: int = 0, sync: bool = False) -> None:
    file = storage.open(path, create=True)
    file.write_at(at, content)
    if sync:
        file.sync()
    file.close()


def durable(path: str = "f", content: bytes = b"", *, page_bytes: int = 4096) -> MemoryStorage:
    """A storage with one file that survives."""
    storage = MemoryStorage(page_bytes=page_bytes)
    write(storage, path, content, sync=True)
    storage.sync_dir("")
    return storage


# A file system


def test_files_are_read_where_they_were_written() -> None:
    storage = MemoryStorage()
    storage.make_dirs("/a/b")
    file = storage.open("/a/b/f", create=True)
    assert file.write_at(3, b"xyz", memoryview(b"uv")) == 5
    assert (file.read_at(0, 100), file.size()) == (b"\0\0\0xyzuv", 8)
    assert file.read_at(8, 10) == b""
    assert bytes(file.view(3, 3)) == b"xyz"
    with pytest.raises(OSError, match="ends at byte 8"):
        file.view(3, 6)
    file.truncate(4)
    file.truncate(6)
    assert storage.read_file("/a/b/f") == b"\0\0\0x\0\0"


def test_names_are_made_moved_and_removed() -> None:
    storage = MemoryStorage()
    storage.make_dirs("d/e")
    write(storage, "d/f", b"1")
    write(storage, "d/g", b"2")
    storage.rename("d/f", "d/g")
    assert storage.list_dir("d") == ["e", "g"]
    assert storage.read_file("d/g") == b"1"
    storage.rename("d", "h")
    assert storage.is_dir("h/e")
    assert not storage.exists("d")
    storage.remove("h/g")
    storage.remove_tree("h")
    storage.remove_tree("h")
    assert storage.list_dir("") == []


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (lambda s: s.open("none"), FileNotFoundError),
        (lambda s: s.open("none/f", create=True), FileNotFoundError),
        (lambda s: s.open("d"), IsADirectoryError),
        (lambda s: s.open("f/g", create=True), NotADirectoryError),
        (lambda s: s.make_dirs("f/g"), FileExistsError),
        (lambda s: s.remove("none"), FileNotFoundError),
        (lambda s: s.remove("d"), IsADirectoryError),
        (lambda s: s.rename("none", "x"), FileNotFoundError),
        (lambda s: s.rename("f", "d"), OSError),
        (lambda s: s.list_dir("none"), FileNotFoundError),
        (lambda s: s.open("f", read_only=True).write_at(0, b"x"), OSError),
    ],
)
def test_wrong_use_is_the_operating_systems_error(action, error) -> None:  # type: ignore[no-untyped-def]
    storage = MemoryStorage()
    storage.make_dirs("d/e")
    write(storage, "f", b"")
    with pytest.raises(error):
        action(storage)


def test_an_open_file_outlives_its_name() -> None:
    storage = MemoryStorage()
    file = storage.open("f", create=True)
    storage.remove("f")
    file.write_at(0, b"still here")
    assert file.read_at(0, 5) == b"still"
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.read_at(0, 1)


def test_a_file_knows_when_it_was_changed() -> None:
    """Reading, renaming and crashing do not change the time."""
    storage = MemoryStorage()
    storage.wall_ms = lambda: 5
    file = storage.open("/d", create=True)
    assert storage.modified_ms("/d") == 5
    storage.wall_ms = lambda: 6
    file.write_at(0, b"abc")
    assert storage.modified_ms("/d") == 6
    storage.wall_ms = lambda: 7
    file.truncate(3)
    storage.rename("/d", "/e")
    file.read_at(0, 3)
    assert storage.modified_ms("/e") == 6
    file.truncate(2)
    assert storage.modified_ms("/e") == 7
    storage.set_modified_ms("/e", 2)
    storage.kill()
    assert storage.modified_ms("/e") == 2
    with pytest.raises(FileNotFoundError):
        storage.modified_ms("/d")


def test_a_lock_is_held_once() -> None:
    storage = MemoryStorage()
    release = storage.lock(".lock")
    with pytest.raises(BlockingIOError):
        storage.lock("./.lock")
    release()
    storage.lock(".lock")


# Crashes


def test_power_cut_loses_unsynced_data() -> None:
    storage = durable(content=b"abc")
    write(storage, "f", b"XY", at=2)
    storage.open("f").truncate(1)
    write(storage, "f", b"ZZZZZZZ", at=4)
    write(storage, "g", b"new", sync=True)
    storage.crash(random.Random(0), tear=False)
    assert storage.read_file("f") == b"abc"
    assert not storage.exists("g")  # its name was not synced


def test_synced_data_survives_torn_writes() -> None:
    for seed in range(200):
        storage = durable(content=b"abc")
        write(storage, "f", b"d" * 2000, at=3)
        write(storage, "f", b"e" * 2000, at=2003)
        storage.crash(random.Random(seed))
        content = storage.read_file("f")
        assert content[:3] == b"abc"
        assert set(content[3:2003]) <= set(b"d\0")
        assert set(content[2003:]) <= set(b"e\0")


def test_a_torn_write_comes_in_all_shapes() -> None:
    shapes = set()
    for seed in range(300):
        storage = durable(page_bytes=1024)
        write(storage, "f", b"d" * 2000)
        write(storage, "f", b"e" * 2000, at=2000)
        storage.crash(random.Random(seed))
        content = storage.read_file("f")
        shapes.add((len(content) == 4000, len(content) % 128 == 0, b"\0" in content, b"e" in content))
    assert (True, False, False, True) in shapes  # everything
    assert any(not whole and sector for whole, sector, _, _ in shapes)  # cut at a sector
    assert any(holes and late for _, _, holes, late in shapes)  # the second write without the first


def test_the_same_randomness_gives_the_same_remains() -> None:
    contents = []
    for _ in range(2):
        storage = durable()
        for i in range(20):
            write(storage, f"f{i}", bytes([i]) * 700)
        storage.sync_dir("")
        storage.crash(random.Random(5))
        contents.append([storage.read_file(f"f{i}") for i in range(20)])
    assert contents[0] == contents[1]


def names_left(action: Callable[[MemoryStorage], object], seeds: int = 300) -> set[str]:
    """Which names a power cut can leave after ``action``."""
    seen = set()
    for seed in range(seeds):
        storage = MemoryStorage()
        action(storage)
        storage.crash(random.Random(seed))
        seen.add("".join(storage.list_dir("")))
    return seen


def test_unsynced_names_survive_in_any_order() -> None:
    def make_three(storage: MemoryStorage) -> None:
        for name in "abc":
            write(storage, name, b"")

    assert names_left(make_three) == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_rename_happens_as_a_whole_or_not_at_all() -> None:
    def rename(storage: MemoryStorage) -> None:
        write(storage, "a", b"")
        storage.sync_dir("")
        storage.rename("a", "d")

    assert names_left(rename) == {"a", "d"}


def test_a_removed_name_may_be_back() -> None:
    def remove(storage: MemoryStorage) -> None:
        write(storage, "a", b"")
        storage.sync_dir("")
        storage.remove("a")

    assert names_left(remove) == {"", "a"}


def test_a_directory_whose_name_was_not_synced_is_lost_with_all_that_was_synced_in_it() -> None:
    storage = MemoryStorage()
    storage.make_dirs("d")
    write(storage, "d/f", b"abc", sync=True)
    storage.sync_dir("d")
    storage.crash(random.Random(0), tear=False)
    assert not storage.exists("d")


def test_directories_can_be_made_to_last() -> None:
    storage = MemoryStorage()
    storage.make_dirs_durably("/a/b/c/")
    storage.make_dirs_durably("/a/b/d")
    storage.make_dirs_durably("/a")
    storage.crash(random.Random(0), tear=False)
    assert storage.list_dir("/a/b") == ["c", "d"]


def test_a_file_that_was_renamed_before_it_was_synced_may_be_empty() -> None:
    """The name is in the journal, the content is not. Therefore `Storage.replace_file` syncs before it renames."""
    contents = set()
    for seed in range(100):
        storage = durable(content=b"old")
        write(storage, "f.tmp", b"new")
        storage.rename("f.tmp", "f")
        storage.sync_dir("")
        storage.crash(random.Random(seed))
        contents.add(storage.read_file("f"))
    assert {b"", b"new"} <= contents
    assert b"old" not in contents


def left_of(page_bytes: int, *writes: tuple[int, bytes], base: bytes = b"", size: int | None = None) -> set[bytes]:
    """The contents that power cuts can leave of a synced ``base`` after ``writes``; ``size`` cuts it before them."""
    seen = set()
    for seed in range(400):
        storage = durable(content=base, page_bytes=page_bytes)
        if size is not None:
            storage.open("f").truncate(size)
        for offset, content in writes:
            write(storage, "f", content, at=offset)
        storage.crash(random.Random(seed))
        seen.add(storage.read_file("f"))
    return seen


def test_one_write_may_lose_a_page_in_its_middle() -> None:
    assert b"AAAA" + b"\0\0\0\0" + b"CCCC" in left_of(4, (0, b"AAAABBBBCCCC"))


def test_the_length_may_be_ahead_of_the_data_and_behind_it() -> None:
    seen = left_of(4, (0, b"AAAA"), (4, b"BBBB"))
    assert bytes(8) in seen
    assert b"AAAA" in seen


def test_pages_of_a_mapped_index_reach_the_disk_in_any_order() -> None:
    """Overwriting in place: every page is the old one, the new one, or one from in between."""
    seen = left_of(2, (0, b"b" * 6), (0, b"c" * 6), base=b"a" * 6)
    assert {b"aabbcc", b"ccaabb"} & seen
    assert {len(content) for content in seen} == {6}


def test_truncated_bytes_may_reappear_after_newer_writes() -> None:
    """Therefore recovery syncs its truncation before any append."""
    assert b"AAAAbbbbCCCC" in left_of(4, (4, b"bbbb"), base=b"AAAABBBBCCCC", size=4)


@pytest.mark.parametrize("page_bytes", [1, 3, 64, 4096])
def test_every_byte_that_is_left_was_written_there(page_bytes: int) -> None:
    for seed in range(300):
        choices = random.Random(seed)
        base = bytes(choices.randrange(1, 50) for _ in range(choices.randrange(60)))
        storage = durable(content=base, page_bytes=page_bytes)
        at = {position: {0, byte} for position, byte in enumerate(base)}
        sizes, file = {len(base)}, storage.open("f")
        for _ in range(choices.randrange(8)):
            offset, size = choices.randrange(80), choices.randrange(1, 40)
            if choices.random() < 0.3:
                file.truncate(offset)
            else:
                content = bytes(choices.randrange(50, 250) for _ in range(size))
                file.write_at(offset, content)
                for position, byte in enumerate(content):
                    at.setdefault(offset + position, {0}).add(byte)
            sizes.add(file.size())
            if choices.random() < 0.2:
                file.sync()
                sizes = {file.size()}
                at = {position: {0, byte} for position, byte in enumerate(file.read_at(0, 1000))}
        storage.crash(choices)
        left = storage.read_file("f")
        assert min(sizes) <= len(left) <= max(sizes)
        assert all(byte in at[position] | {0} for position, byte in enumerate(left) if position in at)


# Syncs that fail


@pytest.mark.parametrize(
    ("failure", "seen", "kept"),
    [
        (SyncFailure.DIRTY, b"abcdef", b"abcdef"),
        (SyncFailure.CLEAN, b"abcdef", b"abc"),
        (SyncFailure.DROPPED, b"abc\0\0\0", b"abc\0\0\0"),
    ],
)
def test_second_sync_may_succeed_without_pages_lost_by_the_first(
    failure: SyncFailure, seen: bytes, kept: bytes
) -> None:
    """A retry helps only if pages stay dirty; readers may get other data than those on the disk."""
    storage = durable(content=b"abc")
    storage.inject(DiskFault("sync", times=1, pages=failure))
    file = storage.open("f")
    file.write_at(3, b"def")
    with pytest.raises(OSError, match="injected"):
        file.sync()
    assert storage.read_file("f") == seen
    file.sync()
    storage.crash(random.Random(0), tear=False)
    assert storage.read_file("f") == kept


def test_writes_after_a_failed_sync_are_synced_by_the_next() -> None:
    storage = durable(content=b"abcd", page_bytes=4)
    storage.inject(DiskFault("sync", times=1, pages=SyncFailure.CLEAN))
    file = storage.open("f")
    file.write_at(4, b"lost")
    with pytest.raises(OSError, match="injected"):
        file.sync()
    file.write_at(8, b"good")
    file.sync()
    storage.crash(random.Random(0), tear=False)
    assert storage.read_file("f") == b"abcd" + bytes(4) + b"good"


def test_a_replaced_file_is_the_old_one_or_the_new_one() -> None:
    for seed in range(100):
        storage = durable(content=b"old")
        storage.replace_file("f", b"new")
        write(storage, "f.tmp", b"torn")
        storage.rename("f.tmp", "f")
        storage.crash(random.Random(seed), tear=False)
        assert storage.read_file("f") == b"new"


def test_the_dead_write_nothing() -> None:
    storage = durable(content=b"abc")
    file = storage.open("f")
    storage.lock(".lock")
    storage.kill()
    with pytest.raises(OSError, match="is dead"):
        file.write_at(0, b"x")
    storage.lock(".lock")
    assert storage.read_file("f") == b"abc"


def test_a_process_that_dies_loses_nothing_that_it_wrote() -> None:
    storage = MemoryStorage()
    write(storage, "f", b"abc")
    storage.kill()
    assert storage.read_file("f") == b"abc"
    storage.crash(random.Random(0), tear=False)
    assert not storage.exists("f")


def test_a_storage_that_does_not_track_cannot_crash() -> None:
    storage = MemoryStorage(crashable=False)
    write(storage, "f", b"abc")
    with pytest.raises(IllegalStateError):
        storage.crash(random.Random(0))


# Faults


def test_full_disk_accepts_writes_that_fit() -> None:
    storage = MemoryStorage(capacity=10)
    write(storage, "f", b"12345678")
    with pytest.raises(OSError, match="no space left") as caught:
        write(storage, "f", b"abcd", at=8)
    assert caught.value.errno == errno.ENOSPC
    assert storage.read_file("f") == b"12345678ab"
    write(storage, "f", b"over", at=0)  # in place it needs no room
    storage.remove("f")
    write(storage, "g", b"1234567890")
    storage.open("g").truncate(2)
    assert storage.room() == 8
    with pytest.raises(OSError, match="no space left"):
        storage.open("g").truncate(11)


def test_faults_strike_where_and_as_often_as_they_say() -> None:
    storage = durable(content=b"abc")
    storage.inject(DiskFault("write", "*.log", errno.EIO, times=1, partial=2))
    write(storage, "f", b"fine")
    with pytest.raises(OSError, match="injected"):
        write(storage, "x.log", b"1234")
    assert storage.read_file("x.log") == b"12"
    write(storage, "x.log", b"1234")
    take_back = storage.inject(DiskFault())
    with pytest.raises(OSError, match="injected"):
        storage.read_file("f")
    take_back()
    assert storage.read_file("f") == b"fine"


def test_a_fault_is_the_error_that_the_operating_system_would_raise() -> None:
    storage = durable()
    storage.inject(DiskFault("open", code=errno.EACCES))
    with pytest.raises(PermissionError, match="f"):
        storage.open("f")


def test_the_hook_sees_every_operation() -> None:
    storage = MemoryStorage()
    seen: list[tuple[str, str, int]] = []
    storage.before_operation = lambda *operation: seen.append(operation)
    storage.replace_file("d", b"xyz")
    assert seen == [
        ("open", "d.tmp", 0),
        ("truncate", "d.tmp", 0),
        ("write", "d.tmp", 3),
        ("sync", "d.tmp", 0),
        ("rename", "d.tmp", 0),
        ("sync_dir", "", 0),
    ]
