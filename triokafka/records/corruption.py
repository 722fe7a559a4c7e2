"""How this package says that bytes are not the records they claim to be: ``CorruptRecordError``, with the place."""

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
"""What the compiled kernels can find wrong with a record, by the number that they use for it."""


def corrupt_batch(topic: str, partition: int, base_offset: int, reason: str) -> CorruptRecordError:
    """The error for a batch (or a v0/v1 message) that cannot be read. Without a topic only the offset is named."""
    where = f"{topic}-{partition}: " if topic else ""
    return CorruptRecordError(f"{where}batch at offset {base_offset}: {reason}")


def corrupt_record(topic: str, partition: int, base_offset: int, index: int, reason: str) -> CorruptRecordError:
    """The error for one record inside a batch; ``index`` counts from 0."""
    return corrupt_batch(topic, partition, base_offset, f"record {index}: {reason}")
