"""The declarations are complete and exact, against the facts of Kafka 4.3.0's definitions in ``tests/data``.

The data holds names, types, versions, nullability, tags, defaults and ignorability of every field, and nothing else.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.unit.protocol.fillings import all_messages, stored_messages, wire_messages
from triokafka import errors
from triokafka.protocol import api
from triokafka.protocol.message import Field, Message, Struct, iter_structs, version_range
from triokafka.protocol.primitives import NIL_UUID, ArrayType, BytesType, Number, RecordsType, StringType, UuidType

DEFINITIONS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "kafka_definitions.json").read_text())
NUMBERS = {
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "q": "int64",
    "H": "uint16",
    "I": "uint32",
    "d": "float64",
    "?": "bool",
}
# A key starts with the kind of its record, Kafka's "api key" of it: 0 or 1 for a committed offset.
KEY_VERSIONS = {
    "OffsetCommitKey": "0-1",
    "GroupMetadataKey": "2",
    "ConsumerGroupMetadataKey": "3",
    "ConsumerGroupPartitionMetadataKey": "4",
    "ConsumerGroupMemberMetadataKey": "5",
    "ConsumerGroupTargetAssignmentMetadataKey": "6",
    "ConsumerGroupTargetAssignmentMemberKey": "7",
    "ConsumerGroupCurrentMemberAssignmentKey": "8",
    "ConsumerGroupRegularExpressionKey": "16",
}
OF_MIRROR_MAKER = {cls.__name__ for cls in stored_messages() if cls.__module__.endswith("mirror_maker")}
"""MirrorMaker declares these in Java: `tests/interop/test_mirror.py` compares them."""
BY_NAME = {cls.__name__: cls for cls in all_messages()}


def snake_case(name: str) -> str:
    """The field name of a name in Kafka's definitions."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[0].upper() + name[1:]).lower()


def type_name(f: Field) -> str:
    """A declared type in the words of Kafka's definitions; a structure is just ``struct``."""
    wire = f.type.element if isinstance(f.type, ArrayType) else f.type
    if f.struct is not None:
        plain = "struct"
    elif isinstance(wire, Number):
        plain = NUMBERS[wire.code]
    else:
        kinds = {UuidType: "uuid", StringType: "string", RecordsType: "records", BytesType: "bytes"}
        plain = kinds[type(wire)]
    return f"[]{plain}" if f.is_array else plain


def declared(f: Field) -> dict[str, Any]:
    """Return the properties of a field in our declaration."""
    return {
        "name": f.name,
        "type": type_name(f),
        "versions": f.versions,
        "nullable": f.nullable,
        "tag": f.tag,
        "tagged": version_range("none") if f.tag is None else f.versions,
        "ignorable": f.ignorable,
        "default": f.plain_default(),
    }


def defined(fact: dict[str, Any], own: Field, versions: str | None) -> dict[str, Any]:
    """Return the properties of a field in Kafka's definition; an unstated default is the zero of the type."""
    base = fact["type"].removeprefix("[]")
    primitive = base in (*NUMBERS.values(), "uuid", "string", "records", "bytes")
    zero: Any = {"string": "", "bytes": b"", "uuid": NIL_UUID, "records": None, "bool": False, "float64": 0.0}.get(
        base, 0
    )
    if fact["type"].startswith("[]"):
        zero = []
    elif not primitive:
        assert own.struct is not None
        zero = own.struct().to_dict()
    return {
        "name": snake_case(fact["name"]),
        "type": fact["type"] if primitive else f"{fact['type'].removesuffix(base)}struct",
        "versions": version_range(versions or fact["versions"]),
        "nullable": version_range(fact.get("nullable", "none")),
        "tag": fact.get("tag"),
        "tagged": version_range(fact.get("tagged", "none")),
        "ignorable": fact.get("ignorable", False),
        "default": fact.get("default", zero),
    }


def compare(cls: type[Struct], facts: list[dict[str, Any]], versions: str | None = None) -> None:
    """Every field of a structure, and of the structures in it."""
    assert [f.name for f in cls.__fields__] == [snake_case(fact["name"]) for fact in facts]
    for f, fact in zip(cls.__fields__, facts, strict=True):
        assert declared(f) == defined(fact, f, versions)
        if f.struct is not None:
            compare(f.struct, fact["fields"])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_declaration_equals_kafkas_definition(name: str) -> None:
    definition = DEFINITIONS[name]
    cls = BY_NAME[name]
    valid = version_range(KEY_VERSIONS.get(name, definition["versions"]))
    assert cls.all_versions == valid
    assert cls.versions.max == valid.max - definition.get("latest_unstable", False)
    assert {v for v in valid.each() if v in cls.flexible} == {
        v for v in valid.each() if v in version_range(definition["flexible"])
    }
    if "key" in definition:
        assert getattr(cls, "api_key", None) == definition["key"]
    compare(cls, definition["fields"], "0+" if name in KEY_VERSIONS else None)


def test_every_declared_message_is_one_of_kafka() -> None:
    assert sorted(BY_NAME.keys() - OF_MIRROR_MAKER) == sorted(DEFINITIONS)


def test_every_declared_api_is_found_by_its_key() -> None:
    for key, name in api.API_NAMES.items():
        assert api.request_type(key).__name__ == f"{name}Request"
        assert api.request_type(key).response_type is api.response_type(key)
        assert api.request_type(key).__module__ == api.MESSAGE_MODULES[key]


@pytest.mark.parametrize("cls", [*wire_messages(), *stored_messages()], ids=lambda cls: cls.__name__)
def test_every_field_has_a_description(cls: type[Message]) -> None:
    for struct in (cls, *iter_structs(cls)):
        assert struct.__doc__
        for f in struct.__fields__:
            assert len(f.doc) > 10, f"{struct.__name__}.{f.name}"
            assert f.doc.endswith("."), f"{struct.__name__}.{f.name}"
            for error in f.errors:
                assert issubclass(getattr(errors, error), errors.KafkaError)


@pytest.mark.parametrize("cls", wire_messages(), ids=lambda cls: cls.__name__)
def test_error_codes_of_a_response_are_listed(cls: type[Message]) -> None:
    for struct in (cls, *iter_structs(cls)):
        for f in struct.__fields__:
            if f.name.endswith("error_code"):
                assert f.errors, f"{struct.__name__}.{f.name}"


@pytest.mark.parametrize("key", api.API_NAMES, ids=lambda key: api.API_NAMES[key])
def test_module_opens_with_its_versions(key: int) -> None:
    doc = import_module(api.MESSAGE_MODULES[key]).__doc__ or ""
    assert doc.startswith(f"{api.API_NAMES[key]} (API key {key}): ")
    versions = str(api.request_type(key).all_versions).replace("-", "–")
    assert re.search(rf"\nVersions? {versions}[ .;(]", doc), doc
