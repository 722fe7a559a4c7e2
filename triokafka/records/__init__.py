"""Record batches: Kafka's format v2, and v0/v1 for reading; by record and by column.

The hot loops are in kernels that exist twice, compiled and plain (``triokafka.kernels``). The columnar part is
loaded at its first use. Nothing here does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from triokafka.records.batch import BatchInfo, iter_batches, patch_batch, set_producer_state
from triokafka.records.builder import BatchBuilder, encode_batch
from triokafka.records.compression import DEFAULT_MAX_DECOMPRESSED, compress, decompress
from triokafka.records.decoder import RecordDecoder, decode_records
from triokafka.records.kernel import ConsumerRecord

if TYPE_CHECKING:
    from triokafka.records.arrow import ARROW_COLUMNS, ArrowBuilder, arrow_schema, to_arrow

_BY_COLUMN: Final = ("ARROW_COLUMNS", "ArrowBuilder", "arrow_schema", "to_arrow")

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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _BY_COLUMN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from triokafka.records import arrow

        found = globals()[name] = getattr(arrow, name)
        return found
