"""Names of ciphers: Java's, which are those of the IANA, become OpenSSL's."""

from __future__ import annotations

import re
import ssl
from typing import Final

_JAVA: Final = re.compile(r"TLS_(?P<exchange>\w+)_WITH_(?P<cipher>\w+)")
_TLS_1_3: Final = re.compile(r"TLS_(?!.*_WITH_)\w+")
_AES: Final = re.compile(r"AES_(?P<bits>128|256)_(?:CBC_|(?P<mode>GCM|CCM)_?)(?P<rest>8|SHA\d*)?")
_CHACHA: Final = "CHACHA20_POLY1305_SHA256"


class UnknownCipherError(ValueError):
    """OpenSSL does not have a cipher."""


def choose_ciphers(context: ssl.SSLContext, names: str) -> None:
    """Limit a context to ciphers with Java's or OpenSSL's names, with commas or colons between them.

    Python's ``ssl`` cannot choose among the ciphers of TLS 1.3: all of them stay. A list that has only such ciphers
    leaves TLS 1.3 alone, as in Java.

    Raises:
        UnknownCipherError: a name is unknown; as with OpenSSL, one of several of OpenSSL's names may be.
    """
    chosen = []
    given = [name for name in re.split(r"[,:\s]+", names) if name]
    for name in given:
        if _TLS_1_3.fullmatch(name):
            continue
        java = _JAVA.fullmatch(name)
        if java is None:
            chosen.append(name)
            continue
        translated = _openssl_name(java["exchange"], java["cipher"])
        if translated is None or not _is_known(translated):
            raise UnknownCipherError(f"OpenSSL has no cipher {name}")
        chosen.append(translated)
    if not chosen and given:
        if context.maximum_version == ssl.TLSVersion.TLSv1_2:
            raise UnknownCipherError("all of these are for TLS 1.3, which is not enabled")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError:
        raise UnknownCipherError("OpenSSL knows none of these (names as in Java or 'openssl ciphers')") from None


def _openssl_name(exchange: str, cipher: str) -> str | None:
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    if cipher == _CHACHA:
        return "-".join([*parts, "CHACHA20-POLY1305"])
    found = _AES.fullmatch(cipher)  # Java has no others
    if found is None:
        return None
    mode, rest = found["mode"], found["rest"]
    if mode == "CCM":  # its short form is CCM8
        mode, rest = mode + (rest or ""), None
    return "-".join([*parts, f"AES{found['bits']}", *(part for part in (mode, rest) if part)])


def _is_known(name: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(name)
    except ssl.SSLError:
        return False
    return True
