"""Conversion of bytes to lines and of lines to records, for ``triokafka produce``. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import click

from triokafka.cli.user_classes import check_properties, imported, made, text_of, truth


class Item(NamedTuple):
    """The record of a line."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Reader = Callable[[bytes, int], Item]
"""Receives a line without its ending, and its number from 1. Raises `ValueError` for an unreadable line."""


class Lines:
    """Splits input into lines without their endings; the time is proportional to the length of a line.

    ``delimiter`` ends a line. Of a line above ``longest`` bytes it keeps only the length. Binary input without line
    endings therefore takes bounded memory.
    """

    def __init__(self, longest: int, delimiter: bytes = b"\n") -> None:
        self.longest = longest
        self._delimiter = delimiter
        self._cut = b""  # the start of a delimiter at the end of the input so far
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | int]:
        """Yield the lines that end in ``data``; the number of bytes for a line that is too long."""
        data, self._cut = self._cut + data, b""
        first, *others = data.split(self._delimiter)
        if not others:
            self._begin(self._without_cut(first))
            return []
        self._begin(first)
        whole = [line if len(line) <= self.longest else len(line) for line in others[:-1]]
        ended = [self.end(), *whole]
        self._begin(self._without_cut(others[-1]))
        return ended

    def end(self) -> bytes | int:
        """Return the unfinished line, empty if there is none, and start a new one."""
        self._begin(self._cut)
        self._cut = b""
        line = b"".join(self._begun) if self._size <= self.longest else self._size
        self._begun, self._size = [], 0
        return line

    def _without_cut(self, data: bytes) -> bytes:
        """Put aside what may be the start of a delimiter; return the data before it."""
        for size in range(min(len(self._delimiter) - 1, len(data)), 0, -1):
            if self._delimiter.startswith(data[-size:]):
                self._cut = data[-size:]
                return data[:-size]
        return data

    def _begin(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.longest:
            self._begun.clear()
        elif data:
            self._begun.append(data)


class LineReader:
    """Reads the line as the value, unless the properties select a key or headers.

    ``parse.key``: the key precedes the first ``key.separator`` (a tab). ``parse.headers``: headers precede
    the first ``headers.delimiter`` (a tab), separated by ``headers.separator`` (a comma); each is a name,
    ``headers.key.separator`` (a colon) and a value. ``null.marker`` is the text for a null key, value or header, and
    may be empty. A missing separator is an error; with ``ignore.error`` the line has no headers, the record no key, or
    the header a null value.
    """

    PROPERTIES: Final = frozenset(
        {
            "parse.key", "key.separator", "parse.headers", "headers.delimiter", "headers.separator",
            "headers.key.separator", "null.marker", "ignore.error",
        }
    )  # fmt: skip

    def __init__(self, properties: Mapping[str, str]) -> None:
        check_properties(properties, self.PROPERTIES)
        self._parses_key = truth(properties, "parse.key", default=False)
        self._parses_headers = truth(properties, "parse.headers", default=False)
        self._ignores_errors = truth(properties, "ignore.error", default=False)
        self._key_separator = text_of(properties, "key.separator", "\t")
        self._delimiter = text_of(properties, "headers.delimiter", "\t")
        self._header_separator = text_of(properties, "headers.separator", ",")
        self._header_key_separator = text_of(properties, "headers.key.separator", ":")
        self._null = text_of(properties, "null.marker", "") if "null.marker" in properties else None
        separators = (self._key_separator, self._delimiter, self._header_separator, self._header_key_separator)
        if not all(separators):
            raise click.UsageError("--property: a separator cannot be empty.")
        if self._parses_headers and len({*separators[1:]}) < 3:
            raise click.UsageError("--property: the separators of headers must differ.")
        if self._null in separators:
            raise click.UsageError("--property: null.marker must differ from the separators.")

    def __call__(self, line: bytes, number: int) -> Item:
        try:
            return self._parse(line)
        except ValueError as error:
            shown = line[:60].decode(errors="replace")
            raise ValueError(f"line {number}: {error} in {shown!r}") from None

    def _parse(self, line: bytes) -> Item:
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self._parses_headers:
            text, line = self._cut(line, self._delimiter, "end of headers")
            if text is not None and text != self._null:
                # As in Kafka's tool, separators at the end are skipped.
                parts = text.split(self._header_separator) if text else []
                while parts and not parts[-1]:
                    parts.pop()
                headers = tuple(map(self._header, parts))
        key: bytes | None = None
        if self._parses_key:
            key, line = self._cut(line, self._key_separator, "key separator")
        return Item(self._or_null(key), self._or_null(line), headers)

    def _header(self, text: bytes) -> tuple[str, bytes | None]:
        before, after = self._cut(text, self._header_key_separator, "separator of a header's name and value")
        name, value = (after, None) if before is None else (before, after)
        if name == self._null:
            raise ValueError("the name of a header is the null marker")
        try:
            return name.decode(errors="replace" if self._ignores_errors else "strict"), self._or_null(value)
        except UnicodeDecodeError:
            raise ValueError("the name of a header is not UTF-8") from None

    def _or_null(self, text: bytes | None) -> bytes | None:
        return None if text == self._null else text

    def _cut(self, text: bytes, separator: bytes, what: str) -> tuple[bytes | None, bytes]:
        """Return the text before the first separator and the text after it; without a separator, None and the text."""
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignores_errors:
            return None, text
        raise ValueError(f"no {what} ({separator.decode(errors='replace')!r})")


def make_reader(name: str | None, properties: Mapping[str, str]) -> Reader:
    """Create the line reader: ours, or a user's ``module:Class``, which receives the properties."""
    if name is None or name.rpartition(".")[2] == "LineMessageReader":
        return LineReader(properties)
    if ":" not in name:
        raise click.UsageError(f"--line-reader takes module:Class, not {name!r}.")
    reader: Reader = made("--line-reader", imported("--line-reader", name), properties)
    return reader


def nulling_reader(read: Reader, null: str | None) -> Reader:
    """Return a line reader whose keys, values and header values are null if they are the text ``null``."""
    if null is None:
        return read
    marker = null.encode()

    def nulled(line: bytes, number: int) -> Any:
        item = read(line, number)
        if not isinstance(item, Item):
            return item  # the caller reports it
        return item._replace(
            key=None if item.key == marker else item.key,
            value=None if item.value == marker else item.value,
            headers=tuple((name, None if value == marker else value) for name, value in item.headers),
        )

    return nulled
