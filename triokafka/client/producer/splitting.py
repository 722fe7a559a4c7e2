"""Splitting a batch that is too large for the broker into smaller ones (KIP-126)."""

from __future__ import annotations

from triokafka.client.producer.accumulator_settings import AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.record_size import record_bound
from triokafka.records import BatchBuilder, decode_records
from triokafka.records.batch import HEADER_SIZE, MAX_BATCH_SIZE


def split_records(batch: ProducerBatch, settings: AccumulatorSettings) -> tuple[list[ProducerBatch], list[int]]:
    """Return two batches with half of the batch's records each, and the index of the first record of each.

    The pieces have no memory of the pool: the batch's own size bounds theirs. Their numbers extend the batch's, so that
    they take its place in the queue.
    """
    records = decode_records(batch.build(), check_crc=False)
    middle = max(1, len(records) // 2)
    pieces: list[ProducerBatch] = []
    for position, part in enumerate((records[:middle], records[middle:])):
        size = sum(record_bound(r.key, r.value, r.headers) for r in part)
        # No limit: it would estimate the compressed size, and every record must fit.
        builder = BatchBuilder(
            MAX_BATCH_SIZE,
            compression=settings.compression_type,
            level=settings.compression_level,
            buffer=bytearray(HEADER_SIZE + size),
        )
        builder.append_records([(r.timestamp, r.key, r.value, r.headers) for r in part])
        assert builder.count == len(part), "the pieces of a batch must hold all of its records"
        builder.close()
        piece = ProducerBatch(
            batch.topic_partition,
            (*batch.number, position),
            builder,
            reserved=0,
            created_at=batch.created_at,
            new_event=batch.new_event,
            transactional=batch.transactional,
        )
        pieces.append(piece)
    return pieces, [0, middle]
