"""Running the handler of one request: authorization, and the responses of errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final

from triokafka.broker_stub.authorizer import denial
from triokafka.broker_stub.request.context import RequestContext
from triokafka.broker_stub.request.deferred_response import DeferredResponse
from triokafka.broker_stub.request.fault_injection import answer_with_faulty_items
from triokafka.broker_stub.request.handler_time import count_waits
from triokafka.broker_stub.request.large_requests import LARGE_BYTES
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.errors import BrokerResponseError
from triokafka.protocol.message import Response
from triokafka.protocol.templates import FilledAnswer

logger = logging.getLogger(__name__)

_UNKNOWN_SERVER_ERROR: Final = -1
_FAULTS_BY_ITEM: Final = (0, 1, 2)  # the handlers of Produce, Fetch and ListOffsets check each partition


async def run_handler(
    handler: Handler[Any, Any],
    request: Any,
    context: RequestContext,
    *,
    faulty: bool,
    may_defer: bool = False,
) -> Response | FilledAnswer | DeferredResponse | None:
    """Authorize a request and run its handler; return the response, or that of the error.

    Args:
        faulty: faults are armed, and apply to the request.
        may_defer: the result may be a `DeferredResponse`, which is not waited for.

    Raises:
        CloseConnectionError: the API has no response for the error, or a fault closes the connection.
    """
    try:
        if not context.services.allows_all:
            _authorize(handler, request, context)
        work: Awaitable[Response | FilledAnswer | DeferredResponse | None]
        if faulty and handler.api_key not in _FAULTS_BY_ITEM:
            work = answer_with_faulty_items(handler, request, context)
        else:
            work = handler.function(request, context)
        if context.counts_waits:
            work = count_waits(work, context, context.services.now)
        response = await work
        if type(response) is DeferredResponse and not may_defer:
            await context.park(response.operation)
            return response.finish()
        return response
    except BrokerResponseError as error:
        code, message = error.code, str(error)
    except CloseConnectionError:
        raise
    except Exception as error:
        logger.exception("%s from %s:%d failed", type(request).__name__, *context.peer)
        code, message = _UNKNOWN_SERVER_ERROR, str(error)
    if context.size > LARGE_BYTES:  # the response may have the error a hundred thousand times
        return await context.world.run_in_thread(_error_response, handler, request, context, code, message)
    return _error_response(handler, request, context, code, message)


def _authorize(handler: Handler[Any, Any], request: Any, context: RequestContext) -> None:
    """Check the accesses whose denial refuses the whole request. The handler checks single items."""
    for access in handler.accesses:
        if access.per_item:
            continue
        for name in access.names(request):
            if context.denied(access.operation, access.resource_type, name):
                raise denial(access.resource_type)(f"{context.principal} may not {access.operation.name} {name}")


def _error_response(
    handler: Handler[Any, Any], request: Any, context: RequestContext, code: int, message: str
) -> Response | None:
    """Return the API's response for an error of the whole request."""
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
    raise CloseConnectionError(f"{name} failed with error {code} ({message}), which its response cannot contain")
