"""What the files of a segment are called: 20 digits of its base offset and what they hold, as in Kafka."""

from __future__ import annotations

from typing import Final

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"  # being written by compaction
SWAP_SUFFIX: Final = ".swap"  # complete, about to take the place of others
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


def offset_file_name(offset: int, suffix: str) -> str:
    """Kafka's name of a file that belongs to an offset: 20 digits and a suffix."""
    return f"{offset:020d}{suffix}"


def is_segment_file(name: str, suffix: str) -> bool:
    """Whether that is the name of one of a segment's files, the one with ``suffix``."""
    stem = name.removesuffix(suffix)
    return stem != name and len(stem) == 20 and stem.isascii() and stem.isdigit()
