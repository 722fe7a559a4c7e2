"""The errors for invalid records: ``CorruptRecordError``, with the place."""

from __future__ import annotations

from typing import Final

from triokafka.errors import CorruptRecordError

FAULTS: Final = (
    "nothing is wrong with it",
    "it ends too early",
    "its length is more than the batch holds",
    "its offset is out of order",
    "its key has a wrong length",
    "its value has a wrong length",
    "its header count is more than it holds",
    "a header has a wrong length",
    "its fields do not fill its length",
)
"""The faults that the compiled kernels find in a record, by their number in the kernels."""


def corrupt_batch(topic: str, partition: int, base_offset: int, reason: str) -> CorruptRecordError:
    """Return the error for an unreadable batch (or v0/v1 message). Without a topic it names only the offset."""
    where = f"{topic}-{partition}: " if topic else ""
    return CorruptRecordError(f"{where}batch at offset {base_offset}: {reason}")


def corrupt_record(topic: str, partition: int, base_offset: int, index: int, reason: str) -> CorruptRecordError:
    """Return the error for one record in a batch; ``index`` counts from 0."""
    return corrupt_batch(topic, partition, base_offset, f"record {index}: {reason}")
