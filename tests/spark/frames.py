"""Schemas of frames without a session: Spark parses its own notation only with the JVM."""

from __future__ import annotations

from typing import Any

from pyspark.sql import types

HEADERS = "array<struct<key:string,value:binary>>"
_KINDS: dict[str, Any] = {
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "double": types.DoubleType(),
    "map<string,binary>": types.MapType(types.StringType(), types.BinaryType()),
    HEADERS: types.ArrayType(
        types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
    ),
}


def frame(**columns: str) -> types.StructType:
    """Return the schema with these columns, with types as Spark prints them."""
    return types.StructType([types.StructField(name, _KINDS[kind]) for name, kind in columns.items()])
