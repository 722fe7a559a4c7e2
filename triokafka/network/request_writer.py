"""Writing requests to one stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from triokafka.network.in_flight_request import InFlightRequest
from triokafka.structs import Buffer
from triokafka.world import Stream


class RequestWriter:
    """Writes each request as far as the socket accepts it immediately; `run` writes the rest.

    ``unwritten`` holds the bytes that are not written yet, each with the request that ends when they are written, if
    it expects no response. ``on_written`` is called with such a request. ``on_room`` is called after bytes were written
    or such a request ended.
    """

    __slots__ = (
        "_closed",
        "_held",
        "_held_bytes",
        "_on_room",
        "_on_written",
        "_stream",
        "_task",
        "_written",
        "bytes_sent",
        "unwritten",
    )

    def __init__(
        self, stream: Stream, *, on_written: Callable[[InFlightRequest], None], on_room: Callable[[], None]
    ) -> None:
        self.bytes_sent = 0
        self.unwritten: deque[tuple[list[Buffer], InFlightRequest | None]] = deque()
        self._stream = stream
        self._on_written = on_written
        self._on_room = on_room
        self._written: deque[InFlightRequest] = deque()
        self._held: list[Buffer] | None = None
        self._held_bytes = 0
        self._closed = False
        self._task: trio.lowlevel.Task | None = None

    def hold(self) -> None:
        """Collect the requests from now on, to write them together: `let_go` must follow before the next checkpoint.

        A request without a response is not collected.
        """
        self._held = []

    def let_go(self) -> None:
        """Write the collected requests."""
        held, self._held = self._held, None
        size, self._held_bytes = self._held_bytes, 0
        if held and not self._closed:
            self.write(held, size, None)

    def write(self, parts: list[Buffer], size: int, unanswered: InFlightRequest | None) -> None:
        """Write what the socket accepts now of ``parts``, which have ``size`` bytes.

        ``unanswered`` is the request if it expects no response.
        """
        if self._held is not None:
            if unanswered is None:
                self._held += parts
                self._held_bytes += size
                return
            self.let_go()
        if not self.unwritten:
            try:
                sent = self._stream.try_send(*parts)
            except (OSError, trio.ClosedResourceError):
                sent = 0  # the task meets the same error, and ends the connection
            self.bytes_sent += sent
            parts = _without(parts, sent) if sent != size else []
        if parts:
            self.unwritten.append((parts, unanswered))
        elif unanswered is not None:
            self._written.append(unanswered)
        else:
            return
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    def unanswered(self) -> list[InFlightRequest]:
        """The requests without a response that have not ended yet."""
        return [*self._written, *(entry for _, entry in self.unwritten if entry is not None)]

    def close(self) -> list[InFlightRequest]:
        """Stop writing. Return, and forget, the requests without a response whose bytes were all written."""
        self._closed = True
        written = list(self._written)
        self._written.clear()
        return written

    async def run(self) -> None:
        """Write until cancelled, or until the stream is closed. Raises `OSError` and `trio.ClosedResourceError`."""
        unwritten, written = self.unwritten, self._written
        while True:
            if unwritten and not written:
                parts, unanswered = unwritten[0]
                await self._stream.send(*parts)
                self.bytes_sent += sum(map(len, parts))
                if self._closed:
                    return
                unwritten.popleft()
                if unanswered is not None:
                    written.append(unanswered)
                self._on_room()
            while written:
                self._on_written(written.popleft())
                self._on_room()
            if not unwritten:
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


def _without(parts: list[Buffer], sent: int) -> list[Buffer]:
    """Return ``parts`` from byte ``sent`` on."""
    for position, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:], *parts[position + 1 :]] if sent else parts[position:]
        sent -= len(part)
    return []
