"""The log under a coordinator: one internal topic's partitions on this broker, as `CoordinatorRuntime` wants to see
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from triokafka.broker_stub.coordinators.marker_batch import marker_batch
from triokafka.broker_stub.log.verification_guard import VerificationGuard
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.coordinator.runtime.coordinator_log import (
    CoordinatorRecord,
    LogRecord,
    TransactionalProducer,
    TransactionalRecords,
    TransactionEnd,
    TransactionMarker,
)
from triokafka.errors import CorruptRecordError
from triokafka.protocol.stored.control_records import ControlRecordType, decode_control_key
from triokafka.records import BatchInfo, decode_records, encode_batch, iter_batches
from triokafka.structs import Buffer, TopicPartition

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_READ_AT_MOST: Final = 1 << 18  # a millisecond or two until other tasks have their turn


class ReplicatedCoordinatorLog:
    """Appends to and reads from the partitions of ``topic``.

    Args:
        codec: the compression of appended records, by Kafka's number (``offsets.topic.compression.codec``).
        read_bytes: bytes read at once while loading (``offsets.load.buffer.size``), limited so that others do not wait.
    """

    def __init__(self, topic: str, replicas: ReplicaManager, *, codec: int = 0, read_bytes: int = 5_242_880) -> None:
        self.topic = topic
        self._replicas = replicas
        self._codec = _CODECS[codec]
        self._read_bytes = min(read_bytes, _READ_AT_MOST)

    def append(self, partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
        """Append all records as one batch and return the offset after the last one.

        Raises:
            NotLeaderForPartitionError: this broker does not lead the partition.
            BrokerResponseError: anything else; then nothing was appended.
        """
        batch = encode_batch(
            [(timestamp_ms, record.key, record.value, ()) for record in records], compression=self._codec
        )
        return self._replicas.append_internal(TopicPartition(self.topic, partition), batch)

    def append_in_transaction(
        self, partition: int, producer: TransactionalProducer, records: Sequence[CoordinatorRecord], timestamp_ms: int
    ) -> int:
        """Append all records as one batch of the producer's transaction; see `CoordinatorLog`."""
        batch = encode_batch(
            [(timestamp_ms, record.key, record.value, ()) for record in records],
            compression=self._codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional=True,
        )
        guard = producer.guard if isinstance(producer.guard, VerificationGuard) else None
        return self._replicas.append_internal(TopicPartition(self.topic, partition), batch, guard=guard)

    def append_marker(self, partition: int, marker: TransactionMarker, timestamp_ms: int) -> int:
        """Append a transaction's marker; see `CoordinatorLog`."""
        return self._replicas.append_internal(
            TopicPartition(self.topic, partition),
            marker_batch(marker, timestamp_ms),
            transaction_version=marker.version,
        )

    def read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        """Offset, key and value of all records up to the log end, in pieces, in their order.

        Raises:
            CorruptRecordError: a record is damaged. If another in-sync replica can lead, it soon does.
        """
        try:
            yield from self._read_all(partition)
        except CorruptRecordError as error:
            self._replicas.reading_failed(TopicPartition(self.topic, partition), error)
            raise

    def _read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        log = self._replicas.partition((self.topic, partition)).log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, self._read_bytes).records
            if not len(records):
                return  # nothing but compacted offsets up to the end
            batches = list(iter_batches(records))
            if not any(batch.is_transactional or batch.is_control for batch in batches):
                yield self._decoded(records, partition, offset)
            else:
                for batch in batches:
                    yield from self._piece(batch, records[batch.position : batch.end], partition, offset)
            offset = batches[-1].next_offset

    def _decoded(self, records: Buffer, partition: int, from_offset: int, *, control: bool = False) -> list[LogRecord]:
        decoded = decode_records(
            records, topic=self.topic, partition=partition, from_offset=from_offset, include_control=control
        )
        return [(record.offset, record.key, record.value) for record in decoded]

    def _piece(
        self, batch: BatchInfo, data: Buffer, partition: int, from_offset: int
    ) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        found = self._decoded(data, partition, from_offset, control=batch.is_control)
        if batch.is_control:
            for offset, key, _ in found:
                kind = decode_control_key(key or b"")
                if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                    yield TransactionEnd(batch.producer_id, offset, commits=kind == ControlRecordType.COMMIT)
        elif batch.is_transactional:
            yield TransactionalRecords(batch.producer_id, found)
        else:
            yield found

    def high_watermark(self, partition: int) -> int:
        """The offset below which everything is committed; 0 for a partition that is not here."""
        found = self._replicas.find(self.topic, partition)
        return 0 if found is None else found.high_watermark
