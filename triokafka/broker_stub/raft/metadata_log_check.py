"""The check of the metadata log's files at a start, before they are opened.

Every batch is read: its checksum has to match, its offset has to continue the log, and epochs never decrease. Offset
and epoch of a batch are not part of its checksum, so one changed bit in them shows in no other way.

The log does not need the records that a snapshot contains. Damage below the newest snapshot therefore loses nothing:
the log then begins at the end of the snapshot, and the damaged file is kept beside it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Final

from triokafka.broker_stub.log.checkpoints import LEADER_EPOCH_CHECKPOINT
from triokafka.broker_stub.log.damage import find_valid_batches, keep_file, keep_tail
from triokafka.broker_stub.log.segment_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    is_segment_file,
    offset_file_name,
)
from triokafka.broker_stub.metadata.snapshots import SnapshotId
from triokafka.broker_stub.raft.quorum_state_file import QUORUM_STATE_FILE
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import HEADER_SIZE, BatchInfo, parse_batch
from triokafka.world import File, Storage

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 20
_OFFSET: Final = struct.Struct(">q")
_UNFINISHED_SUFFIX: Final = ".tail"


class Damage(NamedTuple):
    """The first bad batch of the log.

    ``offset`` is the one it should have; ``is_end``: nothing valid follows it, as after an interrupted write.
    """

    path: str
    position: int
    offset: int
    reason: str
    is_end: bool

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position}, offset {self.offset}: {self.reason}"


class MetadataLogCheck:
    """The segments of one metadata log: reading them all, and removing the damaged part of them.

    ``epochs`` are the epochs of the log with their start offsets, up to the damage. All methods raise `OSError`.
    """

    def __init__(self, storage: Storage, directory: str) -> None:
        self.epochs: list[tuple[int, int]] = []
        self._storage = storage
        self._directory = directory
        self._first_of_epoch = Damage("", 0, -1, "", is_end=False)
        self._previous = -1  # the offset of the batch before
        for name in storage.list_dir(directory):
            if name.endswith(LOG_SUFFIX + _UNFINISHED_SUFFIX):
                storage.remove(f"{directory}/{name}")

    def find(self) -> Damage | None:
        """Read the whole log; return the first damage."""
        self.epochs = []
        bases = self._bases()
        expected = bases[0] if bases else 0
        for base in bases:
            path = self._path(base)
            file = self._storage.open(path, read_only=True)
            try:
                size = file.size()
                if base != expected and size:
                    reason = f"the file begins at offset {base}, but the one before ends at offset {expected}"
                    return Damage(path, 0, expected, reason, is_end=False)
                position = 0
                try:
                    for info in _batches(file, size):
                        if (damage := self._check(path, info, expected)) is not None:
                            return damage
                        expected, position = info.next_offset, info.end
                except CorruptRecordError as error:
                    reason = str(error)
                else:
                    if position == size:
                        continue
                    reason = "the last batch is incomplete"
                is_end = base == bases[-1] and not find_valid_batches(file, position, size, expected, limit=1).batches
                return Damage(path, position, expected, reason, is_end=is_end)
            finally:
                file.close()
        return None

    def _check(self, path: str, info: BatchInfo, expected: int) -> Damage | None:
        """Return the damage if a valid batch does not continue the log."""
        epoch, epochs = info.partition_leader_epoch, self.epochs
        latest = epochs[-1][0] if epochs else 0
        if info.base_offset != expected:
            return Damage(path, info.position, expected, f"the batch has offset {info.base_offset}", is_end=False)
        if epoch < 0:
            return Damage(path, info.position, expected, f"the batch has epoch {epoch}", is_end=False)
        if epoch < latest:
            before = self._first_of_epoch
            if before.offset == self._previous and (len(epochs) < 2 or epoch >= epochs[-2][0]):
                # Its only batch is the odd one.
                return before._replace(reason=f"the batch has epoch {latest}, and the next one epoch {epoch}")
            reason = f"the batch has epoch {epoch}, and the one before epoch {latest}"
            return Damage(path, info.position, expected, reason, is_end=False)
        if not epochs or epoch > latest:
            epochs.append((epoch, expected))
            self._first_of_epoch = Damage(path, info.position, expected, "", is_end=False)
        self._previous = expected
        return None

    def lacks_segments(self, snapshot_end: int) -> bool:
        """Whether all segments of a log that was in use are missing. Only something outside this program removes them.

        The first one is on disk before the election state, and before every snapshot but that of the formatting, which
        ends at offset 0. Later a segment is removed only when its successor is on disk.

        Args:
            snapshot_end: the end offset of the newest snapshot; 0 without one.
        """
        names = self._storage.list_dir(self._directory)
        if any(is_segment_file(name.removesuffix(DELETED_SUFFIX), LOG_SUFFIX) for name in names):
            return False
        return snapshot_end > 0 or QUORUM_STATE_FILE in names

    # Repair

    def begin_at(self, snapshot_id: SnapshotId, damage: Damage) -> bool:
        """Let the log begin at the end of a snapshot, or in a whole segment shortly before, without the damaged file.

        Returns False, and changes nothing, if the records after the snapshot are not found. A crash in between leaves
        files with which the next call comes to the same end.
        """
        end = snapshot_id.end_offset
        bases = self._bases()
        damaged = next(base for base in bases if self._path(base) == damage.path)
        later = [base for base in bases if damaged < base <= end]
        if later:
            kept_from = later[-1]
        elif (place := self._place_of(damage, end)) is not None:
            self._write_tail(damage.path, place, end)
            kept_from = end
        else:
            return False
        kept = keep_file(self._storage, damage.path)
        for base in bases:
            if base < kept_from:
                self._remove(base)
        if self._storage.exists(epochs := f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"):
            self._storage.remove(epochs)  # it says that the log begins earlier
        self._storage.sync_dir(self._directory)
        logger.error(
            "%s. Nothing is lost: the snapshot %s contains all records before offset %d, and the log now begins at "
            "offset %d. The damaged file is kept as %s. Check the disk.",
            damage, snapshot_id.file_name, end, kept_from, kept,
        )  # fmt: skip
        return True

    def _place_of(self, damage: Damage, offset: int) -> int | None:
        """Return where the batch at ``offset`` begins behind the damage; the end of the file if none follows."""
        file = self._storage.open(damage.path, read_only=True)
        try:
            size, position, wanted = file.size(), damage.position, _OFFSET.pack(offset)
            while position < size:
                window = file.read_at(position, _READ_BYTES)
                at = window.find(wanted)
                while at >= 0:
                    if position + at > damage.position and _continues(file, position + at, size, offset):
                        return position + at
                    at = window.find(wanted, at + 1)
                position += max(1, len(window) - len(wanted) + 1)
            is_last = self._path(self._bases()[-1]) == damage.path
            if is_last and not find_valid_batches(file, damage.position, size, offset, limit=1).batches:
                return size
            return None
        finally:
            file.close()

    def _write_tail(self, path: str, position: int, base: int) -> None:
        """Write the bytes of a segment from ``position`` on as the segment that begins at offset ``base``."""
        target = self._path(base)
        source = self._storage.open(path, read_only=True)
        try:
            copy = self._storage.open(target + _UNFINISHED_SUFFIX, create=True)
            try:
                copy.truncate(0)
                at = 0
                while data := source.read_at(position + at, _READ_BYTES):
                    copy.write_at(at, data)
                    at += len(data)
                copy.sync()
            finally:
                copy.close()
        finally:
            source.close()
        self._storage.rename(target + _UNFINISHED_SUFFIX, target)
        self._storage.sync_dir(self._directory)

    def cut(self, damage: Damage) -> None:
        """End the log before the damage. The bytes from there on are kept in files."""
        bases = self._bases()
        damaged = next(base for base in bases if self._path(base) == damage.path)
        for base in reversed(bases):
            if base > damaged:
                keep_file(self._storage, self._path(base))
                self._remove(base)
        file = self._storage.open(damage.path)
        try:
            keep_tail(self._storage, damage.path, file, damage.position, file.size())
            file.truncate(damage.position)
            file.sync()
        finally:
            file.close()
        self._remove(damaged, only_indexes=True)
        self._storage.sync_dir(self._directory)

    def _bases(self) -> list[int]:
        names = self._storage.list_dir(self._directory)
        return sorted(int(name[:20]) for name in names if is_segment_file(name, LOG_SUFFIX))

    def _path(self, base: int) -> str:
        return f"{self._directory}/{offset_file_name(base, LOG_SUFFIX)}"

    def _remove(self, base: int, *, only_indexes: bool = False) -> None:
        for suffix in SEGMENT_SUFFIXES:
            path = f"{self._directory}/{offset_file_name(base, suffix)}"
            if not (only_indexes and suffix == LOG_SUFFIX) and self._storage.exists(path):
                self._storage.remove(path)


def _batches(file: File, size: int) -> Iterator[BatchInfo]:
    """Yield the whole batches of a file, with their positions in it. Raises `CorruptRecordError`."""
    position = 0
    while position < size:
        window = file.read_at(position, min(_READ_BYTES, size - position))
        view, at = memoryview(window), 0
        while (info := parse_batch(view, at, check_crc=True)) is not None:
            yield info._replace(position=position + at)
            at += info.size
        if not at:
            large = _batch_at(file, position, size, check=True)
            if large is None:
                return
            yield large
            at = large.size
        position += at


def _batch_at(file: File, position: int, size: int, *, check: bool = False) -> BatchInfo | None:
    """Return the valid batch at a position of a file, or None. ``check``: raise `CorruptRecordError` if it is bad."""
    header = file.read_at(position, HEADER_SIZE)
    length = 12 + int.from_bytes(header[8:12], "big", signed=True)
    if length < HEADER_SIZE or position + length > size:
        return None
    try:
        info = parse_batch(memoryview(file.read_at(position, length)), 0, check_crc=True)
    except CorruptRecordError:
        if check:
            raise
        return None
    return None if info is None else info._replace(position=position)


def _continues(file: File, position: int, size: int, offset: int) -> bool:
    """Whether the batch at a position is the one with ``offset``: valid, and followed by the right one, if any."""
    info = _batch_at(file, position, size)
    if info is None or info.base_offset != offset:
        return False
    following = _batch_at(file, info.end, size)
    return following is None or following.base_offset == info.next_offset
