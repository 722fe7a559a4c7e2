"""The bytes of Kafka's own Java classes (4.3.0) for every declared message and version.

The vectors are made by ``tests/interop/java/Vectors.java``; ``make interop`` makes them again and compares. Three
fillings each: the least that is valid, and two full ones.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from triokafka.protocol import api
from triokafka.protocol.message import Field, Message, Struct

_VECTORS: dict[str, list[dict[str, Any]]] = defaultdict(list)
for _line in (Path(__file__).parents[2] / "data" / "java_vectors.jsonl").read_text().splitlines():
    _vector = json.loads(_line)
    _VECTORS[_vector["name"]].append(_vector)

MESSAGES: dict[str, type[Message]] = {
    cls.__name__: cls for key in api.API_NAMES for cls in (api.request_type(key), api.response_type(key))
}


def snake_case(name: str) -> str:
    name = name.replace("kRaft", "kraft")
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z])(?=[a-z])", r"_\1\2", name).lower()


def plain(struct: type[Struct], value: dict[str, Any], decoded: Struct) -> dict[str, Any]:
    """Kafka's JSON form of a structure as ours: snake_case names, ids and bytes decoded.

    Kafka's converter leaves the content of record batches out; there the decoded bytes stand in.
    """
    by_name = {f.name: f for f in struct.__fields__}
    result: dict[str, Any] = {}
    for key, item in value.items():
        name = snake_case(key.removesuffix("SizeInBytes"))
        f = by_name[name]
        present = getattr(decoded, name)
        if f.type.__class__.__name__.startswith("Record") or key.endswith("SizeInBytes") or name == "records":
            result[name] = present
        elif f.struct is not None and item is not None:
            if f.is_array:
                result[name] = [plain(f.struct, one, got) for one, got in zip(item, present, strict=True)]
            else:
                result[name] = plain(f.struct, item, present)
        else:
            result[name] = plain_value(f, item)
    return result


def plain_value(f: Field, item: Any) -> Any:
    inner = f.type.element if f.is_array else f.type
    if isinstance(item, list):
        return [scalar(inner, one) for one in item]
    return scalar(inner, item)


def scalar(wire: Any, item: Any) -> Any:
    if isinstance(item, str) and isinstance(wire.zero, UUID):
        return UUID(bytes=urlsafe_b64decode(item + "=="))
    if isinstance(item, str) and isinstance(wire.zero, bytes):
        return b64decode(item)
    return item


def test_vectors_cover_every_message_and_version_in_three_fillings() -> None:
    for name, message in MESSAGES.items():
        found = {(vector["version"], vector["filling"]) for vector in _VECTORS[name]}
        assert found >= {(version, filling) for version in message.versions.each() for filling in (0, 1, 2)}, name


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_our_bytes_are_javas(name: str) -> None:
    message = MESSAGES[name]
    for vector in _VECTORS[name]:
        version, wire = vector["version"], bytes.fromhex(vector["bytes"])
        if version not in message.all_versions:
            continue
        where = f"{name} v{version}, filling {vector['filling']}"
        decoded = message.decode(wire, version)
        assert decoded.encode(version) == wire, where
        built = message.from_dict(plain(message, vector["value"], decoded))
        assert built == decoded, where
        assert built.encode(version) == wire, where
