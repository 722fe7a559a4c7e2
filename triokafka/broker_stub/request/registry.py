"""The handler registry: which coroutine serves an API, in which versions.

A handler is one coroutine from request to response, marked with `handles`; the dispatcher calls it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.errors import KafkaError
from triokafka.protocol.compiler import carries_records
from triokafka.protocol.message import Request, Response
from triokafka.protocol.templates import FilledAnswer
from triokafka.structs import Buffer

RequestT = TypeVar("RequestT", bound=Request[Any])
ResponseT = TypeVar("ResponseT", bound=Response | FilledAnswer | None)


class CloseConnectionError(KafkaError):
    """This connection cannot go on; the message is the reason for the log. Other connections are not affected."""


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
    carries_records: bool = field(init=False)

    def __post_init__(self) -> None:
        # librdkafka's request for the metadata of all topics has three bytes too many, which Kafka does not look at.
        self.carries_records = carries_records(self.request_type)
        self.decode = self.request_type.decode if self.carries_records else self.request_type.decode_prefix

    @property
    def api_key(self) -> int:
        """The API's number."""
        return self.request_type.api_key

    @property
    def name(self) -> str:
        """The API's name, as in ``"Produce"``."""
        return self.request_type.__name__.removesuffix("Request")

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
