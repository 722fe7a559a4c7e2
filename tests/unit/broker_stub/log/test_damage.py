"""Damage in the files of a log: distinguished from a torn tail, reported with numbers, and the damaged bytes saved."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
import trio.testing

from tests.unit.broker_stub.log.builders import DIRECTORY, NOW, append, batch, config, fill, offsets, open_log
from tests.unit.broker_stub.log.cleaner.logs import batches, clean, compacted_log, put
from tests.unit.broker_stub.log.test_log_manager import A0, DiskWorld, started
from tests.unit.broker_stub.log.test_partition_log import synced_storage
from tests.unit.broker_stub.log.test_recovery import damage, path, stored
from triokafka.broker_stub.log import LogManager, PartitionLog
from triokafka.broker_stub.log.damage import DAMAGED_SUFFIX, DamagedLogError, find_valid_batches
from triokafka.errors import CorruptRecordError, KafkaStorageError
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault, MemoryStorage

COUNT = 80


@pytest.fixture(autouse=True)
def _errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING):
        yield


def damaged_files(storage: MemoryStorage) -> dict[str, bytes]:
    names = [name for name in storage.list_dir(DIRECTORY) if name.endswith(DAMAGED_SUFFIX)]
    return {name: storage.read_file(f"{DIRECTORY}/{name}") for name in names}


def positions(storage: MemoryStorage, base: int) -> list[int]:
    return [info.position for info in iter_batches(storage.read_file(path(base, ".log")))]


def test_torn_tail_is_cut_and_nothing_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    storage, bases = stored()
    last = positions(storage, bases[-1])[-1]
    storage.open(path(bases[-1], ".log")).truncate(last + 40)
    log = open_log(storage)
    assert log.log_end_offset == COUNT - 1
    assert not damaged_files(storage)
    assert "the last write is incomplete: cut 40 bytes" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("at", [8, 17, 50])
def test_valid_batches_behind_a_bad_one_are_kept_aside(at: int, caplog: pytest.LogCaptureFixture) -> None:
    """The length, the checksum, and the body of a batch in the middle of the last segment."""
    storage, bases = stored()
    content = storage.read_file(path(bases[-1], ".log"))
    bad = positions(storage, bases[-1])[2]
    damage(storage, path(bases[-1], ".log"), bad + at, bytes([content[bad + at] ^ 0x10]))
    log = open_log(storage)
    assert log.log_end_offset == bases[-1] + 2
    ((name, data),) = damaged_files(storage).items()
    assert name == f"{bases[-1]:020d}.log.{bad}.damaged"
    assert len(data) == len(content) - bad
    following = COUNT - bases[-1] - 3
    assert f"damaged at byte {bad}, offset {bases[-1] + 2}; {following} valid batches" in caplog.text
    assert f"Offsets {bases[-1] + 2} to {COUNT - 1} are lost" in caplog.text
    assert log.lost_offsets == COUNT - bases[-1] - 2


def test_later_segments_are_kept_aside_with_their_bytes(caplog: pytest.LogCaptureFixture) -> None:
    storage, bases = stored()
    content = storage.read_file(path(bases[2], ".log"))
    damage(storage, path(bases[1], ".log"), 70, b"\xff\xff")
    log = open_log(storage)
    assert damaged_files(storage)[f"{bases[2]:020d}.log.damaged"] == content
    assert log.lost_offsets == COUNT - log.log_end_offset
    assert f"{bases[2]:020d}.log.damaged" in caplog.text


def test_refused_damage_changes_no_record() -> None:
    storage, bases = stored()
    damage(storage, path(bases[1], ".log"), 70, b"\xff\xff")
    before = {base: storage.read_file(path(base, ".log")) for base in bases}
    with pytest.raises(DamagedLogError, match=rf"{bases[1]:020d}\.log is damaged at byte 0, offset {bases[1]}"):
        open_log(storage, refuse_damage=True)
    assert {base: storage.read_file(path(base, ".log")) for base in bases} == before


def test_no_room_to_keep_damage_aside_takes_the_log_offline_and_cuts_nothing() -> None:
    storage, bases = stored()
    damage(storage, path(bases[-1], ".log"), 70, b"\xff\xff")
    before = storage.read_file(path(bases[-1], ".log"))
    storage.inject(DiskFault("write", "*.damaged", 28))
    with pytest.raises(KafkaStorageError):
        open_log(storage)
    assert storage.read_file(path(bases[-1], ".log")) == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", ["last segment", "last batches", "all segments"])
def test_log_that_ends_before_its_checkpoints_continues_at_the_known_end(
    clean: bool, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Consumers may have seen the offsets that are lost: other records do not get them."""
    storage, bases = stored()
    if lost == "last batches":
        storage.open(path(bases[-1], ".log")).truncate(positions(storage, bases[-1])[1])
    for base in bases if lost == "all segments" else bases[-1:]:
        if lost != "last batches":
            storage.remove(path(base, ".log"))
    log = open_log(storage, clean=clean, recovery_point=COUNT if clean else bases[1], high_watermark=COUNT)
    end = {"last segment": bases[-1], "last batches": bases[-1] + 1, "all segments": 0}[lost]
    assert f"end at offset {end}, but the log had {COUNT}" in caplog.text
    assert (log.log_end_offset, log.recovery_point, log.lost_offsets) == (COUNT, COUNT, COUNT - end)
    assert append(log, batch(b"next")).first_offset == COUNT
    assert offsets(log)[-1] == COUNT
    log.abandon()
    again = open_log(storage, recovery_point=COUNT, high_watermark=COUNT)
    assert (again.log_end_offset, again.lost_offsets) == (COUNT + 1, 0)
    assert offsets(again)[-1] == COUNT


@pytest.mark.parametrize("offset", [COUNT, COUNT + 1, COUNT + 4])
def test_truncation_in_the_middle_of_lost_offsets_goes_back_to_the_last_record(offset: int) -> None:
    """The placeholder goes as a whole, like any other batch: a follower fetches the lost records from there again."""
    storage, _ = stored()
    storage.sync_dir("")  # the data directory is older than the log
    cuts: list[int] = []
    log = open_log(storage, recovery_point=COUNT, high_watermark=COUNT + 5, before_cut=cuts.append)
    assert (log.log_end_offset, log.recovery_point, log.lost_offsets) == (COUNT + 5, COUNT + 5, 5)
    log.truncate_to(offset, now_ms=NOW)
    assert (log.log_end_offset, log.recovery_point, min(cuts)) == (COUNT, COUNT, COUNT)
    assert append(log, batch(b"again")).first_offset == COUNT
    assert offsets(log) == list(range(COUNT + 1))
    log.flush()
    log.abandon()
    storage.crash(random.Random(offset))
    again = open_log(storage, recovery_point=COUNT + 1, high_watermark=COUNT)
    assert (again.log_end_offset, again.lost_offsets) == (COUNT + 1, 0)
    assert offsets(again) == list(range(COUNT + 1))


@pytest.mark.parametrize("seed", range(10))
def test_log_that_ends_with_an_emptied_batch_has_lost_nothing(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Compaction keeps the header of a producer's last batch; a truncation may make that the end of the log."""
    storage = synced_storage()
    log = compacted_log(storage)
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=8, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), (b"b", b"2"))
    clean(log, storage)
    log.flush()
    log.truncate_to(2, now_ms=NOW)
    log.flush()
    before = [info[1:] for info in batches(log)]
    assert [(info.next_offset, info.record_count) for info in batches(log)] == [(2, 0)]
    log.abandon()
    storage.crash(random.Random(seed))
    again = open_log(storage, log.config, recovery_point=2, high_watermark=2)
    assert (again.log_end_offset, again.recovery_point, again.lost_offsets) == (2, 2, 0)
    assert [info[1:] for info in batches(again)] == before
    state = again.producers.get(8)
    assert state is not None
    assert state.last_sequence == 1
    assert not caplog.records


def test_checkpoint_that_is_out_of_reach_is_reported_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    storage, _ = stored()
    assert open_log(storage, clean=True, recovery_point=2**60).log_end_offset == COUNT
    assert "not plausible" in caplog.text


def test_segments_that_are_missing_at_the_beginning_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    storage, bases = stored()
    storage.remove(path(0, ".log"))
    log = open_log(storage, clean=True, recovery_point=COUNT)
    assert (log.log_start_offset, log.lost_offsets) == (bases[1], bases[1])
    assert f"offsets 0 to {bases[1] - 1} are lost" in caplog.text


def test_log_start_of_a_replicated_log_stays_before_missing_segments(caplog: pytest.LogCaptureFixture) -> None:
    """Followers delete their records before the leader's log start offset: the only other copies."""
    storage, bases = stored()
    storage.remove(path(0, ".log"))
    for _ in range(2):
        log = open_log(storage, clean=True, recovery_point=COUNT, replicated=True)
        assert (log.log_start_offset, log.lost_offsets) == (0, bases[1])
        assert offsets(log)[0] == bases[1]
        assert log.apply_retention(NOW) == 0
        assert log.log_start_offset == 0
        log.close()
    assert f"offsets 0 to {bases[1] - 1} are lost" in caplog.text


def test_segments_that_retention_has_removed_are_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    log = open_log(storage, config(retention_ms=1))
    fill(log, COUNT)
    log.apply_retention(NOW + 10**9, up_to_offset=log.segments[2].base_offset)
    log.close()
    assert open_log(storage, clean=True, recovery_point=COUNT).lost_offsets == 0
    assert not caplog.records


def test_records_before_a_start_offset_beyond_the_end_are_kept_aside(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged start offset must not delete the log."""
    storage, bases = stored()
    log = open_log(storage, clean=True, recovery_point=COUNT, log_start_offset=COUNT + 500)
    assert (log.log_start_offset, log.log_end_offset) == (COUNT + 500, COUNT + 500)
    assert set(damaged_files(storage)) == {f"{base:020d}.log.damaged" for base in bases}
    assert f"ends at offset {COUNT}, but its start offset is {COUNT + 500}" in caplog.text


@pytest.mark.parametrize("length", [b"\x00\x10\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01", b"\x80\x00\x00\x00"])
@pytest.mark.parametrize("position", [0, 3])
@pytest.mark.parametrize("index", [-1, 1])
def test_reader_of_a_destroyed_length_gets_an_error(length: bytes, position: int, index: int) -> None:
    """The reader gets no endless empty answers, no rest of the segment, and no records behind the damage."""
    storage, bases = stored()
    log = open_log(storage, clean=True, recovery_point=COUNT)
    bad = positions(storage, bases[index])[position]
    damage(storage, path(bases[index], ".log"), bad + 8, length)
    first = bases[index] + position
    with pytest.raises(CorruptRecordError):
        log.read(first, 300)
    try:
        assert next(iter_batches(log.read(first + 1, 300).records)).base_offset == first + 1  # the index leads past it
    except CorruptRecordError:
        pass
    if position:
        assert next(iter_batches(log.read(first - 1, 10_000).records)).base_offset == first - 1


def test_end_that_is_cut_off_under_a_running_broker_is_an_error() -> None:
    storage, bases = stored()
    log = open_log(storage, clean=True, recovery_point=COUNT)
    storage.open(path(bases[-1], ".log")).truncate(positions(storage, bases[-1])[-1] + 30)
    with pytest.raises((CorruptRecordError, KafkaStorageError)):
        log.read(COUNT - 1, 300)


def test_valid_batches_are_found_behind_anything() -> None:
    """At any distance, across windows; batches of an earlier life of the file do not count."""
    choices = random.Random(5)
    old = bytes(batch(b"old", base_offset=3))
    new = bytes(batch(b"new", b"er", base_offset=1000))
    for junk in (b"", bytes(100_000), choices.randbytes((1 << 20) - 30), choices.randbytes(2_500_000)):
        storage = MemoryStorage()
        file = storage.open("f", create=True)
        file.write_at(0, junk + old + new + junk[:500] + new[:-1])
        found = find_valid_batches(file, 0, file.size(), 900)
        assert found == (1, 2, len(new), 1002)
        assert find_valid_batches(file, 0, file.size(), 1001).batches == 0


# The broker's logs


async def _run_until_gaps_were_looked_for(logs: LogManager) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(logs.run)
        await logs.checked_for_gaps.wait()
        nursery.cancel_scope.cancel()


async def _closed(world: DiskWorld, count: int = COUNT) -> PartitionLog:
    logs = started(world)
    log = logs.create(A0)
    fill(log, count)
    logs.checkpoint_high_watermarks({A0: log.log_end_offset})
    await logs.close()
    return log


@pytest.mark.parametrize("how", ["removed", "cut", "cut within a batch"])
async def test_gap_between_segments_is_reported_after_the_start(how: str, caplog: pytest.LogCaptureFixture) -> None:
    world = DiskWorld()
    log = await _closed(world)
    segment = log.segments[1]
    file = segment.file.path(".log")
    places = [info.position for info in iter_batches(world.storage.read_file(file))]
    if how == "removed":
        world.storage.remove(file)
    else:
        world.storage.open(file).truncate(places[-2] + (30 if how == "cut within a batch" else 0))
    logs = started(world)
    await _run_until_gaps_were_looked_for(logs)
    end = log.segments[2].base_offset
    first = segment.base_offset if how == "removed" else end - 2
    assert f"a-b-0: offsets {first} to {end - 1} are missing" in caplog.text
    assert logs.all()[A0].lost_offsets == end - first


async def test_whole_log_and_one_that_was_compacted_once_have_no_gaps(caplog: pytest.LogCaptureFixture) -> None:
    world = DiskWorld()
    log = await _closed(world)
    logs = started(world)
    await _run_until_gaps_were_looked_for(logs)
    assert not caplog.records
    await logs.close()
    file = log.segments[1].file.path(".log")
    infos = list(iter_batches(world.storage.read_file(file)))
    content = world.storage.read_file(file)
    world.storage.open(file).truncate(0)
    world.storage.open(file).write_at(
        0, content[infos[2].position : infos[3].end] + content[infos[5].position : infos[5].end]
    )
    world.storage.remove(file.replace(".log", ".index"))
    await _run_until_gaps_were_looked_for(started(world))
    assert not caplog.records


async def test_active_segment_that_is_removed_takes_its_log_offline(caplog: pytest.LogCaptureFixture) -> None:
    """This happens within a checkpoint interval; the directory's other logs continue, and no offset is used twice."""
    world = DiskWorld()
    other = TopicPartition("other", 0)
    logs = started(world)
    for topic_partition in (A0, other):
        fill(logs.create(topic_partition), COUNT)
    log = logs.all()[A0]
    world.storage.remove(log.active_segment.file.path(".log"))
    logs.checkpoint_high_watermarks({A0: COUNT, other: COUNT})
    await logs.flush_sealed()
    assert (logs.get(A0), logs.get(other) is not None) == (None, True)
    assert "the segment was removed while the broker was running" in caplog.text
    with pytest.raises(KafkaStorageError, match="removed while"):
        logs.create(A0)
    await logs.close()
    assert not world.storage.exists("/data/.kafka_cleanshutdown")
    again = started(world).all()[A0]
    assert again.log_end_offset == COUNT
    assert again.lost_offsets == COUNT - log.active_segment.base_offset


async def test_active_segment_that_was_removed_is_noticed_by_a_clean_stop(caplog: pytest.LogCaptureFixture) -> None:
    world = DiskWorld()
    logs = started(world)
    log = logs.create(A0)
    fill(log, COUNT)
    logs.checkpoint_high_watermarks({A0: COUNT})
    world.storage.remove(log.active_segment.file.path(".log"))
    await logs.close()
    assert "removed while the broker was running" in caplog.text
    again = started(world).all()[A0]
    assert (again.log_end_offset, again.lost_offsets) == (COUNT, COUNT - log.active_segment.base_offset)
