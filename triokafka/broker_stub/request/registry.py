"""Registration of API handlers with their versions.

A handler is one coroutine from request to response, marked with `handles`; the dispatcher calls it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from triokafka.broker_stub.authorizer import Access
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.deferred_response import DeferredResponse
from triokafka.errors import KafkaError
from triokafka.protocol.compiler import carries_records
from triokafka.protocol.message import Request, Response
from triokafka.protocol.templates import FilledAnswer
from triokafka.security.acl import AclOperation
from triokafka.structs import Buffer

RequestT = TypeVar("RequestT", bound=Request[Any])
_FREQUENT: Final = (0, 1)
"""Produce and Fetch."""
ResponseT = TypeVar("ResponseT", bound=Response | FilledAnswer | DeferredResponse | None)


class CloseConnectionError(KafkaError):
    """The broker must close this connection; the message is the reason for the log."""


OnError = Callable[[RequestT, RequestContext, int, str], Response | None]


@dataclass(slots=True, eq=False)
class Handler(Generic[RequestT, ResponseT]):
    """One registered API. Callable like the function that it wraps.

    The handler serves ``versions``; ApiVersions reports ``advertised``. ``waits`` marks a handler that waits for other
    clients or for a timer and therefore holds no slot.

    ``counts_waits`` says that the dispatcher tells the handler's work from its waits. Produce and Fetch are too
    frequent for that, and count the waits that they know. ``nodes_since`` is the first version that only nodes of the
    cluster send, which quotas of request time exempt.
    """

    request_type: type[RequestT]
    versions: range
    function: Callable[[RequestT, RequestContext], Awaitable[ResponseT]]
    advertised: range
    accesses: tuple[Access, ...] = ()
    waits: bool = False
    on_error: OnError[RequestT] | None = None
    nodes_since: int | None = None
    decode: Callable[[Buffer, int, int], RequestT] = field(init=False)
    carries_records: bool = field(init=False)
    counts_waits: bool = field(init=False)

    def __post_init__(self) -> None:
        # librdkafka's Metadata request for all topics has three extra bytes, which Kafka ignores.
        self.carries_records = carries_records(self.request_type)
        self.decode = self.request_type.decode if self.carries_records else self.request_type.decode_prefix
        self.counts_waits = self.waits or self.api_key not in _FREQUENT
        if self.nodes_since is None and any(
            access.operation is AclOperation.CLUSTER_ACTION and not access.per_item for access in self.accesses
        ):
            self.nodes_since = 0

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


def handles(
    request_type: type[RequestT],
    *,
    versions: range,
    advertised: range | None = None,
    accesses: Iterable[Access] = (),
    waits: bool = False,
    on_error: OnError[RequestT] | None = None,
    nodes_since: int | None = None,
) -> Callable[[Callable[[RequestT, RequestContext], Awaitable[ResponseT]]], Handler[RequestT, ResponseT]]:
    """Register a coroutine as the handler of an API.

    Args:
        versions: the versions that the handler serves.
        advertised: the versions in ApiVersions, if they differ.
        accesses: the permissions that a request needs; the dispatcher checks them before the handler runs.
        waits: the handler may wait for other clients or a timer (a rebalance, for example), and runs without a slot.
        on_error: builds the response for an error of the whole request from request, context, code and message, for
            APIs whose response has no top-level error code. If it returns None, the broker closes the connection.
        nodes_since: the first version that only nodes of the cluster send. For requests that need ClusterAction on the
            cluster, it is 0.
    """

    def register(function: Callable[[RequestT, RequestContext], Awaitable[ResponseT]]) -> Handler[RequestT, ResponseT]:
        return Handler(
            request_type,
            versions,
            function,
            advertised=versions if advertised is None else advertised,
            accesses=tuple(accesses),
            waits=waits,
            on_error=on_error,
            nodes_since=nodes_since,
        )

    return register
