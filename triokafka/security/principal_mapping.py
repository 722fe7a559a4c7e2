"""From a client's certificate to a principal: its distinguished name, and ``ssl.principal.mapping.rules`` (KIP-371)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.certificate_identity import attributes_of, dotted, text_of
from triokafka.security.java_replacement import JavaReplacement

_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 names; others appear by their number and encoding, as Java has it."""
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|(DEFAULT)")
_MOST_NAME: Final = 4096
"""Longest name that rules are applied to: bounds the time of a pattern that backtracks."""


def distinguished_name(name: bytes) -> str:
    """Return a name in DER, such as that of a certificate's subject, by RFC 2253."""
    parts = ["+".join(_attribute(dotted(kind), value) for kind, value in part) for part in attributes_of(name)]
    return ",".join(reversed(parts))


def _attribute(kind: str, value: bytes) -> str:
    short, text = _SHORT.get(kind), text_of(value)
    if short is None or text is None:
        return f"{short or kind}=#{value.hex()}"
    return f"{short}={_escaped(text)}"


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;=#])', r"\\\1", value)  # more than RFC 2253 demands, as in Java
    text = text.replace("\0", "\\00")
    return re.sub("^ +| +$", lambda spaces: "\\ " * len(spaces[0]), text)


class _Rule(NamedTuple):
    """One rule; without a ``pattern`` it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: JavaReplacement | None = None
    case: str = ""


class PrincipalMapping:
    """The rules of a listener, in order; the first one that matches the whole name decides.

    Raises:
        ConfigurationError: a rule cannot be read.
    """

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules = tuple(_parse(rules))

    def principal(self, name: str) -> str | None:
        """Return the principal for a distinguished name; None when no rule applies, as for a name that is too long."""
        if len(name) > _MOST_NAME:
            return None
        for rule in self._rules:
            if rule.pattern is None or rule.replacement is None:
                return name
            if rule.pattern.fullmatch(name) is not None:
                # As in Kafka, the whole name must match, and then each match within it is replaced.
                mapped = rule.replacement.replace(name)
                return mapped.lower() if rule.case == "L" else mapped.upper() if rule.case == "U" else mapped
        return None


def _parse(text: str) -> Iterable[_Rule]:
    position, rest = 0, text.strip()
    while position < len(rest):
        found: Any = _RULE.match(rest, position)
        if found is None:
            raise ConfigurationError(
                f"ssl.principal.mapping.rules: {rest[position:]!r} is not a rule; expected"
                " RULE:pattern/replacement/[LU] or DEFAULT"
            )
        if found[4]:
            yield _Rule()
        else:
            try:
                pattern = re.compile(found[1])
                replacement = JavaReplacement(pattern, found[2])
            except re.error as error:
                raise ConfigurationError(
                    f"ssl.principal.mapping.rules: {found[1]!r} is not a pattern: {error}"
                ) from None
            except ValueError as error:
                raise ConfigurationError(f"ssl.principal.mapping.rules: {found[0]!r}: {error}") from None
            yield _Rule(pattern, replacement, found[3])
        position = found.end()
        rest_match = re.compile(r"\s*,\s*").match(rest, position)
        if rest_match is None and position < len(rest):
            raise ConfigurationError("ssl.principal.mapping.rules: rules are separated by commas")
        position = rest_match.end() if rest_match is not None else position
