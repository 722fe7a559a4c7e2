"""The schema of the reader: types and order of the columns of Spark's own Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triokafka.errors import ConfigurationError
from triokafka.spark.columns import to_arrow

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from triokafka.spark.planning.read_options import ReadOptions


def spark_schema(options: ReadOptions) -> StructType:
    """Return the Spark schema; every column is nullable."""
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
    """Return the schema of the reader's record batches; Spark requires exact equality."""
    return to_arrow(spark_schema(options))


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Refuse a schema given by the user.

    Raises:
        ConfigurationError: it differs from the source's schema.
    """
    if schema != spark_schema(options):
        raise ConfigurationError("Kafka source has a fixed schema and cannot be set with a custom one")
