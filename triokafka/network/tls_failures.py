"""The failures of TLS that are final, and their error messages."""

from __future__ import annotations

import ssl
from typing import Final

from triokafka.errors import KafkaConnectionError, KafkaError, SecurityProtocolMismatchError, TlsAuthenticationError

_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons for an answer that is not TLS."""
_REFUSALS: Final = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_HANDSHAKE_FAILURE",
    "ALERT_PROTOCOL_VERSION",
    "ALERT_UNKNOWN_CA",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "NO_SHARED_CIPHER",
    "UNSUPPORTED_PROTOCOL",
)
"""Alerts of the peer, as the end of OpenSSL's names, after which another attempt cannot succeed."""


def handshake_error(name: str, error: ssl.SSLError, server_name: str) -> KafkaError | None:
    """Return the final error for a failed handshake with ``name``; None when another attempt may succeed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = getattr(error, "verify_message", None) or str(error)
        return TlsAuthenticationError(f"{name}: its certificate is refused for the name {server_name!r}: {why}")
    reason = getattr(error, "reason", None) or ""
    if reason in _NOT_TLS:
        return SecurityProtocolMismatchError(
            f"{name} does not answer with TLS: this listener is not SSL or SASL_SSL. Set security_protocol to"
            " PLAINTEXT or SASL_PLAINTEXT, or use another port"
        )
    return _refusal(name, reason)


def _refusal(name: str, reason: str) -> TlsAuthenticationError | None:
    if reason.endswith(_REFUSALS):
        return TlsAuthenticationError(f"{name} refused the TLS connection: {reason.lower().replace('_', ' ')}")
    return None


def broken_connection(what: str, error: Exception) -> KafkaError:
    """Return the error for a connection that broke, ``what``: final when the peer refused this end's certificate.

    With TLS 1.3 a client learns that only after its handshake.
    """
    if isinstance(error, ssl.SSLError):
        refusal = _refusal(what, getattr(error, "reason", None) or "")
        if refusal is not None:
            return refusal
    return KafkaConnectionError(f"{what}: {error}")
