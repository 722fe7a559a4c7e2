"""A request that was sent and has no response yet."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import Any, Final

from triokafka.errors import ProtocolError
from triokafka.protocol.frames import decode_response
from triokafka.protocol.message import Request, Response
from triokafka.protocol.templates import AnswerTemplate
from triokafka.structs import Buffer

logger = logging.getLogger(__name__)

API_VERSIONS_KEY: Final = 18
UNSUPPORTED_VERSION: Final = 35
_CORRELATION_ID: Final = struct.Struct(">i")
_CODE: Final = struct.Struct(">h")

DECODED_TIMES: Final = 4
"""Limit of a response's elements in memory as a multiple of ``receive_message_max_bytes``."""

Completion = Callable[[Any, Exception | None], None]
"""Called once with the response and None, or None and the error. The response to a `FilledRequest` may be the numbers
that its `AnswerTemplate` found. Runs in the connection's task; must not block."""


class InFlightRequest:
    """A submitted request without a response. Points in time are seconds on the world's clock.

    ``answer`` reads the usual response faster than the codec. ``may_wait`` is how many seconds the protocol lets the
    broker delay the response.
    """

    __slots__ = ("answer", "correlation_id", "deadline", "may_wait", "on_done", "request_type", "started_at", "version")

    def __init__(
        self,
        request_type: type[Request[Any]],
        version: int,
        correlation_id: int,
        started_at: float,
        deadline: float,
        on_done: Completion,
        answer: AnswerTemplate | None = None,
        may_wait: float = 0.0,
    ) -> None:
        self.answer = answer
        self.may_wait = may_wait
        self.request_type = request_type
        self.version = version
        self.correlation_id = correlation_id
        self.started_at = started_at
        self.deadline = deadline
        self.on_done = on_done

    @property
    def api(self) -> str:
        """The name of the API, as in ``Produce``."""
        return self.request_type.__name__.removesuffix("Request")

    def is_answered_by(self, frame: Buffer) -> bool:
        """Whether the frame has this request's correlation id."""
        return bool(_CORRELATION_ID.unpack_from(frame, 0)[0] == self.correlation_id)

    def decode(self, frame: Buffer, broker: str, *, max_memory: int | None = None) -> Response:
        """Decode the response; ``broker`` names its sender in the error. ``max_memory`` is as in `decode_response`.

        Raises:
            ProtocolError: the frame is not a response to this request.
        """
        version = self._version_of(frame)
        response_type = self.request_type.response_type
        try:
            response: Response
            _, response = decode_response(response_type, frame, version=version, max_memory=max_memory)
        except ProtocolError as error:
            raise ProtocolError(
                f"{broker} sent a {response_type.__name__} that is invalid in version {version}: {error}"
            ) from error
        return response

    def _version_of(self, frame: Buffer) -> int:
        # A broker that does not know this version of ApiVersions answers in version 0 (KIP-511).
        if self.request_type.api_key == API_VERSIONS_KEY and len(frame) >= 6:
            (code,) = _CODE.unpack_from(frame, 4)
            if code == UNSUPPORTED_VERSION:
                return 0
        return self.version

    def complete(self, response: object, error: Exception | None) -> None:
        """Call the completion; an exception that it raises is logged, and does not affect other requests."""
        try:
            self.on_done(response, error)
        except Exception:
            logger.exception("The callback of a %s request raised an error", self.request_type.__name__)
