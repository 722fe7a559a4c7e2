"""Recognise servers that do not speak Kafka's protocol by their first bytes. For error messages only."""

from __future__ import annotations

from typing import Final

_TLS_ALERT: Final = 0x15
_TLS_HANDSHAKE: Final = 0x16
_SHOWN: Final = 40


def describe_foreign_protocol(first: bytes) -> str | None:
    """Describe the server that sent ``first`` instead of a response; None when it may be a Kafka broker.

    A response begins with its size. No broker's first response is so large that its size consists of printable bytes.
    """
    if first[:4] == b"HTTP":
        return f"answered with {_readable(first)}: that is a web server. Is this port a Kafka listener?"
    if is_tls(first):
        return (
            f"answered with a TLS {'alert' if first[0] == _TLS_ALERT else 'record'}: this listener expects TLS"
            " (security_protocol SSL or SASL_SSL)"
        )
    if first[:4] == b"SSH-":
        return f"answered with {_readable(first)}: that is an SSH server. Is this port a Kafka listener?"
    if len(first) >= 4 and all(0x20 <= byte < 0x7F or byte in b"\r\n\t" for byte in first[:4]):
        return f"answered with {_readable(first)}, which is not Kafka's protocol. Is this port a Kafka listener?"
    return None


def is_tls(first: bytes) -> bool:
    """Whether these first bytes are a TLS alert or handshake."""
    return first[:1] in (bytes([_TLS_ALERT]), bytes([_TLS_HANDSHAKE])) and first[1:2] == b"\x03"


def _readable(first: bytes) -> str:
    line = first.split(b"\r\n")[0].split(b"\n")[0][:_SHOWN]
    return repr(line.decode("ascii", "backslashreplace"))
