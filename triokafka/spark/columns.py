"""Names of the columns of Spark's own Kafka source, and the Arrow form of a Spark schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"


def to_arrow(schema: StructType) -> pyarrow.Schema:
    """Return the Arrow schema that Spark requires for its schema, with timestamps in UTC."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2 the time zone was always UTC.
    return to_arrow_schema(
        schema, **({"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {})
    )
