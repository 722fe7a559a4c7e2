"""Replacement of what a pattern matches, with Java's syntax of replacements (``java.util.regex.Matcher``).

``$1`` is a group, and takes further digits while such a group exists; ``${name}`` is a named group; a backslash makes
the next character literal. A group that took no part in the match is empty.
"""

from __future__ import annotations

import re


class JavaReplacement:
    """A replacement for the matches of ``pattern``.

    Raises:
        ValueError: the text names a group that the pattern does not have, or ends within a reference.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._pattern = pattern
        self._parts = tuple(_parse(pattern, text))

    def replace(self, text: str, *, count: int = 0) -> str:
        """Replace the first ``count`` matches in the text, or all of them, as ``String.replaceAll`` does."""
        return self._pattern.sub(self._expand, text, count=count)

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self._parts)


def _parse(pattern: re.Pattern[str], text: str) -> list[str | int]:
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\":
            if position == len(text):
                raise ValueError("a backslash at the end has no character to make literal")
            parts.append(text[position])
            position += 1
        elif character != "$":
            parts.append(character)
        elif named := re.compile(r"\{(\w+)\}").match(text, position):
            if named[1] not in pattern.groupindex:
                raise ValueError(f"the pattern has no group {named[1]!r}")
            parts.append(pattern.groupindex[named[1]])
            position = named.end()
        else:
            number, position = _group(pattern, text, position)
            parts.append(number)
    return parts


def _group(pattern: re.Pattern[str], text: str, position: int) -> tuple[int, int]:
    """Return the number of the group after a dollar sign, and the position behind it."""
    digits = re.compile(r"[0-9]+").match(text, position)
    if digits is None:
        raise ValueError("a dollar sign needs the number of a group, or a backslash before it")
    number, end = int(text[position]), position + 1
    if number > pattern.groups:
        raise ValueError(f"the pattern has no group {number}")
    while end < digits.end() and number * 10 + int(text[end]) <= pattern.groups:
        number = number * 10 + int(text[end])
        end += 1
    return number, end
