"""The dispatcher: from a request frame to an encoded response.

The dispatcher decodes the frame, refuses unsupported versions, has the handler run (`handler_call`), encodes the
response, and records metrics. It never touches sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from triokafka import errors
from triokafka.broker_stub.request.answer import Answer
from triokafka.broker_stub.request.client_quotas import QuotaKind
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.deferred_response import DeferredResponse
from triokafka.broker_stub.request.error_counts import Counter, error_counter
from triokafka.broker_stub.request.error_message_truncation import cut_error_messages
from triokafka.broker_stub.request.fault_injection import after_handler, before_handler, damage_answer
from triokafka.broker_stub.request.handler_call import run_handler
from triokafka.broker_stub.request.handler_slots import Slot
from triokafka.broker_stub.request.large_requests import LARGE_BYTES, LargeRequests
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.broker_stub.request.request_memory import RequestMemory
from triokafka.broker_stub.request.request_metrics import (
    ApiMetrics,
    RequestMetrics,
    Times,
    log_request,
    requests_logger,
)
from triokafka.broker_stub.request.services import EnvelopeArrival, Services
from triokafka.errors import ProtocolError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.compiler import carries_records
from triokafka.protocol.frames import SIZE_BYTES, RequestHeader, decode_request_header, encode_response
from triokafka.protocol.message import Response
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.protocol.templates import FilledAnswer
from triokafka.security.acl import AclOperation
from triokafka.structs import Buffer

logger = logging.getLogger(__name__)

API_VERSIONS_KEY: Final = 18
_PRODUCE_KEY: Final = 0
_PAUSES_PRODUCERS: Final = frozenset({QuotaKind.PRODUCE, QuotaKind.REQUEST})
"""The quotas that may make a connection wait after the response to a Produce."""
_FETCH_KEY: Final = 1
_MANY_ITEMS: Final = 1_000
"""A thread encodes responses with more items, whatever the size of the request."""
_NOT_ACTIVE: Final = frozenset({errors.NotControllerError.code, errors.NotLeaderForPartitionError.code})
"""Errors of forwarded requests with which a node says that another one is the active controller, which leads the
quorum: the second one is that of DescribeQuorum, AddRaftVoter and RemoveRaftVoter."""


class _Api(NamedTuple):
    """A served API with its metrics."""

    handler: Handler[Any, Any]
    metrics: ApiMetrics
    count_errors: Counter | None


class Dispatcher:
    """Answers the requests of all connections.

    Args:
        services: the parts of the broker, or of the controller, that handlers use.
        handlers: the served APIs by key.
        memory: bounds the memory of requests that are decoded at the same time.
    """

    def __init__(
        self,
        services: Services,
        handlers: Mapping[int, Handler[Any, Any]],
        memory: RequestMemory,
    ) -> None:
        self.services = services
        self.handlers = handlers
        self._memory = memory
        self._large_requests = LargeRequests(services.world, services.config, memory)
        self._world = services.world
        self._now = services.world.loop_clock()
        self._client_quotas = services.quotas
        self._faults = services.faults
        self.metrics = RequestMetrics()
        self._apis: dict[int, _Api] = {}
        # Threads hold the interpreter in turns: with one for each large response, the event loop had few.
        self._encoding = trio.Semaphore(1)

    @property
    def busy_seconds(self) -> float:
        """Total local processing time of all requests since the start, in seconds."""
        return sum(api.metrics.local_seconds for api in self._apis.values())

    def load(self, key: int) -> _Api | None:
        """Return the API with that key; None if the broker does not serve it."""
        api = self._apis.get(key)
        if api is None:
            handler = self.handlers.get(key)
            if handler is None:
                return None
            count_errors = error_counter(handler.request_type.response_type)
            api = self._apis[key] = _Api(handler, self.metrics.api(handler.name), count_errors)
        return api

    async def dispatch(
        self,
        frame: Buffer,
        *,
        slot: Slot,
        principal: str,
        token_authenticated: bool = False,
        listener: str,
        peer: tuple[str, int],
        received_at: float | None = None,
        started_at: float | None = None,
        let_go: Callable[[], None] | None = None,
        charge: Callable[[int], None] | None = None,
        repeated: RepeatedRequests | None = None,
        may_defer: bool = False,
    ) -> Answer:
        """Answer one request.

        With ``may_defer`` the answer to a Produce may be `Answer.deferred`: only replicas are still waited for.

        ``received_at`` is the time of its arrival, and ``started_at`` the time at which it got its slot; both default
        to now. The handler may call ``let_go`` once it needs the frame no longer; the caller must not keep the frame.
        The dispatcher calls ``charge`` with the memory of a large request's decoded form. ``repeated`` holds earlier
        requests of the same connection.

        Raises:
            CloseConnectionError: the frame is not a request, the broker does not serve the API or version, or the API
                has no response for the error.
        """
        now = self._now() if started_at is None else started_at
        request: Any
        handler: Handler[Any, Any] | None
        waited = 0.0
        known = repeated.read(frame) if repeated is not None else None
        if known is not None:
            header, request = known.header, known.request
            handler = self._apis[header.api_key].handler
        else:
            try:
                header, handler = self._route(frame)
                if handler is None:
                    return self._refuse_api_versions(header, now)
                if len(frame) > LARGE_BYTES:
                    request, memory, waited = await self._large_requests.decode(handler, frame, header, slot)
                    if charge is not None:
                        charge(memory)
                else:
                    request = handler.decode(frame, header.api_version, header.size)
                if header.api_key == _PRODUCE_KEY and repeated is not None:
                    repeated.learn(frame, header, request)
            except ProtocolError as error:
                raise CloseConnectionError(f"not a Kafka request: {error}") from error
        context = RequestContext(  # by position: names would double the time
            header,
            self.services,
            principal,
            listener,
            peer,
            now,
            slot,
            len(frame),
            now if received_at is None else received_at,
            waited,
            handler.counts_waits,
            token_authenticated,
            let_go,
            known,
        )
        del frame  # only the request refers to its records now
        if handler.waits:
            slot.release()
        if header.api_key == _FETCH_KEY:
            context.follower = _is_follower(request)
        if self._faults.armed and not context.follower:  # faults are for clients
            return await self._dispatch_faulty(handler, request, context)
        if may_defer:
            may_defer = header.api_key == _PRODUCE_KEY and self._client_quotas.limited.isdisjoint(_PAUSES_PRODUCERS)
        response = await run_handler(handler, request, context, faulty=False, may_defer=may_defer)
        if isinstance(response, DeferredResponse):
            return Answer(done_at=self._now(), context=context, deferred=response)
        if (
            (context.size > LARGE_BYTES or context.items > _MANY_ITEMS)
            and isinstance(response, Response)
            and (context.items > _MANY_ITEMS or not carries_records(type(response)))
        ):
            return await self._finish_aside(response, context)
        return self._finish(response, context)

    def complete(self, answer: Answer) -> Answer:
        """Return the answer with its response, after the operation of ``answer.deferred`` is complete."""
        deferred, context = answer.deferred, answer.context
        assert deferred is not None and context is not None
        context.parked_seconds += self._now() - answer.done_at
        try:
            response = deferred.finish()
        except CloseConnectionError:
            raise
        except Exception as error:
            logger.exception("Produce from %s:%d failed", *context.peer)
            raise CloseConnectionError(f"the response to a Produce request cannot be sent: {error!r}") from error
        return self._finish(response, context)

    async def _finish_aside(self, response: Response, context: RequestContext) -> Answer:
        """Like `_finish`, but count the errors of a response and encode it in a thread."""
        answer, world, header = self._finish(response, context, aside=True), self._world, context.header
        api = self._apis[header.api_key]
        counts: dict[int, int] = {}
        async with self._encoding:
            answer.parts = await world.run_in_thread(_count_and_encode, api.count_errors, counts, response, header)
        api.metrics.count_errors(counts)
        answer.done_at = self._now()
        return answer

    async def dispatch_forwarded(
        self,
        frame: Buffer,
        envelope: EnvelopeArrival,
        *,
        principal: str,
        peer: tuple[str, int],
        token_authenticated: bool = False,
    ) -> tuple[bytes, int]:
        """Answer a request that a broker forwards for a client (KIP-590).

        Returns the response, header and body, and 0; or nothing and the code of `NotControllerError` if the response
        has that error, or says that this node does not lead the quorum, so that the broker finds the active controller
        and tries again.

        Args:
            frame: the client's request: header and body.
            envelope: the arrival of the Envelope that contains it.
            principal, peer: the client's principal and address.
            token_authenticated: whether the client used a delegation token.

        Raises:
            InvalidRequestError: the frame is not a request.
            UnsupportedVersionError: this listener does not serve the API or the version.
            RequestTimedOutError: the request is large, and others held the memory to decode it for too long.
        """
        try:
            header, handler = self._route(frame)
        except CloseConnectionError as error:
            raise errors.UnsupportedVersionError(str(error)) from error
        except ProtocolError as error:
            raise errors.InvalidRequestError(f"the envelope has no Kafka request: {error}") from error
        if handler is None:
            raise errors.UnsupportedVersionError(f"API key {header.api_key} is not forwarded")
        memory = 0
        try:
            if len(frame) > LARGE_BYTES:
                request, memory, _ = await self._large_requests.decode(handler, frame, header, envelope.slot)
            else:
                request = handler.decode(frame, header.api_version, header.size)
        except ProtocolError as error:
            raise errors.InvalidRequestError(f"the envelope has no Kafka request: {error}") from error
        except CloseConnectionError as error:
            raise errors.RequestTimedOutError(str(error)) from error
        context = RequestContext(
            header=header,
            services=self.services,
            principal=principal,
            token_authenticated=token_authenticated,
            forwarded=True,
            listener=envelope.listener,
            peer=peer,
            now=envelope.now,
            slot=envelope.slot,
            size=len(frame),
            received_at=envelope.received_at,
        )
        self._memory.add(memory)
        try:
            response = await self._answer(handler, request, context, faulty=False)
            if not isinstance(response, Response):
                raise errors.InvalidRequestError(f"{handler.name} is not forwarded")
            return await self._finish_forwarded(response, context)
        finally:
            self._memory.remove(memory)

    async def _finish_forwarded(self, response: Response, context: RequestContext) -> tuple[bytes, int]:
        """Count the errors of a response and encode it, in a thread if it may be large."""
        header = context.header
        api = self._apis[header.api_key]
        if context.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = context.throttle_ms
        counts: dict[int, int] = {}
        if context.size > LARGE_BYTES or context.items > _MANY_ITEMS:
            async with self._encoding:
                parts = await self._world.run_in_thread(_count_and_encode, api.count_errors, counts, response, header)
        else:
            parts = _count_and_encode(api.count_errors, counts, response, header)
        api.metrics.count_errors(counts)
        if not counts.keys().isdisjoint(_NOT_ACTIVE):
            return b"", errors.NotControllerError.code
        return b"".join(parts)[SIZE_BYTES:], 0

    def answered(self, answer: Answer, sending_at: float, sent_at: float) -> None:
        """Record the metrics of a request whose response was sent between these times, or could not be sent."""
        context = answer.context
        if context is None:
            return
        worked = answer.done_at - context.now
        remote = context.parked_seconds and min(max(context.parked_seconds, 0.0), worked)
        throttle = answer.throttle_ms / 1000
        times: Times = (
            context.now - context.received_at,
            worked - remote,
            remote,
            throttle,
            sending_at - answer.done_at,
            sent_at - sending_at,
            sent_at - context.received_at + throttle,
            context.size,
        )
        header = context.header
        self._apis[header.api_key].metrics.record(header.api_version, times)
        if header.api_key == _FETCH_KEY:
            name = "FetchFollower" if context.follower else "FetchConsumer"
            self.metrics.api(name).record(header.api_version, times)
        if requests_logger.isEnabledFor(logging.DEBUG):
            log_request(self.handlers[header.api_key].name, context, times)

    def _finish(
        self, response: Response | FilledAnswer | None, context: RequestContext, *, aside: bool = False
    ) -> Answer:
        """Apply the quotas, count errors and encode the response; with ``aside`` the caller does the latter two."""
        now, header, limited = self._now, context.header, self._client_quotas.limited
        if limited and QuotaKind.REQUEST in limited and response is not None and not self._is_of_node(context):
            busy = max(now() - context.now - context.parked_seconds, 0.0)
            context.count_towards(QuotaKind.REQUEST, busy * 100)
        throttle_ms = context.throttle_ms
        if response is None:
            return Answer(throttle_ms=throttle_ms, done_at=now(), context=context)
        if type(response) is FilledAnswer:
            if not throttle_ms:
                errors_seen = self._apis[header.api_key].metrics.errors
                errors_seen[0] = errors_seen.get(0, 0) + 1
                frame = response.template.frame(header.correlation_id, response.numbers)
                return Answer([frame], 0, 0, False, now(), context)
            response = response.made()
        assert isinstance(response, Response)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        api = self._apis[header.api_key]
        if aside:
            return Answer([], throttle_ms, 0, False, now(), context)
        if api.count_errors is not None:
            api.count_errors(response, api.metrics.errors)
        parts = _encode(response, header)
        return Answer(parts, throttle_ms, 0, False, now(), context)

    async def _dispatch_faulty(self, handler: Handler[Any, Any], request: Any, context: RequestContext) -> Answer:
        """Answer a request under armed faults; see `fault_injection`."""
        fault = self._faults.for_request(handler.api_key, context.client_id)
        if fault is None:
            return self._finish(await self._answer(handler, request, context, faulty=True), context)
        await before_handler(fault, context)
        response = await self._answer(handler, request, context, faulty=self._faults.armed)
        after_handler(fault, context)
        answer = self._finish(response, context)
        damage_answer(fault, answer)
        return answer

    def _is_of_node(self, context: RequestContext) -> bool:
        """Whether a node of the cluster sent the request. Such requests have no quota."""
        nodes_since = self._apis[context.header.api_key].handler.nodes_since
        claims = context.follower or (nodes_since is not None and context.version >= nodes_since)
        return claims and not context.denied_for_cluster(AclOperation.CLUSTER_ACTION, audit=False)

    def _route(self, frame: Buffer) -> tuple[RequestHeader, Handler[Any, Any] | None]:
        """Return header and handler of a frame; the handler is None for ApiVersions in an unknown version."""
        header = decode_request_header(frame)
        api = self._apis.get(header.api_key) or self.load(header.api_key)
        if api is None:
            raise CloseConnectionError(f"API key {header.api_key} (version {header.api_version}) is not served")
        handler = api.handler
        if header.api_version not in handler.versions:
            if header.api_key == API_VERSIONS_KEY:
                return header, None
            raise CloseConnectionError(
                f"{handler.request_type.__name__} version {header.api_version} is not served; "
                f"{handler.versions.start} to {handler.versions.stop - 1} are"
            )
        return header, handler

    def _refuse_api_versions(self, header: RequestHeader, now: float) -> Answer:
        # Every client can read version 0, and repeats the request in a version that this response names (KIP-511).
        versions = self.services.advertised[API_VERSIONS_KEY]
        response = ApiVersionsResponse(
            error_code=errors.UnsupportedVersionError.code,
            api_keys=[ApiVersion(api_key=API_VERSIONS_KEY, min_version=versions.start, max_version=versions.stop - 1)],
        )
        return Answer(encode_response(response, version=0, correlation_id=header.correlation_id), done_at=now)

    async def _answer(
        self, handler: Handler[Any, Any], request: Any, context: RequestContext, *, faulty: bool
    ) -> Response | FilledAnswer | None:
        response = await run_handler(handler, request, context, faulty=faulty)
        assert not isinstance(response, DeferredResponse)
        return response


def _encode(response: Response, header: RequestHeader) -> list[Buffer]:
    """Encode a response; truncate error messages that exceed the protocol's limit for strings.

    Raises:
        CloseConnectionError: another value cannot be encoded, such as a name that was not UTF-8.
    """
    version, correlation_id = header.api_version, header.correlation_id
    try:
        return encode_response(response, version=version, correlation_id=correlation_id)
    except ProtocolError as error:
        reason = str(error)
    if cut_error_messages(response):
        try:
            return encode_response(response, version=version, correlation_id=correlation_id)
        except ProtocolError as error:
            reason = str(error)
    raise CloseConnectionError(f"the answer {reason}")


def _count_and_encode(
    count_errors: Counter | None, counts: dict[int, int], response: Response, header: RequestHeader
) -> list[Buffer]:
    if count_errors is not None:
        count_errors(response, counts)
    return _encode(response, header)


def _is_follower(request: FetchRequest) -> bool:
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0
