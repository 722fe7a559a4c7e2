"""Protobuf messages into Arrow structs, field by field."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import ConfigurationError
from triokafka.formats.decoding import Format, UnknownSchemas, require
from triokafka.formats.registry import (
    RegisteredSchema,
    SchemaRegistry,
    SchemaRegistryError,
    UnknownSchemaError,
    opened,
)

if TYPE_CHECKING:
    import pyarrow as pa

SERIALIZED: Final = "serialized"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_MAX_VARINT: Final = 10
_UNFIT: Final = (ValueError, OverflowError, TypeError)  # includes pyarrow's errors


class ProtobufFormat(Format):
    """Protobuf messages of one type.

    An unset field is null if its type tracks presence; otherwise it has its default. Enums become their names,
    timestamps and wrapper messages become plain values, unsigned 64-bit numbers become decimals.

    Args:
        message: a generated class, or ``"module:Class"``. None uses the first message of the newest schema of
            ``subject``, or the message called ``name``.
        registry: values have its envelopes. It is queried only when ``message`` is None; then the message name in the
            schema identifies values of other types. With ``message``, all values are assumed to be of that type.
        subject: a subject of the registry, usually ``<topic>-value``.
        name: the full name of a message in the subject's schema.

    Raises:
        ConfigurationError: there is no such message, or it contains itself.
        SchemaRegistryError: the registry cannot provide the subject.
    """

    def __init__(
        self,
        message: Any = None,
        *,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
        name: str | None = None,
    ) -> None:
        require("google.protobuf", "Protobuf")
        if message is None and (registry is None or subject is None):
            raise ConfigurationError("ProtobufFormat needs a message class, or a registry and a subject")
        self._registry = registry
        self._unknown = UnknownSchemas()
        self._files: tuple[bytes, ...] = ()
        self._message: Any
        self._names: dict[tuple[int, tuple[int, ...]], str] = {}
        if message is None:
            assert registry is not None and subject is not None
            newest = registry.latest(subject, form=SERIALIZED)
            if newest.kind != "PROTOBUF":
                raise ConfigurationError(f"subject {subject!r}: its schema is of type {newest.kind}, not PROTOBUF")
            self._set(tuple(descriptor_files(registry, newest, f"{subject}.proto").values()), name, subject)
            self._names[newest.id, message_place(self._message.DESCRIPTOR)] = self._message.DESCRIPTOR.full_name
        else:
            self._message = _imported(message) if isinstance(message, str) else message
            self._type: pa.DataType = _struct(self._message.DESCRIPTOR, ())

    def _set(self, files: tuple[bytes, ...], name: str | None, subject: str) -> None:
        """Use a message of these file descriptors; the last file declares it."""
        self._files, self._message = files, message_class(files, name, subject)
        self._type = _struct(self._message.DESCRIPTOR, ())

    def __getstate__(self) -> dict[str, Any]:
        # Generated classes cannot be pickled, and the subject may have a newer schema when this is unpickled.
        if self._files:
            name = self._message.DESCRIPTOR.full_name
            return {"registry": self._registry, "files": self._files, "name": name, "names": self._names}
        return {"registry": self._registry, "message": self._message}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._registry, self._files, self._unknown = state["registry"], (), UnknownSchemas()
        self._names = dict(state.get("names", {}))
        if "files" in state:
            self._set(state["files"], state["name"], "")
        else:
            self._message = state["message"]
            self._type = _struct(self._message.DESCRIPTOR, ())

    @property
    def type(self) -> pa.DataType:
        """A struct of the message's fields."""
        return self._type

    def decode(self, payloads: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """See `Format.decode`."""
        errors: dict[int, str] = {}
        values: list[bytes | None] = payloads.to_pylist()
        ids: dict[int, int] = {}
        if self._registry is not None:
            groups, errors = opened(payloads)
            values = [None] * len(payloads)
            for group in groups:
                for position, payload in zip(group.positions, group.payloads.to_pylist(), strict=True):
                    values[position], ids[position] = payload, group.schema_id
        messages: list[Any] = []
        unknown: dict[int, str] = {}
        for position, payload in enumerate(values):
            found = None
            if payload is not None and ids.get(position) in unknown:
                errors[position] = unknown[ids[position]]
            elif payload is not None:
                try:
                    start = 0 if self._registry is None else self._opened(payload, ids[position])
                    found = self._message.FromString(payload[start:])
                except UnknownSchemaError as error:
                    errors[position] = unknown[ids[position]] = self._unknown.report(ids[position], error)
                except SchemaRegistryError:
                    raise
                except Exception as error:
                    errors[position] = f"{type(error).__name__}: {error}"
            messages.append(found)
        try:
            return self._column(messages), errors
        except _UNFIT:
            # Some value does not fit its column (an invalid timestamp, text that is not UTF-8): find and drop it.
            for position, message in enumerate(messages):
                try:
                    self._column([message])
                except _UNFIT as error:
                    messages[position] = None
                    errors[position] = f"{type(error).__name__}: {error}"
            return self._column(messages), errors

    def _opened(self, payload: bytes, schema_id: int) -> int:
        """Return the offset of the message behind its envelope, after a check of its type.

        A message of another type would decode without an error to wrong values. Only names identify types: the first
        message of another subject's schema has the same index.
        """
        indexes, start = message_indexes(payload)
        if self._files:
            name = self._names.get((schema_id, indexes))
            if name is None:
                name = self._names[schema_id, indexes] = self._name_of(schema_id, indexes)
            if name != self._message.DESCRIPTOR.full_name:
                raise ValueError(f"it is a {name}, not a {self._message.DESCRIPTOR.full_name}")
        return start

    def _name_of(self, schema_id: int, indexes: tuple[int, ...]) -> str:
        assert self._registry is not None
        found = self._registry.by_id(schema_id, form=SERIALIZED)
        return message_name(base64.b64decode(found.text), indexes, f"schema {schema_id}")

    def _column(self, messages: list[Any]) -> pa.Array:
        return _structs(messages, self._message.DESCRIPTOR, self._type)


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"Protobuf message {path!r} cannot be imported as 'module:Class': {error}") from None
    if not (hasattr(found, "DESCRIPTOR") and hasattr(found, "FromString")):
        raise ConfigurationError(f"Protobuf message {path!r} is not a generated message class")
    return found


def descriptor_files(registry: SchemaRegistry, found: RegisteredSchema, name: str) -> dict[str, bytes]:
    """Return serialized file descriptors by file name, each after its imports."""
    from google.protobuf import descriptor_pb2

    files: dict[str, bytes] = {}
    for reference in found.references:
        theirs = registry.version(reference.subject, reference.version, form=SERIALIZED)
        files.update(descriptor_files(registry, theirs, reference.name))
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(found.text))
    file.name = name
    for imported in file.dependency:
        files.update(_well_known(imported))
    return {**files, name: file.SerializeToString()}


def _well_known(name: str) -> dict[str, bytes]:
    """Return the descriptors of files that protobuf itself provides, which no registry has."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    if not name.startswith("google/protobuf/"):
        return {}
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    files: dict[str, bytes] = {}
    for imported in file.dependency:
        files.update(_well_known(imported))
    return {**files, name: file.SerializeToString()}


def message_class(files: tuple[bytes, ...], name: str | None, subject: str) -> Any:
    """Build the message class: the message called ``name``, or the first of the last file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    last = descriptor_pb2.FileDescriptorProto.FromString(files[-1]).name
    messages = pool.FindFileByName(last).message_types_by_name
    try:
        descriptor = pool.FindMessageTypeByName(name) if name is not None else next(iter(messages.values()))
    except (KeyError, StopIteration):
        raise ConfigurationError(
            f"subject {subject!r}: its schema has no message {name or 'at all'}; it has {', '.join(messages)}"
        ) from None
    return message_factory.GetMessageClass(descriptor)


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the message indexes in the envelope, and the offset of the message."""
    count, position = _varint(payload, 0)
    if count < 0:
        raise ValueError("the envelope names no message")
    indexes: list[int] = []
    for _ in range(count):
        index, position = _varint(payload, position)
        indexes.append(index)
    return tuple(indexes) or (0,), position


def message_name(file: bytes, indexes: tuple[int, ...], schema: str) -> str:
    """Return the full name of the message at the indexes of an envelope; ``schema`` names the file in errors."""
    from google.protobuf import descriptor_pb2

    described = descriptor_pb2.FileDescriptorProto.FromString(file)
    names, messages = [described.package] if described.package else [], described.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ValueError(f"{schema} has no message {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def message_place(descriptor: Any) -> tuple[int, ...]:
    """Return a known message's indexes: its number within each enclosing message, outermost first."""
    around = descriptor.containing_type
    beside = descriptor.file.message_types_by_name.values() if around is None else around.nested_types
    number = [each.full_name for each in beside].index(descriptor.full_name)
    return (*(() if around is None else message_place(around)), number)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MAX_VARINT):
        if position >= len(data):
            raise ValueError("the envelope is truncated")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise ValueError("the envelope names no message")


# --- types ---


def _struct(descriptor: Any, within: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if descriptor.full_name in within:
        raise ConfigurationError(f"the message {descriptor.full_name} contains itself, which has no column type")
    inner = (*within, descriptor.full_name)
    return pa.struct([pa.field(field.name, _type(field, inner)) for field in descriptor.fields])


def _type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single(entry["key"], within), _single(entry["value"], within))
    return pa.list_(_single(field, within)) if field.is_repeated else _single(field, within)


def _single(field: Any, within: tuple[str, ...]) -> pa.DataType:
    import pyarrow as pa

    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        if name in _WRAPPERS:
            return _single(field.message_type.fields_by_name["value"], within)
        return _struct(field.message_type, within)
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    found = kinds.get(field.cpp_type)
    if found is None:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    return found


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# --- columns ---


def _structs(messages: list[Any], descriptor: Any, kind: pa.DataType) -> pa.Array:
    """Build a column of messages, null for None."""
    import pyarrow as pa

    mask = pa.array([message is None for message in messages], pa.bool_())
    columns = [_field(messages, field, kind.field(field.name).type) for field in descriptor.fields]
    if not columns:
        return pa.array([None if message is None else {} for message in messages], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _field(messages: list[Any], field: Any, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    name = field.name
    if not field.is_repeated:
        if field.has_presence:
            found = [getattr(each, name) if each is not None and each.HasField(name) else None for each in messages]
        else:
            found = [None if each is None else getattr(each, name) for each in messages]
        return _values(found, field, kind)
    offsets = [0]
    items: list[Any] = []
    for each in messages:
        if each is not None:
            items.extend(getattr(each, name).items() if _is_map(field) else getattr(each, name))
        offsets.append(len(items))
    starts = pa.array(offsets, pa.int32())
    if not _is_map(field):
        return pa.ListArray.from_arrays(starts, _values(items, field, kind.value_type), type=kind)
    entry = field.message_type.fields_by_name
    keys = _values([key for key, _ in items], entry["key"], kind.key_type)
    values = _values([value for _, value in items], entry["value"], kind.item_type)
    return pa.MapArray.from_arrays(starts, keys, values, type=kind)


def _values(found: list[Any], field: Any, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return pa.array([None if each is None else each.ToMicroseconds() for each in found], pa.int64()).cast(kind)
        if name in _WRAPPERS:
            value = field.message_type.fields_by_name["value"]
            return _values([None if each is None else each.value for each in found], value, kind)
        return _structs(found, field.message_type, kind)
    convert = _converter(field)
    if convert is not None:
        found = [None if each is None else convert(each) for each in found]
    return pa.array(found, kind)


def _converter(field: Any) -> Callable[[Any], Any] | None:
    if field.cpp_type == field.CPPTYPE_ENUM:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == field.CPPTYPE_UINT64:
        from decimal import Decimal

        return Decimal
    return None
