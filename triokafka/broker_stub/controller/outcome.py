"""The outcome of a controller operation: records to write, and the response to send once they are committed."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, Generic, TypeVar

from triokafka.errors import PolicyViolationError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.message import Struct

R = TypeVar("R")

MAX_RECORDS_PER_OPERATION: Final = 10_000
"""The most records of one request; larger requests are rejected (Kafka's limit)."""


class Outcome(NamedTuple, Generic[R]):
    """The records of one change, committed all or none, and the response, which is sent only after that."""

    records: Sequence[Struct]
    response: R


Steps = Generator[int, None, Outcome[R]]
"""A long operation in steps: yields the amount of work of each step, so that other tasks run in between.

No other operation begins before its end, so its image stays the newest one.
"""


def check_size(records: Sequence[Struct], more: int = 0) -> None:
    """Reject an operation with too many records. Raises `PolicyViolationError`."""
    if len(records) + more > MAX_RECORDS_PER_OPERATION:
        raise PolicyViolationError(
            f"The request needs more than {MAX_RECORDS_PER_OPERATION} metadata records: split it."
        )
