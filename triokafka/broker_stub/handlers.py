"""How an API is served: registration of its handler, the context that a handler gets, and the dispatcher in between.

A handler is one coroutine from request to response, marked with `handles`. The dispatcher decodes the frame, refuses
versions that nobody serves, asks the authorizer, runs the handler, turns an exception into the API's own error response
and encodes the answer. It never touches sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import trio

from triokafka import errors
from triokafka.broker_stub.authorizer import Access, AllowAll, Authorizer, Operation, ResourceType, denial
from triokafka.broker_stub.quotas import QuotaKind
from triokafka.errors import BrokerResponseError, KafkaError, ProtocolError
from triokafka.protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from triokafka.protocol.compiler import carries_records
from triokafka.protocol.frames import RequestHeader, decode_request_header, encode_response
from triokafka.protocol.message import Request, Response
from triokafka.structs import Buffer

if TYPE_CHECKING:
    from triokafka.broker_stub.network.handler_slots import Slot
    from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
    from triokafka.broker_stub.server import Broker
    from triokafka.world import World

logger = logging.getLogger(__name__)

RequestT = TypeVar("RequestT", bound=Request[Any])
ResponseT = TypeVar("ResponseT", bound=Response | None)

API_VERSIONS_KEY: Final = 18
UNKNOWN_SERVER_ERROR: Final = -1
_FAULTS_BY_ITEM: Final = (0, 1, 2)  # Produce, Fetch and ListOffsets ask for each partition


class CloseConnectionError(KafkaError):
    """This connection cannot go on; the message is the reason for the log. Other connections are not affected."""


class QuotaHook(Protocol):
    """Told of every answered request; says for how many milliseconds the client is to be held back (KIP-219)."""

    def throttle_time_ms(self, context: RequestContext, response: Response) -> int:
        """0 for "not at all"."""


@dataclass(slots=True)
class RequestContext:
    """What a handler knows besides the request itself.

    ``now`` is the broker's monotonic clock at the start of the request, in seconds; ``listener`` the name of the
    listener that the client connected to; ``size`` the request's bytes, header included. A handler that finds a quota
    exceeded sets ``throttle_ms``: the answer will say so, and the connection is not read for as long.
    ``parked_seconds`` of its time were spent waiting; without ``counts_time`` all of it may have been.
    """

    header: RequestHeader
    broker: Broker
    principal: str
    listener: str
    peer: tuple[str, int]
    now: float
    slot: Slot | None = None
    size: int = 0
    throttle_ms: int = 0
    parked_seconds: float = 0.0
    counts_time: bool = True

    @property
    def version(self) -> int:
        """Version of the request, and so of the response."""
        return self.header.api_version

    @property
    def client_id(self) -> str:
        """What the client calls itself; empty when it does not say."""
        return self.header.client_id or ""

    @property
    def world(self) -> World:
        """The broker's door to the outside."""
        return self.broker.world

    @property
    def user(self) -> str:
        """The principal's name, as quotas know it."""
        return self.principal.partition(":")[2]

    def count_towards(self, kind: QuotaKind, amount: float) -> int:
        """Count towards a quota of the client; how many ms it must be silent, which the answer then says (KIP-219)."""
        broker = self.broker
        if not broker.quotas.limits(kind):
            return 0
        throttle_ms = broker.quotas.record(kind, self.user, self.client_id, amount, broker.world.now())
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return throttle_ms

    @property
    def client_host(self) -> str:
        """The client's address as Kafka shows it in group descriptions."""
        return f"/{self.peer[0]}"

    def denied(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may not do this; the answer for the item is then `authorizer.denial`'s error."""
        dispatcher = self.broker.dispatcher
        return not dispatcher.allows_all and not dispatcher.authorizer.allows(
            self.principal, self.peer[0], operation, resource_type, name
        )

    def allowed_somewhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do this to any resource of the type."""
        authorizer = self.broker.dispatcher.authorizer
        return authorizer.allows_somewhere(self.principal, self.peer[0], operation, resource_type)

    def allowed_operations(self, resource_type: ResourceType, name: str) -> int:
        """What the client may do to a resource, as the bit field that responses carry."""
        return self.broker.dispatcher.authorizer.allowed_operations(self.principal, self.peer[0], resource_type, name)

    def yield_slot(self) -> None:
        """Give the handler slot back: from here on the request waits for something other than work (B07)."""
        if self.slot is not None:
            self.slot.release()

    async def park(self, operation: DelayedOperation) -> None:
        """Wait until a delayed operation is complete, without holding a handler slot."""
        self.yield_slot()
        parked_at = self.world.now()
        await operation.wait()
        self.parked_seconds += self.world.now() - parked_at


OnError = Callable[[RequestT, RequestContext, int, str], Response | None]


@dataclass(slots=True, eq=False)
class Handler(Generic[RequestT, ResponseT]):
    """One registered API. Callable like the function that it wraps.

    ``versions`` are served; ``advertised`` is what ApiVersions says. ``waits`` marks a handler that waits for other
    clients or for the clock, and so holds no slot.
    """

    request_type: type[RequestT]
    versions: range
    function: Callable[[RequestT, RequestContext], Awaitable[ResponseT]]
    advertised: range
    accesses: tuple[Access, ...] = ()
    waits: bool = False
    on_error: OnError[RequestT] | None = None
    decode: Callable[[Buffer, int, int], RequestT] = field(init=False)

    def __post_init__(self) -> None:
        # librdkafka's request for the metadata of all topics has three bytes too many, which Kafka does not look at.
        strict = carries_records(self.request_type)
        self.decode = self.request_type.decode if strict else self.request_type.decode_prefix

    @property
    def api_key(self) -> int:
        """The API's number."""
        return self.request_type.api_key

    async def __call__(self, request: RequestT, context: RequestContext) -> ResponseT:
        """Answer one request."""
        return await self.function(request, context)


@dataclass(slots=True, eq=False)
class Registration(Generic[RequestT]):
    """What `handles` returns: the decorator that makes a `Handler` of a coroutine."""

    request_type: type[RequestT]
    versions: range
    advertised: range
    accesses: tuple[Access, ...]
    waits: bool
    on_error: OnError[RequestT] | None

    def __call__(
        self, function: Callable[[RequestT, RequestContext], Awaitable[ResponseT]]
    ) -> Handler[RequestT, ResponseT]:
        """Make the handler."""
        return Handler(
            request_type=self.request_type,
            versions=self.versions,
            function=function,
            advertised=self.advertised,
            accesses=self.accesses,
            waits=self.waits,
            on_error=self.on_error,
        )


def handles(
    request_type: type[RequestT],
    *,
    versions: range,
    advertised: range | None = None,
    accesses: Iterable[Access] = (),
    waits: bool = False,
    on_error: OnError[RequestT] | None = None,
) -> Registration[RequestT]:
    """Register a coroutine as the handler of an API.

    Args:
        versions: the versions that it serves.
        advertised: the versions that ApiVersions names, where they differ.
        accesses: what a request touches; the authorizer is asked before the handler runs.
        waits: it may wait for other clients or the clock (a rebalance, say), so it runs without a handler slot.
        on_error: builds the response for an error of the whole request (request, context, code, message), for APIs
            whose response has no error code at the top. None from it closes the connection.
    """
    return Registration(
        request_type, versions, versions if advertised is None else advertised, tuple(accesses), waits, on_error
    )


@dataclass(slots=True)
class Answer:
    """What goes back: buffers to send (none for ``acks=0``), and how long not to read after it.

    ``delay_ms`` and ``closes`` are for injected faults: wait before sending, close the connection afterwards.
    """

    parts: list[Buffer] = field(default_factory=list)
    throttle_ms: int = 0
    delay_ms: int = 0
    closes: bool = False


class Dispatcher:
    """From a frame to an answer.

    Args:
        handlers: the served APIs by key.
    """

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler[Any, Any]],
        *,
        authorizer: Authorizer | None = None,
        quota: QuotaHook | None = None,
    ) -> None:
        self.broker = broker
        self.handlers = handlers
        self.quota = quota
        self.authorizer = authorizer if authorizer is not None else AllowAll()
        self.allows_all = isinstance(self.authorizer, AllowAll)
        self.requests_served = 0

    async def dispatch(
        self, frame: Buffer, *, slot: Slot, principal: str, listener: str, peer: tuple[str, int]
    ) -> Answer:
        """Answer one request.

        Raises:
            CloseConnectionError: the frame is not a request, or asks for an API or version that is not served, or the
                only possible answer is to hang up.
        """
        try:
            header, handler = self._route(frame)
            if handler is None:
                return self._refuse_api_versions(header)
            request = handler.decode(frame, header.api_version, header.size)
        except ProtocolError as error:
            raise CloseConnectionError(f"not a Kafka request: {error}") from error
        context = RequestContext(
            header=header,
            broker=self.broker,
            principal=principal,
            listener=listener,
            peer=peer,
            now=self.broker.world.now(),
            slot=slot,
            size=len(frame),
        )
        self.requests_served += 1
        if handler.waits:
            slot.release()
            context.counts_time = False
        if self.broker.faults.armed:
            return await self._dispatch_faulty(handler, request, context)
        return self._finish(await self._answer(handler, request, context), context)

    def _finish(self, response: Response | None, context: RequestContext) -> Answer:
        """Throttle as the quotas say, and encode."""
        if self.broker.quotas.limits(QuotaKind.REQUEST) and response is not None and context.counts_time:
            busy = self.broker.world.now() - context.now - context.parked_seconds
            context.count_towards(QuotaKind.REQUEST, busy * 100)
        throttle_ms = context.throttle_ms
        if response is None:
            return Answer(throttle_ms=throttle_ms)
        if self.quota is not None:
            throttle_ms = max(throttle_ms, self.quota.throttle_time_ms(context, response))
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        header = context.header
        parts = encode_response(response, version=header.api_version, correlation_id=header.correlation_id)
        return Answer(parts, throttle_ms)

    async def _dispatch_faulty(self, handler: Handler[Any, Any], request: Any, context: RequestContext) -> Answer:
        """As the armed faults say; see `triokafka.broker_stub.faults`."""
        fault = self.broker.faults.for_request(handler.api_key, context.client_id)
        if fault is None:
            return self._finish(await self._answer(handler, request, context), context)
        if fault.delay_ms:
            context.yield_slot()
            await trio.sleep(fault.delay_ms / 1000)
        if fault.close == "before":
            raise CloseConnectionError("a fault was injected: closed before the request was worked on")
        response = await self._answer(handler, request, context)
        if fault.close == "after":
            raise CloseConnectionError("a fault was injected: closed instead of answering")
        context.throttle_ms = max(context.throttle_ms, fault.throttle_ms)
        answer = self._finish(response, context)
        if fault.close == "within":
            whole = b"".join(answer.parts)
            answer.parts, answer.closes = [whole[: len(whole) // 2]], True
        elif fault.lose_answer:
            answer.parts = []
        answer.delay_ms = fault.answer_delay_ms
        return answer

    def _route(self, frame: Buffer) -> tuple[RequestHeader, Handler[Any, Any] | None]:
        """The handler for a frame; None for an ApiVersions request of a version that does not exist yet (Z23)."""
        header = decode_request_header(frame)
        handler = self.handlers.get(header.api_key)
        if handler is None:
            raise CloseConnectionError(f"API key {header.api_key} (version {header.api_version}) is not served")
        if header.api_version not in handler.versions:
            if header.api_key == API_VERSIONS_KEY:
                return header, None
            raise CloseConnectionError(
                f"{handler.request_type.__name__} version {header.api_version} is not served; "
                f"{handler.versions.start} to {handler.versions.stop - 1} are"
            )
        return header, handler

    def _refuse_api_versions(self, header: RequestHeader) -> Answer:
        # The client asks again with a version that this answer names; it is always readable, being version 0 (KIP-511).
        versions = self.handlers[API_VERSIONS_KEY].advertised
        response = ApiVersionsResponse(
            error_code=errors.UnsupportedVersionError.code,
            api_keys=[ApiVersion(api_key=API_VERSIONS_KEY, min_version=versions.start, max_version=versions.stop - 1)],
        )
        return Answer(encode_response(response, version=0, correlation_id=header.correlation_id))

    async def _answer(self, handler: Handler[Any, Any], request: Any, context: RequestContext) -> Response | None:
        try:
            if not self.allows_all:
                _authorize(handler, request, context)
            if self.broker.faults.armed and handler.api_key not in _FAULTS_BY_ITEM:
                self.broker.faults.check(handler.api_key)
            response: Response | None = await handler.function(request, context)
            return response
        except BrokerResponseError as error:
            return _error_response(handler, request, context, error.code, str(error))
        except CloseConnectionError:
            raise
        except Exception as error:
            logger.exception("%s from %s:%d failed", type(request).__name__, *context.peer)
            return _error_response(handler, request, context, UNKNOWN_SERVER_ERROR, str(error))


def _authorize(handler: Handler[Any, Any], request: Any, context: RequestContext) -> None:
    """Refuse the request as a whole where one denial does; items are the handler's to ask about."""
    for access in handler.accesses:
        if access.per_item:
            continue
        for name in access.names(request):
            if context.denied(access.operation, access.resource_type, name):
                raise denial(access.resource_type)(f"{context.principal} may not {access.operation.name} {name}")


def _error_response(
    handler: Handler[Any, Any], request: Any, context: RequestContext, code: int, message: str
) -> Response | None:
    """The API's own answer that the whole request failed (B06)."""
    if handler.on_error is not None:
        response: Response | None = handler.on_error(request, context, code, message)
        if response is not None:
            return response
    else:
        response_type = handler.request_type.response_type
        if hasattr(response_type, "error_code"):
            fields: dict[str, Any] = {"error_code": code}
            if hasattr(response_type, "error_message"):
                fields["error_message"] = message
            failed: Response = response_type(**fields)
            return failed
    name = handler.request_type.__name__
    raise CloseConnectionError(f"{name} failed with error {code} ({message}), and its answer has no room for that")
