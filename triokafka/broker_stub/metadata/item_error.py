"""The error of one item of a request."""

from __future__ import annotations

from typing import Final

from triokafka.errors import BrokerResponseError, UnknownError
from triokafka.named_tuple import NamedTuple


class ItemError(NamedTuple):
    """The error of one item of a request: its code (0: none) and message (None: none)."""

    code: int = 0
    message: str | None = None

    @classmethod
    def of(cls, error: Exception) -> ItemError:
        """Return code and message of an exception; exceptions outside of the protocol become UNKNOWN_SERVER_ERROR."""
        if isinstance(error, BrokerResponseError):
            return cls(error.code, str(error) or type(error).__doc__)
        return cls(UnknownError.code, f"{type(error).__name__}: {error}")

    def __bool__(self) -> bool:
        return self.code != 0


NO_ERROR: Final = ItemError()
