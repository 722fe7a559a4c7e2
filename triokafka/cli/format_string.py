r"""kcat's format strings: ``%k %s %o\n``, for printing records and for reading them from lines. Pure.

| token | printed | read |
| --- | --- | --- |
| ``%t`` | topic | must be the topic |
| ``%p`` | partition | partition |
| ``%o`` | offset | skipped |
| ``%k`` | key | key |
| ``%K`` | length of the key in bytes, -1 for null | -1 for a null key |
| ``%s`` | value | value |
| ``%S`` | length of the value in bytes, -1 for null | -1 for a null value |
| ``%R`` | length of the value as four bytes, big endian | not possible |
| ``%T`` | timestamp in milliseconds | timestamp |
| ``%h`` | headers, ``a=1,b=2`` | headers |
| ``%%`` | a percent sign | a percent sign |

Escapes are ``\n``, ``\r``, ``\t``, ``\\`` and ``\xNN``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.line_reader import Item, Reader

if TYPE_CHECKING:
    from triokafka.cli.record_codecs import Decode, Encode
    from triokafka.records import ConsumerRecord

TOKENS: Final = "tpokKsSRTh"
_NOT_READ: Final = "R"
_PARTS: Final = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)|([^%\\]+)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}

_MOST_DIGITS: Final = 19
_LARGEST: Final = {"p": 2**31 - 1, "T": 2**63 - 1}
"""The largest partition and the largest timestamp."""

Part = bytes | str
"""Literal bytes, or the letter of a token."""


def parse(option: str, text: str) -> list[Part]:
    """Split a format into literals and tokens.

    Raises:
        UsageError: an unknown token, or an incomplete escape.
    """
    found: list[Part] = []

    def literal(data: bytes) -> None:
        if found and isinstance(found[-1], bytes):
            found[-1] += data
        else:
            found.append(data)

    for match in _PARTS.finditer(text):
        token, escape, plain = match.groups()
        if plain is not None:
            literal(plain.encode())
        elif escape is not None:
            if escape[:1] == "x" and len(escape) == 3:
                literal(bytes([int(escape[1:], 16)]))
            elif escape in _ESCAPES:
                literal(_ESCAPES[escape])
            else:
                raise click.UsageError(
                    f"{option}: \\{escape} is not an escape; known are \\n, \\r, \\t, \\\\ and \\xNN."
                )
        elif token == "%":
            literal(b"%")
        elif token and token in TOKENS:
            found.append(token)
        else:
            raise click.UsageError(
                f"{option}: there is no token %{token}; known are {' '.join(f'%{one}' for one in TOKENS)} and %%."
            )
    if not found:
        raise click.UsageError(f"{option}: the format is empty.")
    return found


class FormatFormatter:
    """Prints records by a format string.

    Args:
        text: the format.
        key, value: decode what ``%k`` and ``%s`` print.
        null: printed for a null key, value or header value; kcat prints nothing.
    """

    def __init__(self, text: str, key: Decode | None = None, value: Decode | None = None, *, null: bytes = b"") -> None:
        shown: Mapping[str, Callable[[Any], bytes]] = {
            "t": lambda record: record.topic.encode(),
            "p": lambda record: b"%d" % record.partition,
            "o": lambda record: b"%d" % record.offset,
            "k": lambda record: null if record.key is None else as_bytes(record.key, key),
            "K": lambda record: b"%d" % _size(record.key),
            "s": lambda record: null if record.value is None else as_bytes(record.value, value),
            "S": lambda record: b"%d" % _size(record.value),
            "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
            "T": lambda record: b"%d" % record.timestamp,
            "h": lambda record: b",".join(
                name.encode() + b"=" + (null if data is None else bytes(data)) for name, data in record.headers
            ),
        }
        self._parts = [part if isinstance(part, bytes) else shown[part] for part in parse("--format", text)]

    def __call__(self, record: ConsumerRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in self._parts)


class FormatReader:
    """Reads a record from each line by a format string, which `FormatFormatter` may have printed.

    A literal ends the token before it. The literal at the end of the format is the end of the line and may be absent.

    Raises:
        UsageError: the format cannot be read: two tokens without a literal between them, a token twice, or no value.
    """

    def __init__(self, text: str, topic: str) -> None:
        self._topic = topic.encode()
        parts = parse("--format", text)
        tokens = [part for part in parts if isinstance(part, str)]
        if isinstance(parts[-1], bytes):
            parts[-1] = parts[-1].removesuffix(b"\n")
            if not parts[-1]:
                parts.pop()
        twice = sorted({token for token in tokens if tokens.count(token) > 1})
        beside = [one for one, after in pairwise(parts) if isinstance(one, str) and isinstance(after, str)]
        inside = [part for part in parts if isinstance(part, bytes) and b"\n" in part]
        problem = (
            f"%{twice[0]} occurs twice" if twice
            else "two tokens need a separator between them" if beside
            else "%R is binary and cannot be read from lines" if _NOT_READ in tokens
            else "a line ends at \\n, which may stand only at the end" if inside
            else "it has neither %s nor %k" if not {"s", "k"} & set(tokens)
            else ""
        )  # fmt: skip
        if problem:
            raise click.UsageError(f"--format: {problem}.")
        self._parts = parts

    def __call__(self, line: bytes, number: int) -> Item:
        found = self._split(line, number)
        key, value = found.get("k"), found.get("s")
        if found.get("K") == b"-1":
            key = None
        if found.get("S") == b"-1":
            value = None
        if "t" in found and found["t"] != self._topic:
            raise ValueError(f"line {number}: it is for topic {found['t'].decode(errors='replace')!r}")
        return Item(
            key,
            value,
            _headers(found.get("h", b""), number),
            _number(found, "p", "partition", number),
            _number(found, "T", "timestamp", number),
        )

    def _split(self, line: bytes, number: int) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        rest = line
        token: str | None = None
        for part in self._parts:
            if isinstance(part, str):
                token = part
                continue
            before, literal, rest = rest.partition(part)
            if not literal or (token is None and before):
                raise ValueError(f"line {number}: no {part.decode(errors='replace')!r} where the format has it")
            if token is not None:
                found[token], token = before, None
        if token is not None:
            found[token] = rest
        elif rest:
            raise ValueError(f"line {number}: {rest[:60].decode(errors='replace')!r} follows the end of the format")
        return found


def encoding_reader(read: Reader, key: Encode | None, value: Encode | None) -> Reader:
    """Return a line reader whose keys and values are encoded."""
    if key is None and value is None:
        return read

    def encoded(line: bytes, number: int) -> Any:
        item = read(line, number)
        if not isinstance(item, Item):
            return item  # the caller reports it
        return item._replace(
            key=_encoded(item.key, key, "key", number), value=_encoded(item.value, value, "value", number)
        )

    return encoded


def as_bytes(data: Any, decode: Decode | None) -> bytes:
    """Return the printed form of a key or value: decoded text, or JSON on one line."""
    raw = bytes(data)
    if decode is None:
        return raw
    found = decode(raw)
    if isinstance(found, bytes):
        return found
    if isinstance(found, str):
        return found.encode()
    import json

    return json.dumps(found, ensure_ascii=False, default=str).encode(errors="replace")


def encode_text(option: str, text: str, encode: Encode | None) -> bytes:
    """Return the bytes of an option's text. Raises `click.UsageError` for text that cannot be encoded."""
    try:
        return text.encode() if encode is None else encode(text.encode())
    except ValueError as error:
        raise click.UsageError(f"{option}: {text!r} cannot be encoded: {error}.") from None


def _encoded(text: bytes | None, encode: Encode | None, what: str, number: int) -> bytes | None:
    if text is None or encode is None:
        return text
    try:
        return encode(text)
    except ValueError as error:
        raise ValueError(f"line {number}: the {what} cannot be encoded: {error}") from None


def _size(data: Any) -> int:
    return -1 if data is None else len(data)


def _headers(text: bytes, number: int) -> tuple[tuple[str, bytes | None], ...]:
    headers: list[tuple[str, bytes | None]] = []
    for part in text.split(b",") if text else ():
        name, equals, value = part.partition(b"=")
        if not equals:
            raise ValueError(f"line {number}: the header {part.decode(errors='replace')!r} is not NAME=VALUE")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            shown = part.decode(errors="backslashreplace")
            raise ValueError(f"line {number}: the name of the header {shown!r} is not UTF-8") from None
    return tuple(headers)


def _number(found: Mapping[str, bytes], token: str, what: str, number: int) -> int | None:
    text = found.get(token)
    if text is None:
        return None
    if not text.isdigit() or len(text) > _MOST_DIGITS or int(text) > _LARGEST[token]:
        raise ValueError(f"line {number}: {text[:60].decode(errors='replace')!r} is not a {what}")
    return int(text)
