"""Options about what keys and values are: ``valueFormat``, ``keyFormat`` and those beside them.

A schema that a registry has to be asked for is asked for once, on the driver, and travels with the tasks: a query
reads all with the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from triokafka.errors import ConfigurationError
from triokafka.spark.topics import Subscribe, Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField

    from triokafka.formats import Format, SchemaRegistry

NAMES: Final = (
    "valueFormat", "keyFormat", "valueSchema", "keySchema", "valueSubject", "keySubject", "valueMessage", "keyMessage",
    "onDecodeError", "schemaRegistry", "schemaRegistry.user", "schemaRegistry.password", "schemaRegistry.token",
)  # fmt: skip
"""The options, as the documentation writes them."""

_SIDES: Final = ("key", "value")
_FORMATS: Final = ("raw", "json", "avro", "protobuf")
_PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class _Side:
    """What the options say of keys, or of values."""

    form: str
    schema: str | None
    subject: str | None
    message: str | None


@dataclass(slots=True)
class DecodingOptions:
    """What keys and values are. `formats` asks the registry once; what it learned is pickled with it."""

    sides: Mapping[str, _Side] = field(default_factory=dict)
    registry: SchemaRegistry | None = None
    on_error: Literal["fail", "null"] = "fail"
    _formats: dict[str, Format] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], topics: Topics, columns: Sequence[str]) -> DecodingOptions:
        """Check the options, whose names are in lower case. Asks nobody.

        Raises:
            ConfigurationError: one is missing, stands alone, or cannot be used.
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
        """The formats, by ``key`` and ``value``; those that have one.

        Raises:
            ConfigurationError: a schema cannot be used.
            SchemaRegistryError: it cannot be had.
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
        """Take what ``other``, which was parsed from the same options, learned from the registry."""
        self._formats = other._formats

    def read_columns(self, columns: Sequence[str]) -> list[str]:
        """The columns to read: with where a record is, so that an error can say it."""
        more = [name for name in _PLACE if name not in columns] if self.sides else []
        return [*columns, *more]

    def apply(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """A batch with `read_columns`, decoded, and with ``columns`` (and those for errors) alone."""
        if not self.sides:
            return batch
        from triokafka.formats import Decoding

        decoding = Decoding(**self.formats(), on_error=self.on_error)
        return decoding.apply(batch).select([*columns, *self.error_columns()])

    def error_columns(self) -> list[str]:
        """The names of columns for what could not be decoded."""
        return [f"{name}_error" for name in self.sides] if self.on_error == "null" else []

    def fields(self, fields: Sequence[StructField]) -> list[StructField]:
        """The fields of a frame, with those that are decoded, and those for errors."""
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
        # Without the frames that have the address and the password, which Spark can show.
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

    from triokafka.spark.schema import to_arrow

    try:
        schema = to_arrow(types.StructType.fromJson(json.loads(side.schema or "")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"Option '{name}Schema' is not the JSON of a Spark schema, as frame.schema.json() has it, or not of one"
            f" that JSON can be read as: {error}"
        ) from None
    return JsonFormat(schema, enveloped=registry is not None)
