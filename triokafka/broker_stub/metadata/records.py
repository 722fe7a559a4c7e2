"""Encoding and decoding of metadata records: the version of each record, and batches of the metadata log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from triokafka.named_tuple import NamedTuple
from triokafka.protocol.message import Struct
from triokafka.protocol.stored.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_control_key,
    encode_control_key,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord, decode_record
from triokafka.records import RecordDecoder, encode_batch, iter_batches
from triokafka.structs import Buffer

# Per record type, pairs of metadata.version and record version, newest first; other types have version 0 only.
_VERSIONS: Final[dict[type[Struct], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (0, 1)),
    BrokerRegistrationChangeRecord: ((30, 3), (17, 2), (0, 1)),
    PartitionRecord: ((23, 2), (17, 1), (0, 0)),
    PartitionChangeRecord: ((23, 2), (17, 1), (0, 0)),
}
_CONTROL_VERSION: Final = 0


class LogBatch(NamedTuple):
    """One decoded batch of the metadata log: records, or the ``kraft.version`` of a control batch.

    ``timestamp_ms`` is that of its last change; ``ends_snapshot`` marks the last batch of a snapshot.
    """

    base_offset: int
    last_offset: int
    epoch: int
    records: Sequence[MetadataRecord]
    kraft_version: int | None = None
    timestamp_ms: int = -1
    ends_snapshot: bool = False


def version_of(record: Struct, metadata_version: int) -> int:
    """Return the version of a record at a level of ``metadata.version``."""
    for level, version in _VERSIONS.get(type(record), ()):
        if metadata_version >= level:
            return version
    return 0


def encode_records(
    records: Sequence[Struct], *, base_offset: int, epoch: int, timestamp_ms: int, metadata_version: int
) -> bytes:
    """Encode one batch of metadata records, which is in the log completely or not at all."""
    values = []
    for record in records:
        if not isinstance(record, MetadataRecord):
            raise TypeError(f"{type(record).__name__} is not a metadata record")
        values.append(record.encode_record(version_of(record, metadata_version)))
    return encode_batch(
        [(timestamp_ms, None, value, ()) for value in values], base_offset=base_offset, leader_epoch=epoch
    )


def encode_snapshot_footer(*, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """Encode the control batch that completes a snapshot."""
    controls = [(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord().encode(_CONTROL_VERSION))]
    return _control_batch(controls, base_offset=base_offset, epoch=epoch, timestamp_ms=timestamp_ms)


def _control_batch(
    controls: Sequence[tuple[ControlRecordType, bytes]], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    return encode_batch(
        [(timestamp_ms, encode_control_key(kind), value, ()) for kind, value in controls],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def decode_batches(data: Buffer) -> Iterator[LogBatch]:
    """Decode the batches in a part of the metadata log; an incomplete one at the end is ignored.

    Raises:
        CorruptRecordError, ProtocolError: the bytes are not metadata batches.
        UnsupportedVersionError: a record has an unknown type or version.
    """
    view = memoryview(data)
    for info in iter_batches(view, check_crc=True):
        found = RecordDecoder(
            view[info.position : info.position + info.size], from_offset=info.base_offset, include_control=True
        ).take()
        kraft_version: int | None = None
        timestamp_ms, ends_snapshot = info.max_timestamp, False
        records: list[MetadataRecord] = []
        if info.is_control:
            for control in found:
                if control.key is None or control.value is None:
                    continue
                match decode_control_key(control.key):
                    case ControlRecordType.KRAFT_VERSION:
                        kraft_version = KRaftVersionRecord.decode(control.value, _CONTROL_VERSION).kraft_version
                    case ControlRecordType.SNAPSHOT_HEADER:
                        header = SnapshotHeaderRecord.decode(control.value, _CONTROL_VERSION)
                        timestamp_ms = header.last_contained_log_timestamp
                    case ControlRecordType.SNAPSHOT_FOOTER:
                        ends_snapshot = True
        else:
            records = [decode_record(record.value) for record in found if record.value is not None]
        yield LogBatch(
            info.base_offset,
            info.last_offset,
            info.partition_leader_epoch,
            records,
            kraft_version,
            timestamp_ms,
            ends_snapshot,
        )
