"""The voters and ``kraft.version`` of a log by offset: the control records of KIP-853."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from triokafka.broker_stub.raft.raft_log_interface import RaftLog, SnapshotId
from triokafka.broker_stub.raft.voter_set import VoterSet
from triokafka.errors import KafkaStorageError
from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    KRaftVersionRecord,
    VotersRecord,
    decode_control_key,
)
from triokafka.records import RecordDecoder, iter_batches
from triokafka.structs import Buffer

T = TypeVar("T")

_READ_BYTES: Final = 1 << 20
_VERSION: Final = 0


class _ByOffset(Generic[T]):
    """Values by the offset of the record that set them, ascending."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, T]] = []

    def add(self, offset: int, value: T) -> None:
        self.entries.append((offset, value))

    def at(self, offset: int) -> tuple[int, T] | None:
        """Return the last entry at or before ``offset``."""
        return next((entry for entry in reversed(self.entries) if entry[0] <= offset), None)

    def truncate_to(self, end_offset: int) -> None:
        self.entries = [entry for entry in self.entries if entry[0] < end_offset]

    def trim_before(self, offset: int) -> None:
        last = self.at(offset)
        self.entries = ([] if last is None else [last]) + [entry for entry in self.entries if entry[0] > offset]


class QuorumHistory:
    """The voters that the log of one node names, effective as soon as they are appended.

    ``static_voters`` apply while the log names none. Entries from a snapshot have the offset before its end: -1 for
    the snapshot 0-0, with which a directory is formatted.
    """

    def __init__(self, static_voters: VoterSet) -> None:
        self._static_voters = static_voters
        self._voters = _ByOffset[VoterSet]()
        self._kraft_versions = _ByOffset[int]()
        self._next_offset = 0

    @property
    def voters(self) -> VoterSet:
        """The newest voters."""
        return self._voters.entries[-1][1] if self._voters.entries else self._static_voters

    @property
    def previous_voters(self) -> VoterSet | None:
        """The voters before the newest change, if the log still has both."""
        return self._voters.entries[-2][1] if len(self._voters.entries) > 1 else None

    @property
    def voters_offset(self) -> int | None:
        """The offset of the newest voters record; None with static voters."""
        return self._voters.entries[-1][0] if self._voters.entries else None

    @property
    def kraft_version(self) -> int:
        """The newest ``kraft.version``."""
        return self._kraft_versions.entries[-1][1] if self._kraft_versions.entries else 0

    def voters_at(self, offset: int) -> VoterSet | None:
        """Return the voters that a record up to ``offset`` names, or None."""
        found = self._voters.at(offset)
        return None if found is None else found[1]

    def kraft_version_at(self, offset: int) -> int:
        """Return ``kraft.version`` after the record at ``offset``."""
        found = self._kraft_versions.at(offset)
        return 0 if found is None else found[1]

    def update(self, log: RaftLog) -> None:
        """Read the records that were appended since the last call; if a snapshot replaced them, the snapshot.

        Raises:
            KafkaStorageError: the log cannot be read.
            CorruptRecordError, ProtocolError: it has damaged control records.
        """
        newest = log.latest_snapshot_id()
        if newest is not None and (self._next_offset < log.start_offset or self._next_offset == 0):
            self._load(log, newest)
        self._next_offset = max(self._next_offset, log.start_offset)
        while self._next_offset < log.end_offset:
            data = log.read(self._next_offset, _READ_BYTES)
            before = self._next_offset
            for offset, kind, value in control_records(data):
                if offset >= before:
                    self._take(offset, kind, value)
            self._next_offset = max((info.last_offset + 1 for info in iter_batches(data)), default=before)
            if self._next_offset == before:
                raise KafkaStorageError(f"the metadata log cannot be read at offset {before}")

    def reload(self, log: RaftLog) -> None:
        """Read everything again, after a snapshot has replaced the log: also a log that ended at the same offset may
        have had other records. Raises as `update`.
        """
        self._next_offset = 0
        self.update(log)

    def _load(self, log: RaftLog, snapshot_id: SnapshotId) -> None:
        self._voters, self._kraft_versions = _ByOffset(), _ByOffset()
        size = log.snapshot_size(snapshot_id) or 0
        # The quorum's records are in the first batch; a snapshot that formats a directory has a few batches at most.
        data = bytes(log.read_snapshot(snapshot_id, 0, min(size, _READ_BYTES)))
        for _, kind, value in control_records(data):
            self._take(snapshot_id.end_offset - 1, kind, value)
        self._next_offset = snapshot_id.end_offset

    def _take(self, offset: int, kind: int, value: Buffer) -> None:
        if kind == ControlRecordType.KRAFT_VERSION:
            self._kraft_versions.add(offset, KRaftVersionRecord.decode(bytes(value), _VERSION).kraft_version)
        elif kind == ControlRecordType.KRAFT_VOTERS:
            self._voters.add(offset, VoterSet.of_record(VotersRecord.decode(bytes(value), _VERSION)))

    def truncate_to(self, end_offset: int) -> None:
        """Revert every change at ``end_offset`` and above."""
        self._voters.truncate_to(end_offset)
        self._kraft_versions.truncate_to(end_offset)
        self._next_offset = min(self._next_offset, end_offset)

    def trim_before(self, snapshot_end: int) -> None:
        """Drop the entries that a snapshot up to ``snapshot_end`` has replaced."""
        self._voters.trim_before(snapshot_end - 1)
        self._kraft_versions.trim_before(snapshot_end - 1)


def control_records(data: Buffer) -> Iterator[tuple[int, int, Buffer]]:
    """Yield offset, type and value of the control records in whole batches."""
    view = memoryview(data)
    for info in iter_batches(view):
        if not info.is_control:
            continue
        batch = view[info.position : info.position + info.size]
        for record in RecordDecoder(batch, from_offset=info.base_offset, include_control=True).take():
            if record.key is not None and record.value is not None:
                yield record.offset, decode_control_key(record.key), record.value
