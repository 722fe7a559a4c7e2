"""Opening a log after a crash, and after damage to its files."""

from __future__ import annotations

import random

import pytest

from tests.unit.broker_stub.log.builders import (
    DIRECTORY,
    NOW,
    append,
    batch,
    config,
    fill,
    from_producer,
    offsets,
    open_log,
)
from tests.unit.records.test_legacy import message, wrapper
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import KafkaStorageError
from triokafka.records import encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage

COUNT = 80  # records: four segments


def path(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def stored(count: int = COUNT) -> tuple[MemoryStorage, list[int]]:
    """A log of ``count`` records, closed, and the bases of its segments."""
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, count)
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    return storage, bases


def damage(storage: MemoryStorage, file_path: str, position: int, content: bytes) -> None:
    file = storage.open(file_path)
    file.write_at(position, content)
    file.close()


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_the_log_ends_at_the_first_bad_batch(policy: str) -> None:
    """Whatever follows, in this segment and in later ones, is gone."""
    storage, bases = stored()
    size = storage.open(path(bases[1], ".log")).size()
    damage(storage, path(bases[1], ".log"), size // 2, b"\xff\xff")
    log = open_log(storage, config(cleanup_policy=(policy,)))
    assert bases[1] < log.log_end_offset < bases[2]
    assert offsets(log) == list(range(log.log_end_offset))
    assert log.recovered_bytes > 0
    assert not storage.exists(path(bases[2], ".log"))


def test_below_the_recovery_point_nothing_is_read() -> None:
    storage, bases = stored()
    damage(storage, path(0, ".log"), 70, b"\xff\xff")
    log = open_log(storage, recovery_point=bases[1])
    assert log.log_end_offset == COUNT


def test_a_tail_of_zeros_is_cut() -> None:
    """A preallocated or half-written file ends with zeros."""
    storage, bases = stored()
    file = storage.open(path(bases[-1], ".log"))
    size = file.size()
    file.truncate(size + 4096)
    log = open_log(storage)
    assert log.log_end_offset == COUNT
    assert log.active_segment.size == size
    assert append(log, batch(b"next")).first_offset == COUNT
    assert offsets(log) == list(range(COUNT + 1))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [None, b"\xff" * 24, b"\0" * 24, b"\0\0\0"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_or_damaged_index_is_rebuilt(suffix: str, content: bytes | None, clean: bool) -> None:
    storage, bases = stored()
    for base in bases:
        storage.remove(path(base, suffix))
        if content is not None:
            storage.open(path(base, suffix), create=True).write_at(0, content)
    log = open_log(storage, clean=clean)
    assert offsets(log) == list(range(COUNT))
    assert [log.offset_for_timestamp(NOW + i * 1000) for i in range(COUNT)] == [
        (i, NOW + i * 1000, 0) for i in range(COUNT)
    ]


def test_an_index_of_another_log_is_rebuilt() -> None:
    """Plausible in itself, but it does not point to the starts of batches."""
    storage, bases = stored()
    content = storage.read_file(path(bases[-2], ".index"))
    for base in bases:
        storage.open(path(base, ".index")).truncate(0)
        damage(storage, path(base, ".index"), 0, content[:4] + b"\0\0\0\x07")
    log = open_log(storage, clean=True)
    assert log.log_end_offset == COUNT


def test_an_index_without_its_log_is_removed() -> None:
    storage, _ = stored()
    storage.open(path(7, ".index"), create=True).write_at(0, b"12345678")
    open_log(storage)
    assert not storage.exists(path(7, ".index"))


@pytest.mark.parametrize("suffix", [".log.deleted", ".index.deleted", ".log.cleaned", ".index.swap", ".snapshot.tmp"])
def test_leftovers_are_removed(suffix: str) -> None:
    storage, _ = stored()
    storage.open(path(0, suffix), create=True).write_at(0, b"leftover")
    assert offsets(open_log(storage)) == list(range(COUNT))
    assert not storage.exists(path(0, suffix))


def test_a_swap_that_had_begun_is_finished() -> None:
    """The compacted segment takes the place of those that it was made of."""
    storage, bases = stored()
    compacted = bytearray()
    for offset in (2, bases[2] - 1):
        compacted += encode_batch([(NOW, b"k", b"kept", ())], base_offset=offset)
    storage.open(path(0, ".log.swap"), create=True).write_at(0, compacted)
    storage.rename(path(bases[1], ".log"), path(bases[1], ".log.deleted"))
    log = open_log(storage, config(cleanup_policy=("compact",)))
    assert offsets(log) == [2, bases[2] - 1, *range(bases[2], COUNT)]
    assert [segment.base_offset for segment in log.segments] == [0, *bases[2:]]


def test_a_segment_that_was_lost_in_the_middle_ends_the_log() -> None:
    """Without compaction offsets have no gaps: what follows is no continuation any more."""
    storage, bases = stored()
    storage.remove(path(bases[1], ".log"))
    log = open_log(storage)
    assert offsets(log) == list(range(bases[1]))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("more", [1, 60])
def test_the_empty_file_of_a_failed_roll_hides_nothing(clean: bool, more: int) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    fill(log, 5)
    log.flush()
    storage.inject(DiskFault("truncate", f"*{5:020d}.log", times=1))
    with pytest.raises(KafkaStorageError):
        log.roll(now_ms=NOW)
    assert storage.exists(path(5, ".log"))
    fill(log, more)
    if clean:
        log.close()
    storage.kill()
    log = open_log(storage, clean=clean, recovery_point=5)
    assert offsets(log) == list(range(5 + more))
    assert offsets(log, 5 + more - 1) == [5 + more - 1]
    assert not storage.exists(path(5, ".log"))


@pytest.mark.parametrize("clean", [True, False])
def test_segments_of_the_old_formats_are_served(clean: bool) -> None:
    """Formats v0 and v1, compressed or not, before records of today."""
    storage = MemoryStorage()
    storage.make_dirs(DIRECTORY)
    inner = b"".join(message(n, None, b"%d" % n, timestamp=NOW + 10 + n) for n in range(5))
    old = [
        message(0, b"k", b"v0", magic=0),
        message(1, b"k", b"v1", timestamp=NOW),
        wrapper(6, inner, timestamp=NOW + 14),
        *(message(n, b"k", bytes(50), timestamp=NOW + n) for n in range(7, 30)),
    ]
    storage.open(path(0, ".log"), create=True).write_at(0, b"".join(old))
    log = open_log(storage, clean=clean)
    assert log.log_end_offset == 30
    append(log, batch(b"new", timestamp=NOW + 50))
    assert offsets(log) == list(range(31))
    assert log.offset_for_timestamp(NOW + 12) == (4, NOW + 12, -1)
    assert log.offset_of_max_timestamp(30) == (29, NOW + 29, -1)
    assert len(log.segments[0].indexes.offsets.entries()) > 5
    log.truncate_to(4, now_ms=NOW)  # in the middle of a compressed batch
    assert offsets(log) == [0, 1]


def once_compacted(*, left: int) -> tuple[MemoryStorage, list[int]]:
    """A log of a topic that was compacted once, and is not any more: all but a record of its second segment is gone."""
    storage, bases = stored()
    for suffix in (".index", ".timeindex"):
        storage.remove(path(bases[1], suffix))
    rest = encode_batch([(NOW, b"k", b"kept", ())], base_offset=bases[1] + left)
    file = storage.open(path(bases[1], ".log"))
    file.truncate(0)
    file.write_at(0, rest)
    file.close()
    return storage, bases


@pytest.mark.parametrize("damaged", ["epochs", "tail"])
def test_below_the_recovery_point_a_gap_ends_no_log(damaged: str) -> None:
    """Everything below the recovery point was on the disk."""
    storage, bases = once_compacted(left=0)
    if damaged == "epochs":  # all batches are read, to know their epochs again
        storage.open(f"{DIRECTORY}/leader-epoch-checkpoint").truncate(0)
    else:
        damage(storage, path(bases[-1], ".log"), storage.open(path(bases[-1], ".log")).size(), b"\0" * 30)
    log = open_log(storage, recovery_point=COUNT, clean=damaged == "tail")
    assert offsets(log) == [*range(bases[1]), bases[1], *range(bases[2], COUNT)]


def test_gaps_that_compaction_has_left_are_known_by_what_comes_before() -> None:
    """Also without a checkpoint: an earlier gap shows that the log was compacted, so the later one is no loss."""
    storage, bases = once_compacted(left=1)
    log = open_log(storage)
    assert offsets(log) == [*range(bases[1]), bases[1] + 1, *range(bases[2], COUNT)]


def test_damage_in_the_middle_of_a_log_that_was_closed_takes_nothing_behind_it() -> None:
    """Its end is damaged, so the log is checked; records that were on the disk before are not read for that."""
    storage, bases = stored()
    damage(storage, path(bases[1], ".log"), 70, b"\xff\xff")
    damage(storage, path(bases[-1], ".log"), storage.open(path(bases[-1], ".log")).size(), b"\0" * 30)
    assert open_log(storage, recovery_point=COUNT, clean=True).log_end_offset == COUNT


@pytest.mark.parametrize("left", [5, 40])
def test_reading_continues_behind_a_segment_whose_end_is_cut(left: int) -> None:
    """Also from the remembered place of a reader."""
    storage, bases = stored()
    log = open_log(storage, clean=True, recovery_point=COUNT)
    last = [batch.position for batch in log.segments[0].file.headers()][-1]
    storage.open(path(0, ".log")).truncate(last + left)
    log = open_log(storage, clean=True, recovery_point=COUNT)
    log.read(bases[1] - 2, 1)
    records = log.read(bases[1] - 1, 1_000).records
    assert next(iter_batches(records)).base_offset == bases[1]


def test_damage_at_the_end_of_an_old_segment_does_not_keep_it_from_getting_too_old() -> None:
    """This includes the records after it. Otherwise the disk would fill up."""
    storage, bases = stored()
    file = storage.open(path(0, ".log"))
    log = open_log(storage, clean=True, recovery_point=COUNT)
    last = [batch.position for batch in log.segments[0].file.headers()][-1]
    file.write_at(last + 8, b"\0\0\0\1")
    file.close()
    log = open_log(storage, config(retention_ms=1000), clean=True, recovery_point=COUNT)
    log.apply_retention(NOW + bases[2] * 1000 + 500)
    assert log.log_start_offset == bases[2]


@pytest.mark.parametrize("clean", [True, False])
def test_batches_beyond_the_offset_index_are_found(monkeypatch: pytest.MonkeyPatch, clean: bool) -> None:
    """Compaction may make a segment longer if the topic has another codec than its batches."""
    monkeypatch.setattr("triokafka.broker_stub.log.index._MAX_POSITION", 700)
    storage, _ = stored()
    for suffix in (".index", ".timeindex"):
        storage.remove(path(0, suffix))
    log = open_log(storage, clean=clean, recovery_point=COUNT if clean else 0)
    assert offsets(log) == list(range(COUNT))
    assert 0 < log.segments[0].indexes.offsets.last[1] <= 700
    assert [log.offset_for_timestamp(NOW + i * 1000) for i in range(COUNT)] == [
        (i, NOW + i * 1000, 0) for i in range(COUNT)
    ]


def test_offsets_that_go_back_end_the_log() -> None:
    """Good batches behind the end, of an earlier life of the file."""
    storage, bases = stored()
    file = storage.open(path(bases[-1], ".log"))
    file.write_at(file.size(), storage.read_file(path(bases[-1], ".log")))
    assert offsets(open_log(storage)) == list(range(COUNT))


def test_producer_snapshot_beyond_the_log_end_is_ignored() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, from_producer(b"a", sequence=0))
    position = log.size
    append(log, from_producer(b"b", sequence=1))
    log.roll(now_ms=NOW)
    storage.kill()
    storage.open(path(0, ".log")).truncate(position)
    log = open_log(storage)
    assert log.log_end_offset == 1
    assert not append(log, from_producer(b"b", sequence=1)).duplicate


def test_a_snapshot_of_lost_records_is_removed_before_the_log_reaches_its_offset_again() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, from_producer(b"a", sequence=0))
    position = log.size
    append(log, from_producer(b"b", sequence=1))
    log.roll(now_ms=NOW)
    storage.kill()
    storage.open(path(0, ".log")).truncate(position)
    log = open_log(storage)
    assert not storage.exists(path(2, ".snapshot"))
    append(log, batch(b"another producer's"))
    log.close()
    known = open_log(storage, clean=True).producers.get(9)
    assert known is not None and known.last_sequence == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_after_retention_of_all_segments_leaves_the_end_of_the_log(seed: int) -> None:
    """The new, empty segment is durable before the last old one goes."""
    storage = MemoryStorage()
    storage.make_dirs("data")
    storage.sync_dir("")
    log = open_log(storage, config(retention_ms=1, segment_bytes=10**6))
    fill(log, COUNT)
    log.flush()
    operations: list[tuple[str, str]] = []
    storage.before_operation = lambda operation, path, size: operations.append((operation, path))
    assert log.apply_retention(NOW + 10**9) == 1
    storage.before_operation = None
    dropped = next(i for i, (operation, name) in enumerate(operations) if operation == "rename" and ".log" in name)
    assert ("sync_dir", DIRECTORY) in operations[:dropped]
    storage.crash(random.Random(seed))
    assert open_log(storage).log_end_offset == COUNT


def test_a_torn_snapshot_of_producers_is_replaced_by_an_older_one_and_the_log() -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, from_producer(b"a", sequence=0))
    log.roll(now_ms=NOW)
    append(log, from_producer(b"b", sequence=1))
    log.roll(now_ms=NOW)
    append(log, batch(b"c"))
    log.leader_epochs.write()  # as the flush did that moved the recovery point
    storage.kill()
    damage(storage, path(2, ".snapshot"), 10, b"\xff")
    log = open_log(storage, recovery_point=2)
    assert append(log, from_producer(b"b", sequence=1)).duplicate
    assert not storage.exists(path(2, ".snapshot"))


def test_leader_epochs_that_were_not_written_are_found_in_the_batches(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, batch(b"a"), epoch=1)
    append(log, batch(b"b"), epoch=4)
    storage.kill()
    assert open_log(storage).leader_epochs.entries() == [(1, 0), (4, 1)]
    assert not caplog.text, "before the first flush, a log has no file with its epochs"


def test_an_epoch_whose_records_were_compacted_away_is_no_epoch_of_other_records() -> None:
    """Where all batches are read, those that are there count, not the file. What it said of offsets where nothing is
    any more is forgotten, also at the log's start; the end offset of the epoch is unchanged."""
    storage = MemoryStorage()
    compacted = config(cleanup_policy=("compact",))
    log = open_log(storage, compacted)
    append(log, batch(b"a", b"b"), epoch=1)
    append(log, batch(b"c"), epoch=4)
    log.roll(now_ms=NOW)
    log.advance_log_start_offset(1)
    log.flush()
    assert log.leader_epochs.entries() == [(1, 0), (4, 2)], "the log may begin at 0 again after a crash"
    cleaned = log.new_cleaned_segment(0, OpenFiles(storage), now_ms=NOW)
    kept = batch(b"c", base_offset=2, leader_epoch=4)
    cleaned.append(list(iter_batches(kept)), kept)
    log.replace_segments(log.segments[:1], [cleaned], now_ms=NOW)
    storage.kill()
    log = open_log(storage, compacted, recovery_point=3, log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (1, 3, [2])
    assert log.leader_epochs.entries() == [(4, 2)]
    assert [log.leader_epochs.epoch_for_offset(offset) for offset in (1, 2)] == [-1, 4]
    assert [log.leader_epochs.end_offset_for(epoch, 3) for epoch in (1, 4)] == [(1, 2), (4, 3)]


def test_a_directory_without_segments_is_an_empty_log() -> None:
    storage = MemoryStorage()
    storage.make_dirs(DIRECTORY)
    storage.open(path(9, ".log.deleted"), create=True).write_at(0, b"leftover")
    log = open_log(storage)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (0, 0, 0)
    assert append(log, batch(b"a")).first_offset == 0


def test_a_start_offset_beyond_the_end_starts_the_log_there() -> None:
    """Deleted records do not come back because a crash took their successors."""
    storage, _ = stored(5)
    log = open_log(storage, log_start_offset=9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert append(log, batch(b"a")).first_offset == 9


def test_flushed_records_survive_a_power_cut() -> None:
    for seed in range(30):
        storage = MemoryStorage()
        storage.make_dirs("data")
        storage.sync_dir("")
        log = open_log(storage)
        fill(log, 30)
        log.flush()
        fill(log, 30)
        storage.crash(random.Random(seed))
        log = open_log(storage, recovery_point=30)
        assert log.log_end_offset >= 30
        assert offsets(log) == list(range(log.log_end_offset))


def test_an_epoch_file_that_a_power_cut_has_emptied_is_rebuilt() -> None:
    """This includes the part below the recovery point."""
    storage, _ = stored()
    file = storage.open(f"{DIRECTORY}/leader-epoch-checkpoint")
    file.truncate(0)
    file.close()
    assert open_log(storage, recovery_point=COUNT).leader_epochs.entries() == [(0, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_missing_epoch_file_is_reported_and_rebuilt(caplog: pytest.LogCaptureFixture, clean: bool) -> None:
    storage, _ = stored()
    storage.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    log = open_log(storage, recovery_point=COUNT, clean=clean)
    assert log.leader_epochs.entries() == [(0, 0)]
    assert "leader-epoch-checkpoint is missing. The leader epochs are read from all batches" in caplog.text


def test_damaged_epoch_file_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    storage, _ = stored()
    damage(storage, f"{DIRECTORY}/leader-epoch-checkpoint", 0, b"x")
    assert open_log(storage, recovery_point=COUNT).leader_epochs.entries() == [(0, 0)]
    assert "leader-epoch-checkpoint has unknown version" in caplog.text and "read from all batches" in caplog.text


def test_log_without_leader_epochs_is_not_read_for_its_missing_epoch_file(caplog: pytest.LogCaptureFixture) -> None:
    """As a log of version 0 or 1: it would be read at every start."""
    storage = MemoryStorage()
    storage.make_dirs(DIRECTORY)
    data = b"".join(bytes(batch(b"a", base_offset=offset, leader_epoch=-1)) for offset in range(3))
    storage.open(path(0, ".log"), create=True).write_at(0, data)
    damage(storage, path(0, ".log"), 70, b"\xff")
    assert open_log(storage, recovery_point=3).log_end_offset == 3
    assert "epoch" not in caplog.text


def test_segments_before_the_start_are_not_missed() -> None:
    """Retention was dropping the first two when the power failed, and the first was kept."""
    storage, bases = stored()
    storage.remove(path(bases[1], ".log"))
    log = open_log(storage, log_start_offset=bases[2])
    assert (log.log_start_offset, log.log_end_offset) == (bases[2], COUNT)
    assert offsets(log) == list(range(bases[2], COUNT))
    assert not storage.exists(path(0, ".log"))


def test_several_segments_are_dropped_once_the_new_start_is_known() -> None:
    """A power cut in between must not end the log at the remaining files."""
    storage = MemoryStorage()
    seen: list[tuple[int, list[int]]] = []

    def note_start() -> None:
        seen.append((log.log_start_offset, [segment.base_offset for segment in log.segments]))

    log = open_log(storage, config(retention_ms=0), checkpoint_start=note_start)
    fill(log, COUNT)
    bases = [segment.base_offset for segment in log.segments]
    log.apply_retention(NOW + 10**7, up_to_offset=bases[2])
    assert seen == [(bases[2], bases)]
    assert log.log_start_offset == log.segments[0].base_offset == bases[2]


def test_a_snapshot_from_before_the_first_segment_counts_for_nothing() -> None:
    """It does not know the batches that retention has deleted."""
    storage = MemoryStorage()
    log = open_log(storage)
    append(log, from_producer(b"a", sequence=0))
    log.roll(now_ms=NOW)
    stale = storage.read_file(path(1, ".snapshot"))
    append(log, from_producer(b"b", sequence=1))
    log.advance_log_start_offset(2)
    log.roll(now_ms=NOW)
    log.apply_retention(NOW)
    storage.remove(path(2, ".snapshot"))
    file = storage.open(path(1, ".snapshot"), create=True)
    file.write_at(0, stale)
    file.close()
    assert open_log(storage).producers.get(9) is None


def test_a_replica_with_a_lost_end_ends_where_its_records_end() -> None:
    """Its leader has the rest. Records that only this broker had are lost, and the offsets that readers saw stay."""
    for replicated, end in ((True, 0), (False, 3)):
        log = PartitionLog.open(
            MemoryStorage(crashable=False),
            "/data/t-0",
            TopicPartition("t", 0),
            LogConfig(),
            now_ms=1,
            high_watermark=3,
            replicated=replicated,
        )
        assert log.log_end_offset == end
