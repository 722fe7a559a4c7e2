"""Messages to test codecs with: every declared message, and instances filled from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any
from uuid import UUID

from triokafka.protocol import api
from triokafka.protocol.message import Field, Message, Struct, StructMeta
from triokafka.protocol.primitives import NIL_UUID, Number, StringType, UuidType

STORED_MODULES = (
    "triokafka.protocol.consumer_protocol",
    "triokafka.protocol.forwarded_principal",
    "triokafka.protocol.stored.cluster_metadata",
    "triokafka.protocol.stored.consumer_group",
    "triokafka.protocol.stored.control_records",
    "triokafka.protocol.stored.group_metadata",
    "triokafka.protocol.stored.mirror_maker",
    "triokafka.protocol.stored.offset_commit",
    "triokafka.protocol.stored.transaction_log",
)

_TEXTS = ("", "a", "orders", "größe-€-𝄞", "x" * 126, "x" * 127, "x" * 128, "y" * 300)
_BLOBS = (b"", b"\0", b"abc", b"x" * 126, b"x" * 127, b"x" * 128, b"z" * 5000)


def wire_messages() -> list[type[Message]]:
    """Every request and response."""
    return [kind(key) for key in api.API_NAMES for kind in (api.request_type, api.response_type)]


def stored_messages() -> list[type[Message]]:
    """Return every message that is stored on disk or inside another message."""
    found = []
    for name in STORED_MODULES:
        for value in vars(import_module(name)).values():
            if isinstance(value, StructMeta) and issubclass(value, Message) and value.__module__ == name:
                found.append(value)
    return [cls for cls in found if cls.versions.max >= cls.versions.min]


def versions_of(classes: list[type[Message]]) -> list[tuple[type[Message], int]]:
    """Every version of every class."""
    return [(cls, version) for cls in classes for version in cls.all_versions.each()]


@cache
def all_messages() -> tuple[type[Message], ...]:
    """Every declared message."""
    return (*wire_messages(), *stored_messages())


def name_of(case: object) -> str:
    """A test id: ``FetchRequest`` or ``12``."""
    return case.__name__ if isinstance(case, type) else str(case)


def rich(cls: type[Any], version: int, random: random.Random, *, unknown_tags: bool = False) -> Any:
    """An instance with every field of the version filled: nulls, edges of number ranges, long and short text."""
    return _filled(cls, version, version in cls.flexible, random, unknown_tags)


def _filled(cls: type[Struct], version: int, flexible: bool, random: random.Random, unknown_tags: bool) -> Any:
    made = cls()
    for f in cls.__fields__:
        if version in f.versions:
            setattr(made, f.name, _value(f, version, flexible, random, unknown_tags))
    if flexible and unknown_tags and random.random() < 0.4:
        tags = random.sample(range(100, 100_000), random.randrange(1, 4))
        made.unknown_tags = {tag: random.randbytes(random.choice((0, 1, 130))) for tag in tags}
    return made


def _value(f: Field, version: int, flexible: bool, random: random.Random, unknown_tags: bool) -> Any:
    if version in f.nullable and random.random() < 0.25:
        return None
    if f.is_array:
        count = random.choice((0, 1, 2, 3))
        return [_one(f.type.element, version, flexible, random, unknown_tags) for _ in range(count)]
    return _one(f.type, version, flexible, random, unknown_tags)


def _one(wire: Any, version: int, flexible: bool, random: random.Random, unknown_tags: bool) -> Any:
    if isinstance(wire, StructMeta):
        return _filled(wire, version, flexible, random, unknown_tags)  # type: ignore[arg-type]
    if isinstance(wire, Number):
        return random.choice(list(number_edges(wire)))
    if isinstance(wire, UuidType):
        return random.choice((NIL_UUID, UUID(int=random.getrandbits(128))))
    return random.choice(_TEXTS if isinstance(wire, StringType) else _BLOBS)


def number_edges(wire: Number) -> Iterator[Any]:
    """The interesting values of a number type."""
    if wire.code == "?":
        yield from (False, True)
    elif wire.code == "d":
        yield from (0.0, -1.5, 1e300)
    else:
        bits = wire.length * 8
        low = -(2 ** (bits - 1)) if wire.code.islower() else 0
        yield from (0, 1, low, low + 2**bits - 1, 7)


def plain(value: Any) -> Any:
    """Dicts, lists and bytes only, so that results of both codecs compare."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value
