"""Codec speed of requests and responses beside kafka-python 3.

Covers every message of both libraries, in the newest version that both have, filled like real traffic; the bytes are
the same for both. The two take short turns and the medians of their processor time are compared, so that a slow moment
of the machine affects both. Ratios are our time over theirs: below 1 is faster.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable
from importlib import import_module
from math import ceil
from time import process_time
from typing import Any, NamedTuple
from uuid import UUID

from triokafka.protocol import api
from triokafka.protocol.message import Field, Message, Struct, StructMeta
from triokafka.protocol.primitives import Number, RecordsType, StringType, UuidType

_PEER_MODULES = (
    "admin.cluster", "admin.configs", "admin.groups", "admin.topics", "consumer.fetch", "consumer.group",
    "consumer.metadata", "consumer.offsets", "metadata.api_versions", "metadata.find_coordinator", "metadata.metadata",
    "producer.produce", "producer.transaction",
)  # fmt: skip

_COUNTS = {
    ("MetadataResponse", "topics"): 10,
    ("MetadataResponseTopic", "partitions"): 10,
    ("FetchRequest", "topics"): 2,
    ("FetchTopic", "partitions"): 5,
    ("FetchableTopicResponse", "partitions"): 5,
    ("ProduceRequest", "topic_data"): 1,
    ("ApiVersionsResponse", "api_keys"): 70,
}
"""Items in the arrays of frequent messages; elsewhere two of a structure and three of a plain type."""

ROUNDS = 15
_ROUND_SECONDS = 0.001


class Row(NamedTuple):
    """One comparison; times are microseconds a call."""

    message: str
    version: int
    operation: str
    size: int
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """Our time over kafka-python's."""
        return self.ours / self.theirs


def filled(cls: type[Struct], version: int) -> Any:
    """Return an instance with typical values in every field that is not optional."""
    made = cls()
    for position, f in enumerate(cls.__fields__):
        if version in f.versions and f.tag is None:
            setattr(made, f.name, _value(cls, f, version, position))
    return made


def _value(cls: type[Struct], f: Field, version: int, position: int) -> Any:
    if f.is_array:
        count = _COUNTS.get((cls.__name__, f.name), 2 if f.struct else 3)
        return [_one(f.type.element, f.name, version, position + i) for i in range(count)]
    return _one(f.type, f.name, version, position)


def _one(wire: Any, name: str, version: int, position: int) -> Any:
    if isinstance(wire, StructMeta):
        return filled(wire, version)  # type: ignore[arg-type]
    if isinstance(wire, Number):
        return (
            True if wire.code == "?" else 0 if "error" in name else 10**9 + position if wire.code == "q" else position
        )
    if isinstance(wire, UuidType):
        return UUID(int=0x1234_5678_9ABC_4DEF_8123_4567_89AB_CDEF)
    if isinstance(wire, StringType):
        return f"{name}-{position}"
    return bytes(16_384 if isinstance(wire, RecordsType) else 200)


def _peers() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _PEER_MODULES:
        found.update(vars(import_module(f"kafka.protocol.{name}")))
    return found


def _medians(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    once = timeit.timeit(theirs, timer=process_time, number=20) / 20
    number = max(5, ceil(_ROUND_SECONDS / once))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for kept, call in zip(times, (ours, theirs), strict=True):
            kept.append(timeit.timeit(call, timer=process_time, number=number) / number)
    return statistics.median(times[0]) * 1e6, statistics.median(times[1]) * 1e6


def measure(cls: type[Message], version: int, peer: Any) -> list[Row]:
    """Return the two rows of one message."""
    message = filled(cls, version)
    data = message.encode(version)
    peer_message = peer.decode(data, version=version)
    peer_message._header = None  # its own decoder does not set this
    if bytes(peer_message.encode(version=version)) != data:
        raise AssertionError(f"{cls.__name__} {version}: kafka-python encodes other bytes")
    pairs = {
        "encode": (lambda: message.encode(version), lambda: peer_message.encode(version=version)),
        "decode": (lambda: cls.decode(data, version), lambda: peer.decode(data, version=version)),
    }
    return [Row(cls.__name__, version, name, len(data), *_medians(*pair)) for name, pair in pairs.items()]


def run() -> list[Row]:
    """Return all rows: requests first, each encoded and decoded."""
    peers = _peers()
    rows = []
    for kind in (api.request_type, api.response_type):
        for key in api.API_NAMES:
            cls: type[Message] = kind(key)
            peer = peers.get(cls.__name__)
            if peer is not None:
                rows += measure(cls, min(cls.versions.max, peer.max_version), peer)
    return rows


def geometric_mean(rows: list[Row]) -> float:
    """Return the geometric mean of the ratios."""
    return statistics.geometric_mean(row.ratio for row in rows)


def show(rows: list[Row]) -> None:
    """Print the table and the means."""
    print(f"{'message':36} {'v':>2} {'bytes':>6} {'operation':9} {'ours µs':>8} {'theirs µs':>9} {'ratio':>6}")
    for row in rows:
        print(
            f"{row.message:36} {row.version:2} {row.size:6} {row.operation:9} "
            f"{row.ours:8.2f} {row.theirs:9.2f} {row.ratio:6.2f}"
        )
    for kind in ("Request", "Response"):
        chosen = [row for row in rows if row.message.endswith(kind)]
        worst = max(chosen, key=lambda row: row.ratio)
        print(
            f"{kind}s: geometric mean {geometric_mean(chosen):.2f}, "
            f"worst {worst.ratio:.2f} ({worst.message} {worst.operation})"
        )
    print(
        f"all: geometric mean {geometric_mean(rows):.2f}, {sum(row.ratio > 1 for row in rows)} of {len(rows)} above 1"
    )


if __name__ == "__main__":
    show(run())
