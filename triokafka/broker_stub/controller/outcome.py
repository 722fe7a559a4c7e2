"""What an operation of the controller yields: records to write, and the answer once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from triokafka.errors import BrokerResponseError, UnknownError
from triokafka.protocol.message import Struct

R = TypeVar("R")

MAX_RECORDS_PER_OPERATION: Final = 10_000
"""Records that one request may cause; a larger one is refused (Kafka's limit)."""


Charge = Callable[[int], None]
"""Told how many partitions are about to be created or deleted; raises what it objects (KIP-599)."""


def free_of_charge(partitions: int) -> None:
    """Nobody counts."""


class Outcome(NamedTuple, Generic[R]):
    """``records`` become state when they are committed, all or none; ``response`` may go out only after that."""

    records: Sequence[Struct]
    response: R


class ItemError(NamedTuple):
    """The error of one item of a request: its code (0: none) and words for a person (None: none)."""

    code: int = 0
    message: str | None = None

    @classmethod
    def of(cls, error: Exception) -> ItemError:
        """The code and words for an exception; one that is not of the protocol is an unknown server error."""
        if isinstance(error, BrokerResponseError):
            return cls(error.code, str(error) or type(error).__doc__)
        return cls(UnknownError.code, f"{type(error).__name__}: {error}")

    def __bool__(self) -> bool:
        return self.code != 0


NO_ERROR: Final = ItemError()
