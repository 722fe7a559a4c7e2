"""The effects of the state machine of the quorum: requests to send, responses to give, events to report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from triokafka.broker_stub.raft.election_state import ElectionState
from triokafka.broker_stub.raft.raft_listener import RaftListener
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.message import Request
from triokafka.structs import Node

R = TypeVar("R")
Event: TypeAlias = Callable[[RaftListener], None]


class Send(NamedTuple):
    """A request to a peer; its result goes to `RaftCore.receive` or `RaftCore.request_failed` with ``request_id``."""

    node: Node
    request: Request[Any]
    request_id: int


class PendingResponse(Generic[R]):
    """The response to a request that a peer has sent; it may come later."""

    __slots__ = ("_waiter", "result")

    def __init__(self, result: R | None = None) -> None:
        self.result = result
        self._waiter: Callable[[R], None] | None = None

    def notify(self, waiter: Callable[[R], None]) -> None:
        """Call ``waiter`` with the result once it may be sent."""
        self._waiter = waiter

    def release(self) -> None:
        """Give the result to the waiter: everything that it promises is durable."""
        if self._waiter is not None and self.result is not None:
            self._waiter(self.result)


class Output(NamedTuple):
    """Effects in the order of their kinds: events first, then replies, then sends."""

    events: list[Event]
    replies: list[PendingResponse[Any]]
    sends: list[Send]


class RaftEffects:
    """Collects effects, and holds them back while the election state that they rest on is not durable."""

    def __init__(self, stored: ElectionState | None) -> None:
        self._stored = stored
        self._wanted = stored
        self._output = Output([], [], [])

    @property
    def unsaved(self) -> ElectionState | None:
        """The election state to store before any further effect; None when it is stored."""
        return None if self._wanted == self._stored else self._wanted

    def save(self, state: ElectionState) -> None:
        """Demand that ``state`` becomes durable."""
        self._wanted = state

    def saved(self, state: ElectionState) -> None:
        """Record that ``state`` is durable."""
        self._stored = state

    def forget_messages(self) -> None:
        """Drop the requests and responses that wait for the state."""
        self._output = Output(self._output.events, [], [])

    def event(self, event: Event) -> None:
        """Report an event to the listener."""
        self._output.events.append(event)

    def answer(self, reply: PendingResponse[R], result: R) -> None:
        """Give the result of a request; does nothing if it already has one."""
        if reply.result is None:
            reply.result = result
            self._output.replies.append(reply)

    def send(self, send: Send) -> None:
        """Send a request."""
        self._output.sends.append(send)

    def take(self) -> Output:
        """Return the collected effects and forget them; none while there is unsaved state."""
        if self.unsaved is not None:
            return Output([], [], [])
        output, self._output = self._output, Output([], [], [])
        return output
