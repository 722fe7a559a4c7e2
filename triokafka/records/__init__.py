"""Record batches: Kafka's format v2, and v0/v1 for reading; by record and by column.

Hot loops live in a kernel that exists twice, compiled and plain (``triokafka.kernels``). Nothing here does I/O.
"""

from __future__ import annotations

from triokafka.records.arrow import ARROW_COLUMNS, ArrowBuilder, arrow_schema, to_arrow
from triokafka.records.batch import BatchInfo, iter_batches, patch_batch, set_producer_state
from triokafka.records.builder import BatchBuilder, encode_batch
from triokafka.records.compression import DEFAULT_MAX_DECOMPRESSED, compress, decompress
from triokafka.records.decoder import RecordDecoder, decode_records
from triokafka.records.kernel import ConsumerRecord

__all__ = [
    "ARROW_COLUMNS",
    "DEFAULT_MAX_DECOMPRESSED",
    "ArrowBuilder",
    "BatchBuilder",
    "BatchInfo",
    "ConsumerRecord",
    "RecordDecoder",
    "arrow_schema",
    "compress",
    "decode_records",
    "decompress",
    "encode_batch",
    "iter_batches",
    "patch_batch",
    "set_producer_state",
    "to_arrow",
]
