"""Metrics as OpenTelemetry's protocol (OTLP) carries them: a Protobuf ``MetricsData`` message, written and read.

Only what KIP-714 needs: gauges and sums with one numeric point, and text attributes. Histograms are read past.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from triokafka.named_tuple import NamedTuple
from triokafka.varint import encode_uvarint

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DELTA: Final = 1
_CUMULATIVE: Final = 2
_DOUBLE: Final = struct.Struct("<d")
_UINT64: Final = struct.Struct("<Q")
_INT64: Final = struct.Struct("<q")
_MAX_SHIFT: Final = 63
MAX_FIELDS: Final = 200_000
"""Fields of one message that are read, the unknown ones included: about 5,000 metrics, a few tenths of a second."""


class Point(NamedTuple):
    """The value of one metric. ``monotonic`` marks a sum that only grows; ``delta``: since the last push. Times are
    nanoseconds since the epoch."""

    name: str
    attributes: Mapping[str, str]
    value: float
    monotonic: bool
    delta: bool
    start_ns: int
    time_ns: int


# ------------------------------------------------------------------ writing


def _message(number: int, data: bytes) -> bytes:
    return encode_uvarint(number << 3 | _LENGTH) + encode_uvarint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())


def _fixed(number: int, packed: bytes) -> bytes:
    return encode_uvarint(number << 3 | _FIXED64) + packed


def _attribute(number: int, key: str, value: str) -> bytes:
    return _message(number, _text(1, key) + _message(2, _text(1, value)))


def _metric(point: Point) -> bytes:
    data = b"".join(_attribute(7, key, value) for key, value in point.attributes.items())
    data += _fixed(2, _UINT64.pack(point.start_ns)) + _fixed(3, _UINT64.pack(point.time_ns))
    data = _message(1, data + _fixed(4, _DOUBLE.pack(point.value)))
    if not point.monotonic:
        return _text(1, point.name) + _message(5, data)
    temporality = encode_uvarint(2 << 3) + encode_uvarint(_DELTA if point.delta else _CUMULATIVE)
    return _text(1, point.name) + _message(7, data + temporality + encode_uvarint(3 << 3) + b"\x01")


def encode_metrics(points: Iterable[Point], resource: Mapping[str, str]) -> bytes:
    """Return ``MetricsData`` with one resource, described by its attributes."""
    scope = b"".join(_message(2, _metric(point)) for point in points)
    described = b"".join(_attribute(1, key, value) for key, value in resource.items())
    return _message(1, _message(1, described) + _message(2, scope))


# ------------------------------------------------------------------ reading


class _Budget:
    """Counts the fields that are read of one message."""

    __slots__ = ("left", "most")

    def __init__(self, fields: int) -> None:
        self.most = self.left = fields


def _fields(data: memoryview, budget: _Budget) -> Iterator[tuple[int, int, int, memoryview]]:
    """Yield number, wire type, integer value, and bytes of every field.

    Raises:
        ValueError: the bytes are malformed, or the message has too many fields.
    """
    at, size = 0, len(data)

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= size or shift > _MAX_SHIFT:
                raise ValueError("malformed number in OTLP metrics")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < size:
        budget.left -= 1
        if budget.left < 0:
            raise ValueError(f"OTLP metrics have more than {budget.most} fields")
        number, kind = divmod(varint(), 8)
        value, length = 0, 0
        if kind == _VARINT:
            value = varint()
        elif kind == _LENGTH:
            length = varint()
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind} in OTLP metrics")
        if at + length > size:
            raise ValueError("OTLP metrics end within a field")
        yield number, kind, value, data[at : at + length]
        at += length


def _read_attribute(data: memoryview, budget: _Budget) -> tuple[str, str]:
    key, text = "", ""
    for number, _, _, content in _fields(data, budget):
        if number == 1:
            key = str(content, "utf-8")
        elif number == 2:
            for kind, wire, value, inner in _fields(content, budget):
                if kind == 1:
                    text = str(inner, "utf-8")
                elif kind == 4 and wire == _FIXED64:
                    text = f"{_DOUBLE.unpack(inner)[0]:g}"
                elif kind in (2, 3):
                    text = str(value)
    return key, text


def _read_point(name: str, data: memoryview, monotonic: bool, delta: bool, budget: _Budget) -> Point:
    attributes: dict[str, str] = {}
    value, start, time = 0.0, 0, 0
    for number, kind, _, content in _fields(data, budget):
        if number == 7:
            key, text = _read_attribute(content, budget)
            attributes[key] = text
        elif kind == _FIXED64:
            if number == 2:
                start = _UINT64.unpack(content)[0]
            elif number == 3:
                time = _UINT64.unpack(content)[0]
            elif number == 4:
                value = _DOUBLE.unpack(content)[0]
            elif number == 6:
                value = float(_INT64.unpack(content)[0])
    return Point(name, attributes, value, monotonic, delta, start, time)


def _read_metric(data: memoryview, budget: _Budget) -> Iterator[Point]:
    name = ""
    for number, _, _, content in _fields(data, budget):
        if number == 1:
            name = str(content, "utf-8")
    for number, _, _, content in _fields(data, budget):
        if number not in (5, 7):
            continue
        monotonic = delta = False
        points: list[memoryview] = []
        for kind, _, value, inner in _fields(content, budget):
            if kind == 1:
                points.append(inner)
            elif kind == 2:
                delta = value == _DELTA
            elif kind == 3:
                monotonic = bool(value)
        for point in points:
            yield _read_point(name, point, monotonic, delta, budget)


def decode_metrics(data: bytes | memoryview, *, max_fields: int = MAX_FIELDS) -> list[Point]:
    """Return every gauge and sum of a ``MetricsData`` message, without the attributes of resources.

    Raises:
        ValueError: the bytes are malformed, or have more than ``max_fields`` fields.
    """
    found: list[Point] = []
    budget = _Budget(max_fields)
    for number, kind, _, resource in _fields(memoryview(data), budget):
        if number == 1 and kind == _LENGTH:
            for part, part_kind, _, scope in _fields(resource, budget):
                if part == 2 and part_kind == _LENGTH:
                    for inner, inner_kind, _, metric in _fields(scope, budget):
                        if inner == 2 and inner_kind == _LENGTH:
                            found.extend(_read_metric(metric, budget))
    return found
