"""Errors of single partitions' positions, in aiokafka's form: programs read their arguments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from triokafka.errors import LogTruncationError, NoOffsetForPartitionError, OffsetOutOfRangeError
from triokafka.structs import TopicPartition

OF_A_POSITION: Final = (NoOffsetForPartitionError, OffsetOutOfRangeError)
"""Errors that a seek makes void."""


def in_aiokafkas_form(error: Exception) -> list[Exception]:
    """Return the errors that aiokafka raises in place of this one, with its text in a note.

    `OffsetOutOfRangeError` has a dictionary of partitions and offsets, `NoOffsetForPartitionError` one partition.
    """
    made: list[Exception] = []
    if isinstance(error, OffsetOutOfRangeError) and error.offsets:
        outside = OffsetOutOfRangeError({TopicPartition(*one): offset for one, offset in error.offsets.items()})
        outside.offsets = error.offsets
        made.append(outside)
    elif isinstance(error, NoOffsetForPartitionError):
        for partition in sorted(error.partitions):
            missing = NoOffsetForPartitionError(TopicPartition(*partition))
            missing.partitions = frozenset([partition])
            made.append(missing)
    for one in made:
        one.add_note(str(error))
    return made or [error]


def partitions_of(error: Exception) -> Collection[tuple[str, int]]:
    """Return the partitions that an error is about; none if it is about the whole consumer."""
    if isinstance(error, OffsetOutOfRangeError):
        return error.offsets.keys()
    if isinstance(error, NoOffsetForPartitionError):
        return error.partitions
    return error.divergent_offsets.keys() if isinstance(error, LogTruncationError) else ()


def is_about(error: Exception, partitions: Collection[TopicPartition]) -> bool:
    """Return whether a call for records of ``partitions`` (all if empty) raises the error."""
    about = partitions_of(error)
    return not partitions or not about or any(one in about for one in partitions)
