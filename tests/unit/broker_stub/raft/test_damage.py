"""One changed bit in the files of the metadata log is never silent: nothing is lost, or the node does not start."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from tests.unit.broker_stub.raft.test_metadata_log import FOLDER, append, flush, opened, snapshot
from triokafka.broker_stub.controller.metadata_log_repair import repair_metadata
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import DAMAGED_SUFFIX, DamagedLogError
from triokafka.broker_stub.log.segment_names import LOG_SUFFIX, is_segment_file
from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.broker_stub.raft.metadata_log import KEEP_ALL, MetadataLogFiles
from triokafka.broker_stub.raft.replica_key import ReplicaKey
from triokafka.broker_stub.raft.voter_set import Voter, VoterEndpoint
from triokafka.broker_stub.storage_format import write_format_snapshot
from triokafka.records import iter_batches
from triokafka.world.memory import MemoryStorage

LOG = f"{FOLDER}/{0:020d}.log"
EPOCHS = (1, 1, 2, 2, 3, 3, 4, 4)
SMALL = KEEP_ALL.with_values({"segment.bytes": 200})


def reopened(storage: MemoryStorage, *, config: LogConfig = KEEP_ALL, committed: int = 0) -> MetadataLogFiles:
    return MetadataLogFiles(storage, "/data", now_ms=0, config=config, committed=committed)


def written(*, snapshot_at: int | None = None, config: LogConfig = KEEP_ALL) -> MemoryStorage:
    storage = MemoryStorage()
    opened(storage).close()
    log = reopened(storage, config=config)
    append(log, *EPOCHS)
    flush(log)
    if snapshot_at is not None:
        snapshot(log, snapshot_at, EPOCHS[snapshot_at - 1])
    log.close()
    return storage


def flip(storage: MemoryStorage, path: str, bit: int) -> None:
    content = bytearray(storage.read_file(path))
    content[bit // 8] ^= 1 << bit % 8
    file = storage.open(path)
    file.write_at(0, bytes(content))
    file.close()


def bits(size: int, every: int) -> Iterator[int]:
    """One random bit of every ``every`` bits; the same ones for files of one size."""
    chance = random.Random(size)
    return (min(first + chance.randrange(every), 8 * size - 1) for first in range(0, 8 * size, every))


EVERY = pytest.mark.parametrize("every", [48, pytest.param(1, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])


def content(log: MetadataLogFiles) -> list[tuple[int, int, int]]:
    return [(found.base_offset, found.epoch, len(found.records)) for found in log.read_all()]


def whole(from_offset: int = 0) -> list[tuple[int, int, int]]:
    return [(offset, epoch, 1) for offset, epoch in enumerate(EPOCHS) if offset >= from_offset]


def errors(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR)


@EVERY
@pytest.mark.parametrize("snapshot_at", [None, 4, len(EPOCHS)])
@pytest.mark.parametrize("committed", [0, len(EPOCHS)])
@pytest.mark.parametrize("config", [KEEP_ALL, SMALL], ids=["one segment", "segments"])
def test_log(
    snapshot_at: int | None, committed: int, config: LogConfig, every: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = written(snapshot_at=snapshot_at, config=config)
    names = [name for name in storage.list_dir(FOLDER) if name.endswith(".log")]
    assert (len(names) > 1) == (config is SMALL)
    for name in names:
        for bit in bits(len(storage.read_file(f"{FOLDER}/{name}")), every):
            copy = written(snapshot_at=snapshot_at, config=config)
            flip(copy, f"{FOLDER}/{name}", bit)
            caplog.clear()
            try:
                log = reopened(copy, config=config, committed=committed)
            except DamagedLogError as error:
                assert f"{FOLDER}/{name}" in str(error) or "the log had" in str(error)
                continue
            found, said = content(log), errors(caplog)
            log.close()
            if said:
                assert f"{FOLDER}/{name} is damaged at byte " in said
                assert snapshot_at is not None and found == whole(log.start_offset)
                assert log.start_offset <= snapshot_at
                saved = [one for one in copy.list_dir(FOLDER) if one.endswith(DAMAGED_SUFFIX)]
                assert saved == [f"{name}{DAMAGED_SUFFIX}"]
            elif found != whole(log.start_offset):
                # Nothing can tell these two from a log that was written so: an interrupted last write, and another
                # epoch that is in order. The quorum checks the last epoch, and what was committed cannot be cut.
                if len(found) == len(EPOCHS):
                    assert [one[0] for one in found] == list(range(len(EPOCHS)))
                    epochs = [one[1] for one in found]
                    assert epochs == sorted(epochs)
                    assert sum(one != known for one, known in zip(epochs, EPOCHS, strict=True)) == 1
                else:
                    assert found == whole()[:-1] and not committed
                    assert "the last write is incomplete" in caplog.text


@EVERY
@pytest.mark.parametrize("older", [False, True])
def test_snapshot(older: bool, every: int, caplog: pytest.LogCaptureFixture) -> None:
    def made() -> MemoryStorage:
        storage = written(snapshot_at=4)
        if older:
            log = reopened(storage)
            snapshot(log, 6, EPOCHS[5])
            log.close()
        return storage

    newest = SnapshotId(6, EPOCHS[5]) if older else SnapshotId(4, EPOCHS[3])
    path = f"{FOLDER}/{newest.file_name}"
    intact = [(one.records, one.kraft_version) for one in reopened(made()).snapshots.read(newest).batches]
    for bit in bits(len(made().read_file(path)), every):
        storage = made()
        flip(storage, path, bit)
        caplog.clear()
        log = reopened(storage)
        assert content(log) == whole()
        if log.latest_snapshot_id() == newest:
            assert [(one.records, one.kraft_version) for one in log.snapshots.read(newest).batches] == intact
        else:
            assert f"{path} is damaged" in errors(caplog)
            assert log.latest_snapshot_id() == (SnapshotId(4, EPOCHS[3]) if older else None)
        log.close()


def test_snapshot_with_the_first_voters_is_needed() -> None:
    storage = MemoryStorage()
    log = opened(storage)
    snapshot(log, 0, 0)
    log.close()
    path = f"{FOLDER}/{SnapshotId(0, 0).file_name}"
    flip(storage, path, 8 * 9)  # the length
    with pytest.raises(DamagedLogError, match=path):
        reopened(storage)


def test_flipped_bit_that_gives_a_batch_the_offset_after_the_snapshot() -> None:
    storage = written(snapshot_at=4)
    flip(storage, LOG, 8 * 7 + 2)  # offset 0 becomes 4
    log = reopened(storage)
    assert (log.start_offset, content(log)) == (4, whole(4))
    log.close()


def test_negative_epoch_of_the_first_batch() -> None:
    storage = written()
    flip(storage, LOG, 8 * 12 + 7)
    with pytest.raises(DamagedLogError, match=f"{LOG} is damaged at byte 0, offset 0: the batch has epoch -2147483647"):
        reopened(storage)


class _Killed(Exception):
    """The process is killed."""


def _kill_after(calls: int, storage: MemoryStorage, patch: pytest.MonkeyPatch) -> None:
    """After ``count`` calls that change the disk or open a file, let all of them fail."""
    left = iter(range(calls))

    def counted(original: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            if next(left, None) is None:
                raise _Killed
            return original(*args, **options)

        return call

    for name in ("rename", "remove", "sync_dir", "open"):
        patch.setattr(storage, name, counted(getattr(storage, name)))


@pytest.mark.parametrize("config", [KEEP_ALL, SMALL], ids=["one segment", "segments"])
def test_crash_while_the_log_is_cut_at_a_snapshot(config: LogConfig) -> None:
    """A start that breaks off at any call of the disk is completed by the next one."""
    for calls in range(1, 100):
        storage = written(snapshot_at=5, config=config)
        flip(storage, LOG, 8 * 30)
        with pytest.MonkeyPatch.context() as patch:
            _kill_after(calls, storage, patch)
            try:
                reopened(storage, config=config).close()
            except _Killed:
                ended = False
            else:
                ended = True
        log = reopened(storage, config=config)
        assert content(log) == whole(log.start_offset) and log.start_offset <= 5
        log.close()
        if ended:
            return
    raise AssertionError("the start needs more calls")


def test_records_with_another_offset_or_epoch_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    """The disk changes them under a running node."""
    storage = written()
    log = reopened(storage)
    size = next(iter_batches(storage.read_file(LOG))).size
    flip(storage, LOG, 8 * (3 * size + 7) + 3)
    assert [info.base_offset for info in iter_batches(log.read(0, 1 << 20))] == [0, 1, 2]
    with pytest.raises(Exception, match="the batch at byte 288 has offsets 4 to 4, after 11"):
        log.read(3, 1 << 20)
    log.close()


def remove_segments(storage: MemoryStorage) -> None:
    for name in storage.list_dir(FOLDER):
        if is_segment_file(name, LOG_SUFFIX):
            storage.remove(f"{FOLDER}/{name}")


@pytest.mark.parametrize("traces", ["a snapshot", "an election state"])
def test_voter_whose_segments_were_removed_does_not_start_before_a_repair(traces: str) -> None:
    """It acknowledged records as a voter: without them it could help a node to be elected that lacks them, too."""
    start = 4 if traces == "a snapshot" else 0
    storage = written(snapshot_at=start or None)
    if not start:
        storage.replace_file(f"{FOLDER}/quorum-state", b"{}")
    remove_segments(storage)
    with pytest.raises(
        DamagedLogError, match=f"records from offset {start} on are lost.*triokafka log repair {FOLDER}"
    ):
        reopened(storage)
    assert repair_metadata(storage, FOLDER, now_ms=0).end_offset == start
    log = reopened(storage)
    log.reconcile(alone=False, now_ms=0)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (start, start, EPOCHS[3] if start else 0)
    log.close()


def test_new_folder_has_no_segments_yet() -> None:
    storage = MemoryStorage()
    storage.make_dirs("/data")
    voter = Voter(ReplicaKey(1, UUID(int=1)), (VoterEndpoint("CONTROLLER", "a", 1),), 0, 1)
    write_format_snapshot(storage, "/data", [voter], now_ms=0)
    log = reopened(storage)
    assert (log.start_offset, log.end_offset) == (0, 0)
    log.close()


@pytest.mark.parametrize("config", [KEEP_ALL, SMALL], ids=["one segment", "segments"])
@pytest.mark.parametrize("cut", ["kill", "power cut"])
def test_crash_while_a_fetched_snapshot_replaces_the_log_is_no_damage(config: LogConfig, cut: str) -> None:
    for calls in range(1, 100):
        storage = written(config=config)
        log = reopened(storage, config=config)
        snapshot(log, 20, 5)
        with pytest.MonkeyPatch.context() as patch:
            _kill_after(calls, storage, patch)
            try:
                log.truncate_to_latest_snapshot()
            except _Killed:
                ended = False
            else:
                ended = True
        if cut == "power cut":
            storage.crash(random.Random(calls))
        log = reopened(storage, config=config)
        log.reconcile(alone=False, now_ms=0)
        assert (log.start_offset, log.end_offset, log.last_epoch) == (20, 20, 5)
        log.close()
        if ended:
            return
    raise AssertionError("the replacement needs more calls")


def test_node_that_never_votes_starts_without_its_segments(caplog: pytest.LogCaptureFixture) -> None:
    storage = written(snapshot_at=4)
    remove_segments(storage)
    log = of_broker(storage, committed=len(EPOCHS))
    assert (log.start_offset, log.end_offset) == (4, 4)
    assert "the records from offset 4 on are lost" in errors(caplog)
    log.close()


def of_broker(storage: MemoryStorage, *, committed: int) -> MetadataLogFiles:
    """Open the log as a node does that never votes."""
    log = MetadataLogFiles(storage, "/data", now_ms=0, committed=committed, can_vote=False)
    log.reconcile(alone=False, now_ms=0)
    return log


def test_log_of_a_node_that_never_votes_ends_at_the_damage() -> None:
    storage = written()
    size = next(iter_batches(storage.read_file(LOG))).size
    flip(storage, LOG, 8 * (3 * size + 70))
    log = of_broker(storage, committed=len(EPOCHS))
    assert (content(log), log.last_epoch) == (whole()[:3], EPOCHS[2])
    assert [one for one in storage.list_dir(FOLDER) if one.endswith(DAMAGED_SUFFIX)]
    log.close()


@pytest.mark.parametrize("committed", [0, 10])
def test_log_of_a_node_that_never_votes_begins_at_a_fetched_snapshot(committed: int) -> None:
    """It was stopped between fetching the snapshot and emptying the log."""
    storage = written()
    log = reopened(storage)
    snapshot(log, 10, 5)
    log.close()
    log = of_broker(storage, committed=committed)
    assert (log.start_offset, log.end_offset, log.last_epoch, content(log)) == (10, 10, 5, [])
    log.close()


def test_log_of_a_node_that_never_votes_starts_over_without_its_snapshot() -> None:
    storage = written(snapshot_at=4, config=SMALL)
    log = reopened(storage, config=SMALL)
    log.delete_before_snapshot(SnapshotId(4, EPOCHS[3]))
    log.close()
    assert reopened(storage, config=SMALL).start_offset == 4
    flip(storage, f"{FOLDER}/{SnapshotId(4, EPOCHS[3]).file_name}", 8 * 80)
    log = of_broker(storage, committed=len(EPOCHS))
    assert (log.start_offset, log.end_offset, log.last_epoch) == (0, 0, 0)
    log.close()
