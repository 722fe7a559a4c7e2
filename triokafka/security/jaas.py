"""The text of ``sasl.jaas.config``: a login module, a flag, and options (KIP-85)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.secret import Secret, reveal

_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"=;]+)|([=;]))', re.DOTALL)
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class LoginModule(NamedTuple):
    """The name of a login module without its package, and its options. Values of options are secret."""

    name: str
    options: Mapping[str, str]


def parse_jaas(text: str, *, source: str = "sasl.jaas.config") -> LoginModule:
    """Return the one login module of ``text``.

    Raises:
        ConfigurationError: the text is not ``class flag name="value" …;``. The message shows no value.
    """
    tokens: list[str] = []
    raw = reveal(text).strip()
    at = 0
    while at < len(raw):
        match = _TOKEN.match(raw, at)
        if match is None:
            raise ConfigurationError(f"{source}: cannot be read at character {at}; is a quotation mark missing?")
        quoted, word, mark = match.groups()
        tokens.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else word or mark)
        at = match.end()
    if not tokens or tokens[-1] != ";":
        raise ConfigurationError(f"{source}: the text must end with a semicolon")
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS:
        raise ConfigurationError(f"{source}: expected a login module and one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3 or any(rest[i + 1] != "=" for i in range(0, len(rest), 3)):
        raise ConfigurationError(f'{source}: after the login module and its flag, options are name="value"')
    for i in range(0, len(rest), 3):
        options[rest[i]] = Secret(rest[i + 2])
    return LoginModule(tokens[0].rpartition(".")[2], options)
