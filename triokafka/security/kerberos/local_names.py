"""From a Kerberos principal to a user's name: ``sasl.kerberos.principal.to.local.rules``, as in Kafka and Hadoop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.java_replacement import JavaReplacement

_RULE: Final = re.compile(
    r"DEFAULT|RULE:\[(?P<count>\d+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PART: Final = re.compile(r"\$([0-9]*)")
_PRINCIPAL: Final = re.compile(r"(?P<primary>[^/@]+)(?:/(?P<instance>[^/@]+))?(?:@(?P<realm>[^/@]+))?")


class _Rule(NamedTuple):
    """One rule; without a ``format`` it is DEFAULT."""

    components: int = 0
    format: str | None = None
    match: re.Pattern[str] | None = None
    replacement: JavaReplacement | None = None
    everywhere: bool = False
    case: str = ""


class LocalNames:
    """The rules of a listener, in order. The first one that applies decides.

    Raises:
        ConfigurationError: a rule cannot be read.
    """

    def __init__(self, rules: str, default_realm: str) -> None:
        self._rules = tuple(_parse(rules))
        self._default_realm = default_realm

    def name(self, principal: str) -> str | None:
        """Return the name for ``primary/instance@REALM``; None if no rule applies or the name is not simple."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            return None
        primary, instance, realm = found["primary"], found["instance"], found["realm"]
        if realm is None:
            return primary if instance is None else None
        parts = [realm, primary] if instance is None else [realm, primary, instance]
        for rule in self._rules:
            name = self._apply(rule, parts)
            if name is not None:
                # A name with a realm or an instance would be another principal's.
                return None if "/" in name or "@" in name else name
        return None

    def _apply(self, rule: _Rule, parts: Sequence[str]) -> str | None:
        if rule.format is None:
            return parts[1] if parts[0] == self._default_realm else None
        if len(parts) - 1 != rule.components:
            return None
        name = _PART.sub(lambda at: parts[int(at[1])], rule.format)
        if rule.match is not None and rule.match.fullmatch(name) is None:
            return None
        if rule.replacement is not None:
            name = rule.replacement.replace(name, count=0 if rule.everywhere else 1)
        return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name


def _parse(text: str) -> Iterable[_Rule]:
    position, rest = 0, text.strip()
    while position < len(rest):
        found = _RULE.match(rest, position)
        if found is None:
            raise ConfigurationError(
                f"sasl.kerberos.principal.to.local.rules: {rest[position:]!r} is not a rule; expected DEFAULT or"
                " RULE:[n:string](regexp)s/pattern/replacement/g/L"
            )
        if found["format"] is None:
            yield _Rule()
        else:
            if any(not at or int(at) > int(found["count"]) for at in _PART.findall(found["format"])):
                raise ConfigurationError(
                    f"sasl.kerberos.principal.to.local.rules: {found[0]!r} names a part that its principals do not have"
                )
            try:
                match = re.compile(found["match"]) if found["match"] else None
                pattern = re.compile(found["pattern"]) if found["pattern"] else None
                replacement = None if pattern is None else JavaReplacement(pattern, found["replacement"])
            except re.error as error:
                raise ConfigurationError(
                    f"sasl.kerberos.principal.to.local.rules: {found[0]!r} has no pattern: {error}"
                ) from None
            except ValueError as error:
                raise ConfigurationError(f"sasl.kerberos.principal.to.local.rules: {found[0]!r}: {error}") from None
            yield _Rule(
                int(found["count"]), found["format"], match, replacement, bool(found["all"]), found["case"] or ""
            )
        position = found.end()
        comma = re.compile(r"\s*,\s*").match(rest, position)
        if comma is None and position < len(rest):
            raise ConfigurationError("sasl.kerberos.principal.to.local.rules: rules are separated by commas")
        position = position if comma is None else comma.end()
