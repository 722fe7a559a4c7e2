"""From a client's certificate to a principal: its distinguished name, and ``ssl.principal.mapping.rules`` (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
}
"""The attributes that RFC 2253 names; others appear by their number and encoding, as Java has it."""
_NUMBERS: Final = {
    "emailAddress": "1.2.840.113549.1.9.1",
    "serialNumber": "2.5.4.5",
    "title": "2.5.4.12",
    "givenName": "2.5.4.42",
    "surname": "2.5.4.4",
}
_IA5: Final = 0x16
_PRINTABLE: Final = 0x13
_UTF8: Final = 0x0C
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|(DEFAULT)")
_MOST_NAME: Final = 4096


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return the name of a certificate's ``subject``, as `ssl.SSLSocket.getpeercert` has it, by RFC 2253."""
    parts = ["+".join(_attribute(name, value) for name, value in relative) for relative in subject]
    return ",".join(reversed(parts))


def _attribute(name: str, value: str) -> str:
    short = _SHORT.get(name)
    if short is not None:
        return f"{short}={_escaped(value)}"
    number = _NUMBERS.get(name)
    if number is None:
        return f"{name}={_escaped(value)}"
    raw = value.encode()
    kind = _IA5 if name == "emailAddress" else _PRINTABLE if raw.isascii() else _UTF8
    length = bytes([len(raw)]) if len(raw) < 0x80 else b"\x82" + len(raw).to_bytes(2, "big")
    return f"{number}=#{(bytes([kind]) + length + raw).hex()}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


class PrincipalMapping:
    """The rules of a listener, in order; the first one that matches the whole name decides.

    Raises:
        ConfigurationError: a rule cannot be read.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules = tuple(_parse(rules))

    def principal(self, name: str) -> str:
        """Return the principal for a distinguished name; the name itself when no rule matches."""
        for rule in self._rules:
            if rule.pattern is None:
                return name
            match = rule.pattern.fullmatch(name[:_MOST_NAME])
            if match is None:
                continue
            mapped = _fill_in(rule.replacement, match)
            return mapped.lower() if rule.case == "L" else mapped.upper() if rule.case == "U" else mapped
        return name


def _fill_in(replacement: str, match: re.Match[str]) -> str:
    """Replace ``$1`` and so on by the groups of ``match``."""

    def group(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return match.group(number) or "" if number <= match.re.groups else ""

    return re.sub(r"\$(\d)", group, replacement)


def _parse(text: str) -> Iterable[_Rule]:
    position, rest = 0, text.strip()
    while position < len(rest):
        found: Any = _RULE.match(rest, position)
        if found is None:
            raise ConfigurationError(
                f"ssl.principal.mapping.rules: {rest[position:]!r} is no rule; expected"
                " RULE:pattern/replacement/[LU] or DEFAULT"
            )
        if found[4]:
            yield _Rule(None)
        else:
            try:
                pattern = re.compile(found[1].replace("\\/", "/"))
            except re.error as error:
                raise ConfigurationError(f"ssl.principal.mapping.rules: {found[1]!r} is no pattern: {error}") from None
            yield _Rule(pattern, found[2], found[3])
        position = found.end()
        rest_match = re.compile(r"\s*,\s*").match(rest, position)
        if rest_match is None and position < len(rest):
            raise ConfigurationError("ssl.principal.mapping.rules: rules are separated by commas")
        position = rest_match.end() if rest_match is not None else position
