"""Requests of every API about two topics or groups, ``open`` and ``shut``, and the result for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from tests.unit.broker_stub.api.node import batch
from triokafka.protocol.declaration import Struct, StructMeta
from triokafka.protocol.primitives import StringType, UuidType

ITEMS: Final = ("open", "shut")
GROUP: Final = "group"
"""What a group is called where a request is about one."""
_NAMES: Final = ("name", "topic", "topic_name", "group_id", "key", "resource_name", "transactional_id")
_ALL: Final = "all"


def filled(cls: type[Struct], version: int, topic_ids: Mapping[str, UUID], item: str = GROUP) -> Any:
    """A structure whose lists have an element for each item, or one where elements are not items."""
    made = cls()
    for field in cls.__fields__:
        if version not in field.versions or field.tag is not None:
            continue
        inner = field.struct
        if field.is_array and inner is not None:
            named = item == GROUP and any(_is_name(below) for below in inner.__fields__ if version in below.versions)
            items = ITEMS if named else (item,)
            setattr(made, field.name, [filled(inner, version, topic_ids, name) for name in items])
        elif field.is_array:
            is_text = isinstance(field.type.element, StringType)
            setattr(made, field.name, list(ITEMS) if is_text else [0])
        elif inner is not None:
            setattr(made, field.name, filled(inner, version, topic_ids, item))
        elif field.name == "topic_id":
            setattr(made, field.name, topic_ids.get(item, UUID(int=0)))
        elif field.name == "timeout_ms":
            setattr(made, field.name, 1000)
        elif field.name == "records":
            setattr(made, field.name, batch(b"v"))
        elif _is_name(field) and (field.name != "transactional_id" or item != GROUP):
            setattr(made, field.name, item)
    return made


def codes_by_item(response: Struct, names: Mapping[UUID, str]) -> dict[str, int]:
    """The error code of each item of a response, of the response itself under ``all``; the first code counts."""
    found: dict[str, int] = {}
    _collect(response, _ALL, names, found)
    if len(found) > 1 and not found.get(_ALL):
        found.pop(_ALL, None)
    return found


def _collect(struct: Any, item: str, names: Mapping[UUID, str], found: dict[str, int]) -> None:
    if hasattr(struct, "error_code"):
        found[item] = found.get(item) or struct.error_code
    for field in type(struct).__fields__:
        if not isinstance(getattr(field.type, "element", field.type), StructMeta):
            continue
        value = getattr(struct, field.name)
        for part in value if field.is_array and value is not None else ():
            _collect(part, _item_of(part, names) or item, names, found)


def _item_of(struct: Any, names: Mapping[UUID, str]) -> str | None:
    for name in _NAMES:
        if getattr(struct, name, None):
            return str(getattr(struct, name))
    return names.get(getattr(struct, "topic_id", UUID(int=0)))


def _is_name(field: Any) -> bool:
    return (field.name in _NAMES and isinstance(field.type, StringType)) or (
        field.name == "topic_id" and isinstance(field.type, UuidType)
    )
