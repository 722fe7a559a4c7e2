"""One connection to a broker: frames, correlation ids, pipelined requests and their timeouts.

Three tasks serve a connection: one reads, one writes the bytes that the socket did not take immediately, one watches
the clock. A request starts no task and opens no cancel scope. Responses come in the order of the requests. When the
connection ends, all requests in flight fail, the newest first, so that a caller that puts each back at the head of a
queue restores their order.

The task that watches the clock also ends a connection whose peer is dead, see `triokafka.network.dead_peer`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import trio

from triokafka import errors
from triokafka.hooks import NO_HOOKS, HookChain
from triokafka.network.dead_peer import Verdict, allowed_wait, share_of_limit
from triokafka.network.in_flight_request import (
    API_VERSIONS_KEY,
    DECODED_TIMES,
    UNSUPPORTED_VERSION,
    Completion,
    InFlightRequest,
)
from triokafka.network.large_responses import LARGE_BYTES, decode_here, decode_in_thread
from triokafka.network.liveness import Liveness
from triokafka.network.receive_pool import ReceivePool
from triokafka.network.request_slots import RequestSlots
from triokafka.network.request_timeouts import check_timeouts
from triokafka.network.request_writer import RequestWriter
from triokafka.network.response_reader import ResponseReader
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.network.tls_failures import broken_connection
from triokafka.network.traffic import NodeTraffic
from triokafka.network.versions import client_throttles
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.frames import encode_request
from triokafka.protocol.message import Request, Response
from triokafka.protocol.templates import AnswerTemplate, FilledRequest
from triokafka.structs import Buffer, Node
from triokafka.world import Stream, World

_NEVER: Final = float("inf")
_LEAST_MEMORY: Final = 8 << 20
"""Elements of a response that may be decoded, in bytes, however small the largest response is."""
_SIZE: Final = struct.Struct(">i")


def _ignore(response: object, error: Exception | None) -> None:
    """Drop the answer to a ping."""


class Connection:
    """A connected stream to the broker ``name`` (a text for messages, as in ``broker 1 at localhost:9092``).

    Times are seconds on the world's clock. A request without a response within its timeout ends the connection, since
    later responses cannot come either. ``error`` is the reason why the connection ended, and ``closed_by_peer`` whether
    the broker ended it in order. ``in_flight`` is the number of
    requests without a response. ``on_room`` is called when a request may be submitted after that was impossible.
    ``on_version_refused`` is called when the broker rejects the version of a request.

    ``silence_limit`` is how long a response may be overdue before the connection counts as dead. Without ``on_silent``
    only the request timeout counts. ``on_silent`` is called to probe the broker over a new connection; `probed` takes
    the outcome. ``on_dead`` is called, before requests fail, with the time of the last received bytes. ``patience``
    gives, for kinds of requests that were slow before, the multiple of the limit; it outlives the connection.
    ``has_others`` returns whether another broker is available.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        world: World,
        name: str,
        node: Node,
        client_id: str | None,
        pool: ReceivePool,
        request_timeout: float,
        max_idle: float,
        max_in_flight: int,
        max_response_bytes: int,
        throttled_until: float = 0.0,
        hooks: HookChain = NO_HOOKS,
        traffic: NodeTraffic | None = None,
        on_room: Callable[[], None] = lambda: None,
        on_version_refused: Callable[[], None] = lambda: None,
        silence_limit: float = _NEVER,
        on_silent: Callable[[], None] | None = None,
        on_dead: Callable[[float], None] = lambda since: None,
        patience: dict[type[Request[Any]], float] | None = None,
        has_others: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.error: Exception | None = None
        self.closed_by_peer = False
        self.in_flight = 0
        self.throttled_until = throttled_until
        self._now = world.loop_clock()
        self.last_used_at = now = self._now()
        self._stream = stream
        self._world = world
        self._node = node
        self._client_id = client_id
        self._reader = ResponseReader(
            stream, pool, name=name, max_bytes=max_response_bytes, before_waiting=self._end_of_answers
        )
        self._max_memory = max(DECODED_TIMES * max_response_bytes, _LEAST_MEMORY)
        self._request_timeout = request_timeout
        self._max_idle = max_idle
        self._max_in_flight = max_in_flight
        self._hooks = hooks or None  # checked with every request, so None if there is no listener
        self._traffic = traffic
        self._on_version_refused = on_version_refused
        self._on_silent = on_silent
        self._on_dead = on_dead
        self._has_others = has_others
        limit = silence_limit if on_silent is not None else None
        self._liveness = Liveness(limit, now, {} if patience is None else patience)
        self._next_correlation_id = 0
        self._in_flight: deque[InFlightRequest] = deque()  # those that expect a response, oldest first
        slots = self._slots = RequestSlots(
            has_room=self._has_room,
            has_ended=lambda: self.error is not None,
            muted_seconds=lambda: self.throttled_until - self._now(),
            on_room=on_room,
        )
        self.wait_for_slot, self.exclusive = slots.wait, slots.exclusive
        """See `RequestSlots`."""
        self._writer = RequestWriter(stream, on_written=self._note_written, on_room=slots.report_space)
        self._unwritten = self._writer.unwritten
        self.hold, self.let_go = self._writer.hold, self._writer.let_go
        self._afterwards: Callable[[float], None] | None = None
        self._has_answers = False
        self._is_decoding = False  # a large response, in a thread
        self._watch = trio.CancelScope()
        self._watched_until = _NEVER

    @property
    def bytes_sent(self) -> int:
        """The number of bytes sent."""
        return self._writer.bytes_sent

    @property
    def bytes_received(self) -> int:
        """The number of bytes received."""
        return self._reader.bytes_received

    # ---------------------------------------------------------------- room for one more request

    @property
    def can_send(self) -> bool:
        """Whether one more request may be submitted now, without overtaking waiting tasks.

        All earlier requests must be written: a peer that does not read gets no more requests.
        """
        return (
            self.in_flight < self._max_in_flight
            and not self._unwritten
            and self.error is None
            and not self._slots.waiters
        )

    def _has_room(self) -> bool:
        return self.in_flight < self._max_in_flight and not self._unwritten and self.error is None

    # ---------------------------------------------------------------- requests

    def submit(
        self,
        request: Request[Any] | FilledRequest,
        version: int,
        on_done: Completion,
        *,
        timeout: float | None = None,
        expect_response: bool = True,
        now: float | None = None,
        may_wait: float = 0.0,
    ) -> None:
        """Submit a request. Write as much as the socket takes now, and the rest as soon as possible.

        ``on_done`` is called once, never from within this call: with the response, or with the error when the
        connection ends first. Without ``expect_response`` it is called with None and None when the bytes are written.
        The caller observes the limit of requests in flight (`can_send`). ``now`` saves a look at the clock.
        ``may_wait`` is how many seconds the broker may delay the response, in addition to the delay that the protocol
        allows (`allowed_wait`). After an idle time a ping precedes the request.

        Raises:
            KafkaConnectionError: the connection has ended.
            UnsupportedVersionError, ProtocolError: the request cannot be encoded in this version; nothing was sent.
        """
        if self.error is not None:
            raise errors.KafkaConnectionError(f"the connection to {self.name} has ended: {self.error}") from self.error
        if now is None:
            now = self._now()
        waiting, liveness = self._in_flight, self._liveness
        if not waiting and now - liveness.heard_at > liveness.first_look:
            self._ping(_ignore, now)
        correlation_id = self._next_correlation_id
        kind: type[Request[Any]]
        answer: AnswerTemplate | None = None
        if type(request) is FilledRequest:
            template = request.template
            parts = template.frame(correlation_id, request.records)
            kind, answer = template.request_type, template.answer
        else:
            assert isinstance(request, Request)
            parts = encode_request(request, version=version, correlation_id=correlation_id, client_id=self._client_id)
            kind = type(request)
            may_wait += allowed_wait(request)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self.last_used_at = now
        due = deadline = now + (self._request_timeout if timeout is None else timeout)
        entry = InFlightRequest(kind, version, correlation_id, now, deadline, on_done, answer, may_wait)
        self.in_flight += 1
        if expect_response:
            if not waiting:
                due = min(deadline, now + liveness.first_look * share_of_limit(kind))
            waiting.append(entry)
        size = sum(map(len, parts))
        if self._traffic is not None:
            self._traffic.sent(size, now)
        if self._hooks:
            self._hooks.on_request(self._node, entry.api, version, size)
        self._writer.write(parts, size, None if expect_response else entry)
        if self._unwritten or self.in_flight >= self._max_in_flight:
            self._slots.owner_may_wait = True
        alarm = self._world.deadline(due)
        if alarm < self._watched_until:
            self._watched_until = self._watch.deadline = alarm

    def _ping(self, on_done: Completion, now: float) -> None:
        """Send an ApiVersions request, whose response no broker delays: silence after it means a dead connection."""
        liveness = self._liveness
        heard_at, liveness.heard_at = liveness.heard_at, now  # no ping ahead of the ping
        try:
            self.submit(ApiVersionsRequest(), 0, on_done, now=now)
        finally:
            liveness.heard_at = heard_at

    async def check(self) -> None:
        """Test the connection: ping the broker, unless a response came just now.

        Waits for the response; a dead connection ends within a part of ``silence_limit``.

        Raises:
            KafkaConnectionError: the connection is dead, or has ended otherwise.
        """
        if self._liveness.is_proven(self._now()):
            return
        await self.wait_for_slot()
        if self.error is None:
            waiter = ResponseWaiter()
            self._ping(waiter.done, self._now())
            await waiter.wait()
        if self.error is not None:
            raise errors.KafkaConnectionError(f"the connection to {self.name} has ended: {self.error}") from self.error

    def call_after_answers(self, callback: Callable[[float], None]) -> None:
        """Call ``callback`` with the time after all responses that arrived together, before other tasks run.

        For use within ``on_done``. A later call replaces the callback.
        """
        self._afterwards = callback

    async def call(self, request: Request[Any], version: int, *, timeout: float | None = None) -> Any:
        """Send one request and wait for its response. Cancelling leaves the connection in order."""
        await self.wait_for_slot()
        waiter = ResponseWaiter()
        self.submit(request, version, waiter.done, timeout=timeout)
        return await waiter.wait()

    # ---------------------------------------------------------------- lifetime

    async def run(self) -> None:
        """Serve the connection until it ends; then every request in flight has failed and the stream is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._watch_deadlines)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self.close(errors.KafkaConnectionError(f"the connection to {self.name} was closed by this client"))

    def close(self, error: Exception) -> None:
        """End the connection now; requests in flight fail with ``error``. A second call does nothing."""
        if self.error is not None:
            return
        self.error = error
        self._stream.close()
        written = self._writer.close()
        failed = self._unanswered()
        self.in_flight = 0
        self._in_flight.clear()
        self._unwritten.clear()
        now = self._now()
        for entry in written:  # none of them expected a response: they are done, whatever ends the connection
            entry.complete(None, None)
        for entry in reversed(failed):
            if self._hooks:
                self._hooks.on_response(self._node, entry.api, 0, now - entry.started_at, error)
            entry.complete(None, error)
        self._slots.end()

    def _unanswered(self) -> list[InFlightRequest]:
        """All requests in flight, oldest first."""
        waiting = [*self._in_flight, *self._writer.unanswered()]
        if len(waiting) > len(self._in_flight):
            waiting.sort(key=lambda entry: (entry.started_at, entry.correlation_id))
        return waiting

    async def _watch_deadlines(self) -> None:
        """End the connection when a response is overdue, or the connection was idle for too long.

        Responses do not move the alarm, so it costs nothing per request: the task checks again when the alarm goes off.
        """
        while self.error is None:
            if self._is_decoding:  # nothing is overdue that this client does not read; the end cancels the wait
                await self._watch_until(_NEVER)
                continue
            now = self._now()
            due, error = check_timeouts(self._unanswered(), self.last_used_at, self._max_idle, now, self.name)
            if error is not None:
                self.close(error)
                return
            due = min(due, self._look_for_silence(now))
            if self.error is not None:
                return
            await self._watch_until(due)

    async def _watch_until(self, due: float) -> None:
        self._watched_until = self._world.deadline(due)  # on Trio's clock, which does not jump with the world's
        self._watch = trio.CancelScope(deadline=self._watched_until)
        with self._watch:
            await trio.sleep_forever()

    # ---------------------------------------------------------------- silence

    @property
    def probe_timeout(self) -> float:
        """How many seconds a probe of this connection's broker may take."""
        return self._liveness.probe_timeout

    @property
    def _oldest(self) -> InFlightRequest | None:
        return self._in_flight[0] if self._in_flight else None

    def _look_for_silence(self, now: float) -> float:
        """Check the oldest request in flight, and return when to check again."""
        oldest = self._oldest
        if oldest is None or self._on_silent is None:
            return _NEVER
        progress = self._reader.bytes_received + self._stream.bytes_drained()
        verdict, look_at = self._liveness.look(oldest, progress, now, has_others=self._has_others())
        if verdict is Verdict.PROBE:
            self._on_silent()
        elif verdict is Verdict.CLOSE:
            silent = now - max(oldest.started_at, self._liveness.heard_at)
            self.close_as_dead(
                f"{self.name} has not answered a {oldest.request_type.__name__} for {silent:.1f} s: the broker or the"
                " connection is dead; connection closed (connections_max_silence_ms)"
            )
        return look_at

    def suspect(self, since: float) -> None:
        """Handle the death of another connection of this client, which has been silent since ``since``.

        A connection that has hardly been heard since may have died with it, see `Liveness.suspect`.
        """
        if self._is_decoding:
            return
        verdict = self._liveness.suspect(since, self._oldest, self._now())
        if verdict is Verdict.PROBE:
            self._watch.cancel()  # check again now
        elif verdict is Verdict.CLOSE:
            self.close(errors.KafkaConnectionError(f"{self.name}: silent while another connection died; closed"))

    def close_as_dead(self, why: str) -> None:
        """End the connection because overdue responses did not come."""
        if self.error is None:
            self._on_dead(self._liveness.die(self._oldest))
            self.close(errors.KafkaConnectionError(why))

    def probed(self, *, alive: bool) -> None:
        """Take the outcome of a probe: whether the broker answers over a fresh connection."""
        self._liveness.probed(self._now(), alive=alive)
        self._watch.cancel()  # check again now

    # ---------------------------------------------------------------- writing

    async def _write(self) -> None:
        try:
            await self._writer.run()
        except (OSError, trio.ClosedResourceError) as error:
            self.close(broken_connection(f"the connection to {self.name} broke while sending", error))

    def _note_written(self, entry: InFlightRequest) -> None:
        self.in_flight -= 1
        entry.complete(None, None)

    # ---------------------------------------------------------------- reading

    async def _read(self) -> None:
        try:
            try:
                await self._reader.read(self._handle, self._handle_large)
            finally:
                self._end_of_answers()
            self.closed_by_peer = self.error is None
            self.close(errors.KafkaConnectionError(f"{self.name} closed the connection"))
        except (OSError, trio.ClosedResourceError) as error:
            self.close(broken_connection(f"the connection to {self.name} broke while receiving", error))
        except (errors.ProtocolError, errors.SecurityProtocolMismatchError) as error:
            self.close(error)

    async def _handle_large(self, frame: Buffer) -> bool:
        """Handle one response as `_handle` does, but let other tasks run while it is decoded."""
        entry = self._oldest
        if len(frame) < LARGE_BYTES or entry is None or not entry.is_answered_by(frame):
            return self._handle(frame)
        response = decode_here(entry, frame, self.name, max_memory=self._max_memory)
        if response is not None:
            return self._handle(frame, response)
        self._liveness.heard_at = began = self._now()
        self._is_decoding = True
        try:
            response = await decode_in_thread(self._world, entry, frame, self.name, max_memory=self._max_memory)
        finally:
            self._is_decoding = False
            self._watch.cancel()
        for waiting in self._in_flight:  # their responses may be here already
            waiting.deadline += self._now() - began
        return self.error is None and self._handle(frame, response)

    def _handle(self, frame: Buffer, decoded: Response | None = None) -> bool:
        """Handle one response. Return False when the connection has ended."""
        waiting = self._in_flight
        if not waiting:
            raise errors.ProtocolError(f"{self.name} sent a response to no request")
        entry = waiting[0]
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        if correlation_id != entry.correlation_id:
            raise errors.ProtocolError(
                f"{self.name} answered with correlation id {correlation_id}, but {entry.correlation_id} was due"
            )
        template, liveness = entry.answer, self._liveness
        numbers = template.read(frame) if template is not None else None
        if numbers is None and decoded is None:
            decoded = entry.decode(frame, self.name, max_memory=self._max_memory)
        waiting.popleft()
        self.in_flight -= 1
        now = self.last_used_at = liveness.heard_at = self._now()
        if liveness.patience:
            liveness.note_prompt_answer(entry, now)
        if self._traffic is not None:
            self._traffic.answers.append((entry.request_type, len(frame) + 4, now - entry.started_at))
        if self._hooks:
            self._hooks.on_response(self._node, entry.api, len(frame) + 4, now - entry.started_at, None)
        if numbers is not None:
            entry.complete((*numbers, now), None)  # the template read the whole response
        else:
            self._note_answer(entry, decoded, now)
            entry.complete(decoded, None)
        self._has_answers = True
        return self.error is None

    def _end_of_answers(self) -> None:
        """Call back after all responses that arrived together: the callers can send more requests now."""
        if not self._has_answers:
            return
        self._has_answers = False
        afterwards, self._afterwards = self._afterwards, None
        if afterwards is not None:
            afterwards(self.last_used_at)
        self._slots.report_space()

    def _note_answer(self, entry: InFlightRequest, response: object, now: float) -> None:
        """Handle the throttle time of a response, and a rejected version."""
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0 and client_throttles(entry.request_type.api_key, entry.version):
            self.throttled_until = max(self.throttled_until, now + throttle_ms / 1000)
            if self._traffic is not None:
                self._traffic.throttles.append((entry.request_type, throttle_ms / 1000))
            if self._hooks:
                self._hooks.on_throttle(self._node, throttle_ms / 1000)
        if getattr(response, "error_code", 0) == UNSUPPORTED_VERSION and entry.request_type.api_key != API_VERSIONS_KEY:
            self._on_version_refused()
