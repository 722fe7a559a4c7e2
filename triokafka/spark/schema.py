"""The columns: the same names, types and order as Spark's own Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from triokafka.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from triokafka.spark.options import ReadOptions

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"


def spark_schema(options: ReadOptions) -> StructType:
    """The schema as Spark has it; every column may be null."""
    from pyspark.sql import types

    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    kinds = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }
    fields = [types.StructField(name, kinds[name]) for name in options.columns]
    return types.StructType(options.decoding.fields(fields))


def arrow_schema(options: ReadOptions) -> pyarrow.Schema:
    """The schema of the record batches that the reader yields; Spark compares it to the letter."""
    return to_arrow(spark_schema(options))


def to_arrow(schema: StructType) -> pyarrow.Schema:
    """The Arrow schema that Spark wants for a schema of its own, with timestamps in UTC."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2 there was no other time zone.
    return to_arrow_schema(
        schema, **({"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {})
    )


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema given by the user.

    Raises:
        ConfigurationError: it is not the source's own.
    """
    if schema != spark_schema(options):
        raise ConfigurationError("Kafka source has a fixed schema and cannot be set with a custom one")
