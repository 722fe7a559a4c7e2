"""GSSAPI: Kerberos as a SASL mechanism (RFC 4752), as Kafka has it: mutual authentication, no security layer.

Methods of both ends may wait for the KDC or for files: ``is_slow`` tells the caller to run them in a thread.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from triokafka.errors import SaslAuthenticationFailedError
from triokafka.security.kerberos.local_names import LocalNames
from triokafka.security.kerberos.login import KerberosLogin, failure_of, gssapi_library, reason

_NO_LAYER: Final = 1
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])
"""The security layers as bits, here none, and the largest message of a layer in three bytes."""


class _Stage(enum.Enum):
    CONTEXT = "the context is not complete"
    LAYER = "the sides agree on the security layer"
    END = "the last message is due"
    COMPLETE = "complete"


class GssapiClient:
    """The client's end.

    Args:
        host: the host of the broker's principal.
        now: the time in seconds, on a clock that does not jump.
    """

    is_slow: Final = True

    def __init__(self, login: KerberosLogin, host: str, *, now: float) -> None:
        self._login = login
        self._now = now
        self._service = f"{login.settings.service}@{host}"
        self._stage = _Stage.CONTEXT
        self._context: Any = None

    def first(self) -> bytes:
        gssapi = gssapi_library()
        flags = gssapi.RequirementFlag
        credentials = self._login.initiate(self._now)
        try:
            self._context = gssapi.SecurityContext(
                name=gssapi.Name(self._service, gssapi.NameType.hostbased_service),
                creds=credentials,
                mech=gssapi.MechType.kerberos,
                flags=flags.mutual_authentication | flags.integrity | flags.out_of_sequence_detection,
                usage="initiate",
            )
            return self._context.step() or b""
        except gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None

    def answer(self, challenge: bytes) -> bytes | None:
        gssapi = gssapi_library()
        try:
            match self._stage:
                case _Stage.CONTEXT:
                    token: bytes | None = self._context.step(challenge)
                    if self._context.complete:
                        self._stage = _Stage.LAYER
                    return token or b""
                case _Stage.LAYER:
                    return self._choose_layer(self._context.unwrap(challenge).message)
                case _:
                    return None
        except gssapi.exceptions.GSSError as error:
            raise self._failed(error) from None

    def _choose_layer(self, offer: bytes) -> bytes:
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise SaslAuthenticationFailedError(
                "GSSAPI: the broker demands a security layer, which Kafka does not have"
            )
        self._stage = _Stage.END
        name = str(self._context.initiator_name).encode()
        wrapped: bytes = self._context.wrap(_OFFER + name, False).message
        return wrapped

    def _failed(self, error: BaseException) -> SaslAuthenticationFailedError:
        return failure_of(error, f"GSSAPI with {self._service}")


class GssapiServer:
    """The server's end. ``user`` is the local name of the client's principal."""

    is_slow: Final = True
    token_authenticated: Final = False
    expires_at_ms: Final = None

    def __init__(self, login: KerberosLogin, names: LocalNames) -> None:
        self._login = login
        self._names = names
        self._stage = _Stage.CONTEXT
        self._context: Any = None
        self.user: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        gssapi = gssapi_library()
        try:
            match self._stage:
                case _Stage.CONTEXT:
                    return self._establish(token, gssapi)
                case _Stage.LAYER:
                    if token:
                        raise SaslAuthenticationFailedError("GSSAPI: an empty message was expected")
                    return self._offer()
                case _Stage.END:
                    return self._finish(self._context.unwrap(token).message)
                case _:
                    raise SaslAuthenticationFailedError("GSSAPI: the exchange is complete")
        except gssapi.exceptions.GSSError as error:
            # The text may name principals and files of the broker.
            raise GssapiRefusalError(reason(error)) from None

    def _establish(self, token: bytes, gssapi: Any) -> bytes:
        if self._context is None:
            self._context = gssapi.SecurityContext(creds=self._login.accept(), usage="accept")
        answer: bytes | None = self._context.step(token)
        if not self._context.complete:
            return answer or b""
        self._stage = _Stage.LAYER
        return answer or self._offer()

    def _offer(self) -> bytes:
        self._stage = _Stage.END
        offer: bytes = self._context.wrap(_OFFER, False).message
        return offer

    def _finish(self, choice: bytes) -> bytes:
        # The rest is the authorization id. As in Kafka, the principal of the ticket counts, and nothing else.
        if len(choice) < 4 or choice[0] != _NO_LAYER:
            raise SaslAuthenticationFailedError("GSSAPI: the client chose a security layer, which Kafka does not have")
        principal = str(self._context.initiator_name)
        name = self._names.name(principal)
        if name is None:
            raise GssapiRefusalError(
                f"no rule of sasl.kerberos.principal.to.local.rules gives {principal} a simple name"
            )
        self._stage = _Stage.COMPLETE
        self.user = name
        return b""


class GssapiRefusalError(SaslAuthenticationFailedError):
    """The broker refuses a client. The client learns no reason; ``why`` is for the broker's log."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
        )
        self.why = why
