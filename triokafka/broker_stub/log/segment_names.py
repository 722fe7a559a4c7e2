"""File names of segments, as in Kafka: 20 digits of the base offset and a suffix for the content."""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"  # being written by compaction
SWAP_SUFFIX: Final = ".swap"  # complete, about to replace other segments
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def offset_file_name(offset: int, suffix: str) -> str:
    """Return Kafka's file name for an offset: 20 digits and a suffix."""
    return f"{offset:020d}{suffix}"


def is_segment_file(name: str, suffix: str) -> bool:
    """Whether ``name`` is the name of a segment's file with ``suffix``."""
    stem = name.removesuffix(suffix)
    return stem != name and len(stem) == 20 and stem.isascii() and stem.isdigit()
