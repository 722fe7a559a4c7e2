"""The partitions of a read: given one by one, by topic, or by a topic pattern. No I/O.

Patterns have Java's syntax, like option ``subscribePattern`` of Spark's own connector, and must match the whole name.
Syntax that differs in Python is translated; syntax without an equivalent in Python is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from triokafka.errors import ConfigurationError
from triokafka.structs import TopicPartition
from triokafka.topic_names import INTERNAL_TOPICS

_POSIX: Final = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7F", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": re.escape("!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~") + r"\\", "XDigit": "0-9a-fA-F", "Blank": r" \t",
    "Space": r" \t\n\x0B\f\r", "Cntrl": r"\x00-\x1F\x7F", "Graph": r"\x21-\x7E", "Print": r"\x20-\x7E",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions (``assign``)."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics to describe; None for all."""
        return tuple(dict.fromkeys(partition.topic for partition in self.partitions))

    def choose(self, known: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
        """Return the chosen partitions that exist among ``known`` topics and partitions, in order."""
        present = {TopicPartition(topic, number) for topic, numbers in known.items() for number in numbers}
        return [partition for partition in self.partitions if partition in present]

    def __str__(self) -> str:
        return f"Assign[{', '.join(map(str, self.partitions))}]"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics (``subscribe``)."""

    names: tuple[str, ...]

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics to describe; None for all."""
        return self.names

    def choose(self, known: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
        """Return the topics' partitions among ``known`` topics and partitions, in order."""
        wanted = set(self.names)
        return sorted(TopicPartition(topic, number) for topic in wanted & set(known) for number in known[topic])

    def __str__(self) -> str:
        return f"Subscribe[{', '.join(self.names)}]"


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of topics whose whole name matches (``subscribePattern``), except Kafka's internal topics.

    Raises:
        ConfigurationError: the pattern is invalid in Java, or has no equivalent in Python.
    """

    pattern: str

    def __post_init__(self) -> None:
        self._compiled()

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics to describe; None for all."""
        return None

    def choose(self, known: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
        """Return the matching topics' partitions among ``known`` topics and partitions, in order."""
        matches = self._compiled().fullmatch
        return sorted(
            TopicPartition(topic, number)
            for topic, numbers in known.items()
            if topic not in INTERNAL_TOPICS and matches(topic)
            for number in numbers
        )

    def _compiled(self) -> re.Pattern[str]:
        return java_pattern(self.pattern)

    def __str__(self) -> str:
        return f"SubscribePattern[{self.pattern}]"


Topics = Assign | Subscribe | SubscribePattern
"""The partitions that a read is about."""


def java_pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a pattern of ``java.util.regex`` for Python.

    ``\Q…\E``, ``\p{Alnum}`` and similar classes, ``(?<name>…)``, ``\k<name>``, ``\h``, ``\z`` and ``\0101`` are
    translated. ``\d``, ``\s``, ``\w`` and ``\b`` match ASCII only, as in Java.

    Raises:
        ConfigurationError: the pattern is invalid, or has no equivalent in Python; docs/spark.md lists such syntax.
    """
    try:
        return re.compile(_translate(pattern), re.ASCII)
    except (re.error, ValueError) as error:
        raise ConfigurationError(
            f"Option 'subscribePattern' is not a pattern that can be used: '{pattern}': {error}"
        ) from None


def _translate(pattern: str) -> str:
    done: list[str] = []
    at, depth = 0, 0  # depth: nesting of character classes
    while at < len(pattern):
        rest = pattern[at:]
        if rest.startswith("\\Q"):
            text, _, _ = rest[2:].partition("\\E")
            done.append(re.escape(text))
            at += 2 + len(text) + 2
        elif rest.startswith(("\\p{", "\\P{")):
            name, closed, _ = rest[3:].partition("}")
            if not closed:
                raise ValueError(f"{rest[:3]} is not closed")
            done.append(_property(name.removeprefix("Is"), negated=rest[1] == "P", within=depth > 0))
            at += 3 + len(name) + 1
        elif rest.startswith("\\"):
            escaped, width = _escape(rest, within=depth > 0)
            done.append(escaped)
            at += width
        elif not depth and rest.startswith("(?<") and not rest.startswith(("(?<=", "(?<!")):
            done.append("(?P<")
            at += 3
        elif depth and rest.startswith("&&"):
            raise ValueError("intersections of character classes (&&) cannot be used here")
        elif rest[0] == "[":
            if depth:
                raise ValueError("character classes within character classes cannot be used here")
            depth += 1
            # In both languages, a closing bracket right after the opening one is a literal character.
            opening = re.match(r"\[\^?\]?", rest)
            assert opening is not None
            done.append(opening[0])
            at += len(opening[0])
        else:
            depth -= depth > 0 and rest[0] == "]"
            done.append(rest[0])
            at += 1
    return "".join(done)


def _property(name: str, *, negated: bool, within: bool) -> str:
    if name not in _POSIX:
        raise ValueError(f"\\p{{{name}}} cannot be used here; known are {', '.join(_POSIX)}")
    if not within:
        return f"[{'^' if negated else ''}{_POSIX[name]}]"
    if negated:
        raise ValueError(f"\\P{{{name}}} within a character class cannot be used here")
    return _POSIX[name]


def _escape(rest: str, *, within: bool) -> tuple[str, int]:
    """Return the translation of the escape at the start of ``rest``, and the length of the escape."""
    if rest.startswith("\\k<"):
        name = rest[3:].partition(">")[0]
        return f"(?P={name})", 3 + len(name) + 1
    if octal := re.match(r"\\0([0-3]?[0-7]{1,2})", rest):
        return f"\\x{int(octal[1], 8):02x}", len(octal[0])
    if rest.startswith(("\\b{", "\\0")):
        raise ValueError(f"{rest[:3]} cannot be used here")
    known = {"\\z": "\\Z", "\\h": r" \t\xA0" if within else r"[ \t\xA0]", "\\e": "\\x1B"}
    return known.get(rest[:2], rest[:2]), 2
