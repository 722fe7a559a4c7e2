"""Whom a certificate names: its subject and its alternative names, compared as Kafka compares them (KIP-226)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_OCTETS: Final = 0x04
_TEXTS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""Tags in DER of the types that Java takes for text. It reads them as UTF-8, whatever they are."""
_ALTERNATIVE_NAMES: Final = bytes.fromhex("0603551d11")
_END: Final = "-----END CERTIFICATE-----"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"


class CertificateIdentity(NamedTuple):
    """The subject as attributes with values in lower case, and the alternative names in their encoded form."""

    subject: tuple[tuple[bytes, bytes], ...]
    alternative_names: frozenset[bytes]


def identity_of(chain: bytes) -> CertificateIdentity:
    """Return the identity of the first certificate in PEM. Raises `ConfigurationError`."""
    text = chain.decode("ascii", "replace")
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise ConfigurationError("there is no certificate in PEM")
    try:
        return _identity(ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)] + "\n"))
    except (ValueError, IndexError):
        raise ConfigurationError("the certificate cannot be read") from None


def subject_of(certificate: bytes) -> bytes:
    """Return the subject of a certificate; both in DER. Raises `ValueError` or `IndexError` if it is damaged."""
    return _fields(certificate)[4]


def attributes_of(name: bytes) -> list[list[tuple[bytes, bytes]]]:
    """Return the parts of a name in DER, each with its attributes: the content of the identifier, and the value."""
    parts = []
    for relative in _elements(_content(name)):
        pairs = (tuple(_elements(_content(attribute))) for attribute in _elements(_content(relative)))
        parts.append([(_content(kind), value) for kind, value in pairs])
    return parts


def text_of(value: bytes) -> str | None:
    """Return the text of a value in DER, as Java reads it; None if it is not text there."""
    return _content(value).decode("utf-8", "replace") if value[0] in _TEXTS else None


def dotted(kind: bytes) -> str:
    """Return an object identifier, given its content in DER, as numbers with dots."""
    numbers, number = [], 0
    for byte in kind:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _fields(certificate: bytes) -> list[bytes]:
    """Return the fields of a certificate after the version."""
    (signed, *_) = _elements(_content(certificate))
    fields = list(_elements(_content(signed)))
    return fields[1:] if fields[0][0] == _VERSION else fields


def _identity(certificate: bytes) -> CertificateIdentity:
    fields = _fields(certificate)
    names = [
        (kind, b" ".join(_content(value).lower().split())) for part in attributes_of(fields[4]) for kind, value in part
    ]
    alternatives: frozenset[bytes] = frozenset()
    for field in fields[5:]:
        if field[0] == _EXTENSIONS:
            (extensions,) = _elements(_content(field))
            for extension in _elements(_content(extensions)):
                parts = list(_elements(_content(extension)))
                if parts[0] == _ALTERNATIVE_NAMES and parts[-1][0] == _OCTETS:
                    alternatives = frozenset(_elements(_content(_content(parts[-1]))))
    return CertificateIdentity(tuple(names), alternatives)


def _elements(data: bytes) -> Iterator[bytes]:
    """Yield the DER elements in ``data``, each with its header."""
    position = 0
    while position < len(data):
        start, size = _measure(data, position)
        yield data[position : start + size]
        position = start + size


def _content(element: bytes) -> bytes:
    start, size = _measure(element, 0)
    return element[start : start + size]


def _measure(data: bytes, position: int) -> tuple[int, int]:
    """Return where the content of the element at ``position`` begins, and its size."""
    size = data[position + 1]
    if size < 0x80:
        return position + 2, size
    count = size & 0x7F
    start = position + 2 + count
    return start, int.from_bytes(data[position + 2 : start], "big")
