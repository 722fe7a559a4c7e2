"""Requests that brokers forward to the active controller in an Envelope (KIP-590)."""

from __future__ import annotations

import ipaddress
from typing import Final

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.services import EnvelopeArrival
from triokafka.errors import InvalidRequestError, PrincipalDeserializationFailureError, ProtocolError
from triokafka.protocol.api.envelope import EnvelopeRequest, EnvelopeResponse
from triokafka.protocol.forwarded_principal import DefaultPrincipalData
from triokafka.protocol.frames import decode_request_header
from triokafka.structs import usual_address

FORWARDABLE: Final = frozenset(
    {19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81}
)  # fmt: skip
"""The keys of the APIs that a broker may forward, as in Apache Kafka: all of them concern the cluster as a whole."""


class ForwardedRequests:
    """Answers forwarded requests with the handlers of the controller's listener, in the name of the client."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def answer(self, envelope: EnvelopeRequest, arrival: EnvelopeArrival) -> EnvelopeResponse:
        """Answer the request inside ``envelope``.

        Raises:
            InvalidRequestError: the envelope has no request that a broker may forward, or no client address.
            PrincipalDeserializationFailureError: the principal cannot be read.
            UnsupportedVersionError: the API or its version is not served.
        """
        frame = envelope.request_data
        principal, token_authenticated = _principal(envelope)
        try:
            api_key = decode_request_header(frame).api_key
        except ProtocolError as error:
            raise InvalidRequestError(f"the envelope has no Kafka request: {error}") from error
        if api_key not in FORWARDABLE:
            raise InvalidRequestError(f"API key {api_key} is not forwarded")
        data, code = await self._dispatcher.dispatch_forwarded(
            frame,
            arrival,
            principal=principal,
            token_authenticated=token_authenticated,
            peer=(_address(envelope), 0),
        )
        return EnvelopeResponse(error_code=code) if code else EnvelopeResponse(response_data=data)


def encode_principal(principal: str, *, token_authenticated: bool = False) -> bytes:
    """Return the principal ``Type:name`` as an Envelope has it."""
    kind, _, name = principal.partition(":")
    return DefaultPrincipalData(type=kind, name=name, token_authenticated=token_authenticated).encode_versioned()


def encode_address(host: str) -> bytes:
    """Return a client's address as an Envelope has it: 4 bytes for IPv4, 16 for IPv6.

    A name instead of an address, as in a simulated network, becomes 0.0.0.0.
    """
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b"\0\0\0\0"


def _principal(envelope: EnvelopeRequest) -> tuple[str, bool]:
    """Return the client's principal, and whether it used a delegation token."""
    if envelope.request_principal is None:
        return ANONYMOUS, False
    try:
        data = DefaultPrincipalData.decode_versioned(envelope.request_principal)
    except ProtocolError as error:
        raise PrincipalDeserializationFailureError(f"the principal of the envelope cannot be read: {error}") from error
    return f"{data.type}:{data.name}", data.token_authenticated


def _address(envelope: EnvelopeRequest) -> str:
    try:
        return usual_address(str(ipaddress.ip_address(bytes(envelope.client_host_address))))
    except ValueError as error:
        raise InvalidRequestError(f"the envelope has no client address: {error}") from error
