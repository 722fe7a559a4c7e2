"""Fetched data that waits for the caller: how much is decoded, and when."""

from __future__ import annotations

from typing import Any

import pytest

from triokafka.client.consumer.completed_fetch import CompletedFetch
from triokafka.records import encode_batch
from triokafka.records.arrow import ArrowBuilder
from triokafka.records.builder import Record
from triokafka.records.decompressor import Decompressor
from triokafka.structs import TopicPartition


class CountingDecompressor(Decompressor):
    """Counts the batches that are decompressed outside of the columnar kernel."""

    count = 0

    def decompress(self, *arguments: Any, **options: Any) -> Any:
        self.count += 1
        return super().decompress(*arguments, **options)


def test_a_full_builder_leaves_the_next_batch_compressed() -> None:
    """To check for more records, the builder must not decompress the next batch outside of the kernel for whole
    batches.
    """
    rows: list[Record] = [(1, b"key", bytes(97), [])] * 50
    records = b"".join(encode_batch(rows, base_offset=50 * number, compression="zstd") for number in range(3))
    decompressor = CountingDecompressor()
    data = CompletedFetch(TopicPartition("t", 0), 0, 0, records, decompressor=decompressor)
    for number in range(1, 4):
        builder = ArrowBuilder(["value"], most_bytes=1)
        assert data.take_columns(builder, 1_000) == 50
        assert decompressor.count == number
        assert data.exhausted == (number == 3)


@pytest.mark.parametrize("most_bytes", [1, 1 << 30])
def test_data_that_ends_with_skipped_batches_is_read_to_its_end(most_bytes: int) -> None:
    aborted = encode_batch([(1, b"k", b"v", [])], base_offset=1, producer_id=7, producer_epoch=0, transactional=True)
    records = encode_batch([(1, b"k", b"v", [])]) + aborted
    data = CompletedFetch(TopicPartition("t", 0), 0, 0, records, aborted=[(7, 1)])
    taken = []
    while not data.exhausted:
        taken.append(data.take_columns(ArrowBuilder(["value"], most_bytes=most_bytes), 1_000))
    assert (sum(taken), data.position, data.end) == (1, 2, 2)
