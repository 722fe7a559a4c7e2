"""One request of the transaction manager to a coordinator, and what follows from its answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from triokafka.protocol.message import Request

GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator."""


class CallOutcome(Enum):
    """The task's next step after an answer."""

    DONE = auto()
    """Go on with the next request."""
    RETRY = auto()
    """Send again after the usual back-off."""
    RETRY_SOON = auto()
    """Send again after a short back-off: the coordinator still completes the previous transaction."""
    FIND_AGAIN = auto()
    """Look the coordinator up, then send again."""


class CoordinatorCall(NamedTuple):
    """A request to the coordinator of ``key``. ``answered`` applies the response to the state machine.

    ``min_version`` and ``max_version`` bound the request's version; None is no bound.
    """

    request: Request[Any]
    answered: Callable[[Any], CallOutcome]
    key: str
    key_type: int = TRANSACTION
    min_version: int | None = None
    max_version: int | None = None

    @property
    def name(self) -> str:
        """The API's name."""
        return type(self.request).__name__.removesuffix("Request")
