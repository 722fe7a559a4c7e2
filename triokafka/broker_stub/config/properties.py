"""Parser and formatter of ``.properties`` files: ``server.properties`` and ``meta.properties``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from triokafka.errors import ConfigurationError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"
_LINE_ENDS: Final = re.compile("\r\n|\r|\n")  # str.splitlines also splits at other characters


def parse_properties(text: str, *, source: str = "properties") -> dict[str, str]:
    """Parse the keys and values of a file. The last value of a repeated key applies.

    A backslash at its end continues a line; ``#`` and ``!`` begin a comment; ``=``, ``:`` or blanks separate key and
    value.

    Raises:
        ConfigurationError: an escape is malformed. The message contains the line number.
    """
    result: dict[str, str] = {}
    number = 0
    lines = iter(_LINE_ENDS.split(text))
    for line in lines:
        number += 1
        first = number
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            number += 1
            line = line[:-1] + next(lines, "").lstrip(_BLANK)
        try:
            key, value = _split(line)
        except ValueError as error:
            raise ConfigurationError(f"{source}, line {first}: {error}") from None
        result[key] = value
    return result


def format_properties(values: Mapping[str, str], *, comment: str = "") -> str:
    """Format keys and values, in their order, as the text of a file."""
    head = f"#{comment}\n" if comment else ""
    return head + "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items())


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            try:
                parts.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(f"\\u must be followed by four hexadecimal digits, not {digits!r}") from None
            position += 4
        else:
            parts.append(_ESCAPES.get(character, character))
    return "".join(parts)


def _escape(text: str, *, key: bool = False) -> str:
    special = "\\=:#!" + (_BLANK if key else "")
    escaped = "".join("\\" + c if c in special else c for c in text)
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, "\\" + letter)
    return "\\" + escaped if escaped[:1] == " " else escaped
