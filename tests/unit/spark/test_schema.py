"""Columns and types, compared with those of Spark's own Kafka source."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.schema import arrow_schema, check_schema, spark_schema

# The output of ``spark.read.format("kafka").load().schema`` with the connector's jar.
CONNECTOR = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
CONNECTOR_WITH_HEADERS = CONNECTOR.replace(">", ",headers:array<struct<key:string,value:binary>>>")


def options(headers: bool = False) -> ReadOptions:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "includeHeaders": str(headers).lower()}
    return ReadOptions.parse(given)


@pytest.mark.parametrize(("headers", "expected"), [(False, CONNECTOR), (True, CONNECTOR_WITH_HEADERS)])
def test_columns_and_types_equal_the_connectors(headers: bool, expected: str) -> None:
    schema = spark_schema(options(headers))
    assert schema.simpleString() == expected
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize("headers", [False, True])
def test_arrow_types_equal_those_that_spark_expects(headers: bool) -> None:
    """Spark 4.2 and later compare the first batch's schema exactly, including nested names."""
    schema = arrow_schema(options(headers))
    assert tuple(schema.names) == options(headers).columns
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in schema)
    assert from_arrow_schema(schema) == spark_schema(options(headers))
    if headers:
        element = schema.field("headers").type.value_field
        assert element.name == "element"
        assert [(inner.name, inner.type) for inner in element.type] == [("key", pa.string()), ("value", pa.binary())]


def test_a_user_defined_schema_is_refused() -> None:
    check_schema(spark_schema(options()), options())
    with pytest.raises(ConfigurationError, match="fixed schema and cannot be set with a custom one"):
        check_schema(StructType().add("value", "string"), options())
