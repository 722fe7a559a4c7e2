"""The options for decoding keys and values: ``valueFormat``, ``keyFormat`` and related ones.

A schema from a registry is fetched once, on the driver, and pickled with the tasks, so that the whole query uses the
same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.topics import Subscribe, Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField

    from triokafka.formats import Format, SchemaRegistry

NAMES: Final = (
    "valueFormat", "keyFormat", "valueSchema", "keySchema", "valueSubject", "keySubject", "valueMessage", "keyMessage",
    "onDecodeError", "schemaRegistry", "schemaRegistry.user", "schemaRegistry.password", "schemaRegistry.token",
)  # fmt: skip
"""The options, spelt as in the documentation."""

_SIDES: Final = ("key", "value")
_FORMATS: Final = ("raw", "json", "avro", "protobuf")
_PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class _Side:
    """The decoding options of keys, or of values."""

    form: str
    schema: str | None
    subject: str | None
    message: str | None


@dataclass(slots=True)
class DecodingOptions:
    """The decoding of keys and values. `formats` queries the registry once; the answers are pickled with it."""

    sides: Mapping[str, _Side] = field(default_factory=dict)
    registry: SchemaRegistry | None = None
    on_error: Literal["fail", "null"] = "fail"
    _formats: dict[str, Format] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], topics: Topics, columns: Sequence[str]) -> DecodingOptions:
        """Parse the options, which have lower-case names. Does no I/O.

        Raises:
            ConfigurationError: an option is missing, invalid, or useless without another one.
        """
        registry = _registry(given) if given.get("schemaregistry", "").strip() else None
        sides = {
            side: found for side in _SIDES if (found := _side(side, given, topics, registry is not None)) is not None
        }
        for side in sides:
            if side not in columns:
                raise ConfigurationError(f"Option '{side}Format' needs the column {side}, which 'columns' leaves out")
        on_error = given.get("ondecodeerror", "fail").lower()
        if on_error not in ("fail", "null"):
            raise ConfigurationError(f"Option 'onDecodeError' must be 'fail' or 'null', not '{on_error}'")
        if not sides and (registry is not None or "ondecodeerror" in given):
            raise ConfigurationError("Options about decoding do nothing without 'valueFormat' or 'keyFormat'")
        return cls(sides, registry, "null" if on_error == "null" else "fail")

    def formats(self) -> Mapping[str, Format]:
        """Return the formats of ``key`` and ``value``, where decoded.

        Raises:
            ConfigurationError: a schema is invalid.
            SchemaRegistryError: the registry cannot provide a schema.
        """
        if self._formats is None:
            self._formats = {name: self._format(name, side) for name, side in self.sides.items()}
        return self._formats

    def _format(self, name: str, side: _Side) -> Format:
        try:
            return _format(name, side, self.registry)
        except ConfigurationError as error:
            raise ConfigurationError(f"Option '{name}Format' is {side.form}: {error}") from None

    def learn(self, other: DecodingOptions) -> None:
        """Take over the formats of ``other``, which was parsed from the same options and has queried the registry."""
        self._formats = other._formats

    def read_columns(self, columns: Sequence[str]) -> list[str]:
        """Return the columns to read: with topic, partition and offset, so that an error can name the record."""
        more = [name for name in _PLACE if name not in columns] if self.sides else []
        return [*columns, *more]

    def apply(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """Decode a batch of `read_columns`, and return only ``columns`` and the error columns."""
        if not self.sides:
            return batch
        from triokafka.formats import Decoding

        decoding = Decoding(**self.formats(), on_error=self.on_error)
        return decoding.apply(batch).select([*columns, *self.error_columns()])

    def error_columns(self) -> list[str]:
        """Return the names of the error columns."""
        return [f"{name}_error" for name in self.sides] if self.on_error == "null" else []

    def fields(self, fields: Sequence[StructField]) -> list[StructField]:
        """Return a frame's fields with the decoded types, and the fields of the error columns."""
        from pyspark.sql import types
        from pyspark.sql.pandas.types import from_arrow_type

        if not self.sides:
            return list(fields)
        kinds = {name: from_arrow_type(each.type) for name, each in self.formats().items()}
        return [
            *(types.StructField(each.name, kinds.get(each.name, each.dataType)) for each in fields),
            *(types.StructField(name, types.StringType()) for name in self.error_columns()),
        ]


def _registry(given: Mapping[str, str]) -> SchemaRegistry:
    from triokafka.formats import SchemaRegistry

    if "@" in given["schemaregistry"]:
        raise ConfigurationError(
            "Option 'schemaRegistry' must hold no credentials: give them as 'schemaRegistry.user' and"
            " 'schemaRegistry.password'"
        )
    try:
        return SchemaRegistry(
            given["schemaregistry"].strip(),
            user=given.get("schemaregistry.user"),
            password=given.get("schemaregistry.password"),
            token=given.get("schemaregistry.token"),
        )
    except ConfigurationError as error:
        # Without frames that hold the address or the password, which Spark could print.
        raise error.with_traceback(None) from None


def _side(name: str, given: Mapping[str, str], topics: Topics, has_registry: bool) -> _Side | None:
    form = given.get(f"{name}format", "raw").lower()
    if form not in _FORMATS:
        raise ConfigurationError(f"Option '{name}Format' must be one of {', '.join(_FORMATS)}, not '{form}'")
    schema, subject, message = (given.get(f"{name}{what}") for what in ("schema", "subject", "message"))
    if form == "raw":
        for what, text in (("Schema", schema), ("Subject", subject), ("Message", message)):
            if text:
                raise ConfigurationError(f"Option '{name}Format' must be given where '{name}{what}' is, and is raw")
        return None
    if schema is None and form == "json":
        raise ConfigurationError(
            f"Option '{name}Schema' must have the schema of JSON, as Spark prints it: frame.schema.json()"
        )
    if schema is None and not has_registry:
        raise ConfigurationError(f"Option '{name}Schema' or 'schemaRegistry' must be given with {name}Format={form}")
    if schema is None and subject is None:
        if not isinstance(topics, Subscribe) or len(topics.names) != 1:
            raise ConfigurationError(f"Option '{name}Subject' must be given unless 'subscribe' names one topic")
        subject = f"{topics.names[0]}-{name}"
    return _Side(form, schema, subject, message)


def _format(name: str, side: _Side, registry: SchemaRegistry | None) -> Format:
    from triokafka.formats import AvroFormat, JsonFormat, ProtobufFormat

    if side.form == "avro":
        return AvroFormat(side.schema, registry=registry, subject=side.subject)
    if side.form == "protobuf":
        return ProtobufFormat(side.schema, registry=registry, subject=side.subject, name=side.message)
    from pyspark.sql import types

    from triokafka.spark.columns import to_arrow

    try:
        schema = to_arrow(types.StructType.fromJson(json.loads(side.schema or "")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"Option '{name}Schema' is not the JSON of a Spark schema (frame.schema.json()), or has a type that JSON"
            f" cannot be read as: {error}"
        ) from None
    return JsonFormat(schema, enveloped=registry is not None)
