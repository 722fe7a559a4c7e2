"""The answer to one request: the encoded response, and what happens to the connection afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.deferred_response import DeferredResponse
from triokafka.structs import Buffer
from triokafka.world import FileSlice


@dataclass(slots=True)
class Answer:
    """An encoded response: buffers to send (none for ``acks=0``), and the time to stop reading afterwards.

    ``delay_ms`` and ``closes`` are for injected faults: wait before sending, close the connection afterwards.
    ``done_at`` is the time at which the response was ready. Pass the object to `Dispatcher.answered` after sending.

    With ``deferred`` the response is not ready: wait for the operation, and then call `Dispatcher.complete`.
    """

    parts: Sequence[Buffer | FileSlice] = field(default_factory=list)
    throttle_ms: int = 0
    delay_ms: int = 0
    closes: bool = False
    done_at: float = 0.0
    context: RequestContext | None = None
    deferred: DeferredResponse | None = None
