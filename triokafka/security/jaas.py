"""JAAS, Java's login configuration: the text of ``sasl.jaas.config`` (KIP-85), and files with several sections.

The JAAS file of a process is what the system property ``java.security.auth.login.config`` is for Java. An option names
it, or the environment variable ``TRIOKAFKA_JAAS_FILE``. A section is for clients (``KafkaClient``), for all listeners
of a broker (``KafkaServer``), or for one (``internal.KafkaServer``). Texts of ``sasl.jaas.config`` win.

Both have Java's syntax: comments, quoted values with backslashes, and values without quotes. Errors name the place by
line and column, and never show the text, because it contains passwords.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.named_tuple import NamedTuple
from triokafka.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from triokafka.security.secret import Secret, reveal
from triokafka.world.os_storage import OsStorage

OPTION: Final = "java.security.auth.login.config"
VARIABLE: Final = "TRIOKAFKA_JAAS_FILE"
CLIENT_SECTION: Final = "KafkaClient"
SERVER_SECTION: Final = "KafkaServer"

LOGIN_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": (SCRAM_SHA_256, SCRAM_SHA_512),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "Krb5LoginModule": ("GSSAPI",),
}
"""The mechanisms that each login module of Kafka is for, by its name without the package."""

_BLANK: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""(?P<quote>["'])(?P<quoted>(?:(?!(?P=quote))[^\\\n]|\\[^\n])*)(?P=quote)|(?P<word>[^\s"'=;{}]+)|(?P<mark>[=;{}])"""
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_LONGEST: Final = 1 << 20


class LoginModule(NamedTuple):
    """The name of a login module without its package, and its options. Values of options are secret."""

    name: str
    options: Mapping[str, str]


class _Token(NamedTuple):
    """A word, a quoted text (``is_text``) or a mark, and its place in the text."""

    text: str
    at: int
    is_text: bool = False


def parse_jaas(text: str, *, source: str = "sasl.jaas.config") -> LoginModule:
    """Return the one login module of ``text``.

    Raises:
        ConfigurationError: the text is not ``class flag name="value" …;``. The message names ``source`` and the place.
    """
    parser = _Parser(reveal(text), source)
    module = parser.module()
    if parser.peek() is not None:
        raise parser.error("expected the end, because there is one login module only")
    return module


def parse_jaas_file(text: str, *, source: str) -> dict[str, tuple[LoginModule, ...]]:
    """Return the sections of a JAAS file: ``KafkaServer { module flag name="value" …; … };``.

    A section may be empty, as in Java: files of brokers often have ``Client {};``.

    Raises:
        ConfigurationError: the text has another form. The message names ``source`` and the place.
    """
    parser = _Parser(reveal(text), source)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while (start := parser.peek()) is not None:
        name = parser.word("the name of a section")
        if name in sections:
            raise parser.error("this section is there twice", start)
        parser.mark("{")
        modules = []
        while (following := parser.peek()) is not None and (following.text != "}" or following.is_text):
            modules.append(parser.module())
        parser.mark("}")
        parser.mark(";")
        sections[name] = tuple(modules)
    return sections


def named_file(option: str | None) -> str | None:
    """Return the path of the JAAS file: the option's, or the environment's; None without both."""
    return option or os.environ.get(VARIABLE, "").strip() or None


def login_module(
    option: str | None, sections: Collection[str], mechanism: str, *, option_name: str = OPTION
) -> LoginModule | None:
    """Return the login module for ``mechanism`` of the first section that the JAAS file has; None without a file.

    The file belongs to the process, as the environment does, and not to any world.

    Args:
        option: the path that the option ``option_name`` names.
        sections: the names of sections, the preferred one first.

    Raises:
        ConfigurationError: the file cannot be read or is malformed, or the option names it and it has no such section.
    """
    path = named_file(option)
    if path is None:
        return None
    source = f"{option_name if option else VARIABLE}: the JAAS file {path}"
    try:
        text = OsStorage().read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{source} cannot be read: {why}") from None
    found = parse_jaas_file(text, source=source)
    for section in sections:
        if section in found:
            return next((one for one in found[section] if mechanism in LOGIN_MODULES.get(one.name, ())), None)
    if option:
        raise ConfigurationError(f"{source} has no section {' or '.join(sections)}")
    return None


class _Parser:
    """Reads the tokens of one text in turn."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text[:_LONGEST]
        self._source = source
        self._at = 0
        self._next: _Token | None = None
        self._read()

    def peek(self) -> _Token | None:
        """Return the next token; None at the end."""
        return self._next

    def module(self) -> LoginModule:
        """Read a login module with its flag, its options and its semicolon."""
        name = self.word("the class of a login module")
        flag = self._next
        if self.word("a flag").lower() not in _FLAGS:
            raise self.error(f"expected one of {', '.join(_FLAGS)}", flag)
        options: dict[str, str] = {}
        while (token := self._next) is not None and (token.text != ";" or token.is_text):
            option = self.word('the name of an option, or ";"')
            self.mark("=")
            options[option] = Secret(self._value())
        self.mark(";")
        return LoginModule(name.rpartition(".")[2], options)

    def word(self, what: str) -> str:
        """Read a word."""
        token = self._next
        if token is None or (token.text in ("=", ";", "{", "}") and not token.is_text):
            raise self.error(f"expected {what}")
        self._read()
        return token.text

    def mark(self, mark: str) -> None:
        """Read one of the marks ``= ; { }``."""
        token = self._next
        if token is None or token.text != mark or token.is_text:
            raise self.error(f'expected "{mark}"')
        self._read()

    def _value(self) -> str:
        token = self._next
        if token is not None and token.is_text:
            self._read()
            return token.text
        return self.word("a value")

    def error(self, problem: str, token: _Token | None = None) -> ConfigurationError:
        """Return the error for ``token``; without one, for the next token, or the end."""
        token = token or self._next
        at = len(self._text.rstrip()) if token is None else token.at
        return self._error_at(at, problem + ("" if token is not None else " before the end"))

    def _error_at(self, at: int, problem: str) -> ConfigurationError:
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        return ConfigurationError(f"{self._source}: line {line}, column {column}: {problem}")

    def _read(self) -> None:
        blank = _BLANK.match(self._text, self._at)
        at = self._at if blank is None else blank.end()
        if at == len(self._text):
            self._next = None
            return
        match = _TOKEN.match(self._text, at)
        if match is None:
            raise self._error_at(at, "this quotation mark has no end in its line")
        if match["word"] is not None and "/*" in match["word"]:
            raise self._error_at(at, "this comment has no end")
        self._at = match.end()
        if match["quote"] is not None:
            self._next = _Token(_ESCAPE.sub(_unescaped, match["quoted"]), at, is_text=True)
        else:
            self._next = _Token(match["word"] or match["mark"], at)


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter, 8)) if letter[0] in "01234567" else _ESCAPED.get(letter, letter)
