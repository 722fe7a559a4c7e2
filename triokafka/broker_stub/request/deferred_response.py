"""The response of a handler that has done its work and waits for a delayed operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from triokafka.protocol.message import Response
    from triokafka.protocol.templates import FilledAnswer


class DeferredResponse:
    """A response that ``finish`` makes once ``operation`` is complete; it does not wait.

    A Produce with acks=all is appended before its handler returns this. So the connection can work on the next Produce
    while the replicas copy this one.
    """

    __slots__ = ("finish", "operation")

    def __init__(self, operation: DelayedOperation, finish: Callable[[], Response | FilledAnswer | None]) -> None:
        self.operation = operation
        self.finish = finish
