"""Reading decoded keys and values, with a schema registry, as Spark's Python workers do it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest
from pyspark.sql import types

import pyspark_triokafka
from tests.spark.topics import Record, make_topic, options
from tests.support.schema_registry import StubRegistry, schema_registry
from triokafka.errors import ConfigurationError
from triokafka.formats import DecodeError
from triokafka.spark.planning.read_options import ReadOptions

SCHEMA = {"type": "record", "name": "R", "fields": [
    {"name": "n", "type": "int"},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "counts", "type": {"type": "map", "values": "long"}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
]}  # fmt: skip


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with schema_registry() as registry:
        yield registry


def enveloped(number: int, value: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def rows(given: dict[str, str]) -> list[dict[str, Any]]:
    """Return the rows of the data source through Spark's steps, with everything pickled as Spark does."""
    source = pyspark_triokafka.DefaultSource(given)
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source.reader(schema)))
    found: list[dict[str, Any]] = []
    for task in reader.partitions():
        for batch in pickle.loads(pickle.dumps(reader)).read(task):
            from pyspark.sql.pandas.types import to_arrow_schema

            assert batch.schema == to_arrow_schema(schema, timezone="UTC")
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def test_avro_values_become_columns_of_the_newest_schema(bootstrap: str, stub: StubRegistry) -> None:
    """Promised: Avro and Protobuf without jars"""
    topic = make_topic(bootstrap)
    number = stub.register(f"{topic}-value", json.dumps(SCHEMA))
    value = {"n": 1, "tags": ["a", None], "counts": {"x": 1}, "at": None}
    topic = filled(bootstrap, topic, [Record(enveloped(number, value), b"k"), Record(None)])
    given = options(bootstrap, topic, valueFormat="avro", schemaRegistry=stub.url)
    found = rows(given)
    assert [(row["key"], row["value"]) for row in found] == [(b"k", {**value, "counts": [("x", 1)]}), (None, None)]
    assert list(found[0]) == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def filled(bootstrap: str, topic: str, records: list[Record]) -> str:
    import trio

    import triokafka

    async def fill() -> None:
        async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            for record in records:
                await producer.send(topic, record.value, key=record.key)

    trio.run(fill)
    return topic


def test_a_query_reads_with_the_newest_schema_at_planning_time(bootstrap: str, stub: StubRegistry) -> None:
    topic = make_topic(bootstrap)
    number = stub.register(f"{topic}-value", json.dumps(SCHEMA))
    filled(bootstrap, topic, [Record(enveloped(number, {"n": 1, "tags": [], "counts": {}}))])
    source = pyspark_triokafka.DefaultSource(options(bootstrap, topic, valueFormat="avro", schemaRegistry=stub.url))
    reader = source.reader(source.schema())
    more = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "more", "type": "int", "default": 0}]}
    stub.register(f"{topic}-value", json.dumps(more))
    (task,) = reader.partitions()
    (batch,) = pickle.loads(pickle.dumps(reader)).read(task)
    assert list(batch["value"].to_pylist()[0]) == ["n", "tags", "counts", "at"]


@pytest.mark.parametrize("streaming", [False, True])
def test_the_schema_of_a_query_is_requested_once_from_the_registry(
    bootstrap: str, stub: StubRegistry, streaming: bool
) -> None:
    """A new schema may be registered between Spark's calls: the columns are those of the first response."""
    topic = make_topic(bootstrap)
    stub.register(f"{topic}-value", json.dumps(SCHEMA))
    source = pyspark_triokafka.DefaultSource(options(bootstrap, topic, valueFormat="avro", schemaRegistry=stub.url))
    schema = source.schema()
    more = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "more", "type": "int", "default": 0}]}
    stub.register(f"{topic}-value", json.dumps(more))
    again = pickle.loads(pickle.dumps(source))
    reader: Any = again.streamReader(schema) if streaming else again.reader(schema)
    assert list(reader.options.decoding.formats()) == ["value"]
    assert len(stub.asked) == 1


def test_json_values_and_keys_by_a_schema_of_spark(bootstrap: str) -> None:
    schema = types.StructType(
        [types.StructField("n", types.LongType()), types.StructField("at", types.TimestampType())]
    ).json()
    topic = make_topic(bootstrap, [Record(b'{"n": 1, "at": "2026-01-02T00:00:00Z"}', b'{"n": 2}'), Record(b"{}", None)])
    given = options(
        bootstrap,
        topic,
        valueFormat="json",
        valueSchema=schema,
        keyFormat="json",
        keySchema=schema,
        columns="key,value",
    )
    found = rows(given)
    assert [row["key"] for row in found] == [{"n": 2, "at": None}, None]
    assert [row["value"]["n"] for row in found] == [1, None]


def test_a_poison_value_fails_with_its_offset_or_becomes_null(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"{}"), Record(b"poison", partition=1)], partitions=2)
    schema = '{"type": "struct", "fields": []}'
    given = options(
        bootstrap, topic, valueFormat="json", columns="value",
        valueSchema=schema.replace("[]", '[{"name": "n", "type": "long", "nullable": true, "metadata": {}}]'),
    )  # fmt: skip
    with pytest.raises(DecodeError, match=f"value of topic {topic}, partition 1, offset 0 cannot be decoded"):
        rows(given)
    found = rows({**given, "onDecodeError": "null"})
    assert [row["value"] for row in found] == [{"n": None}, None]
    assert [row["value_error"] is None for row in found] == [True, False]
    assert list(found[0]) == ["value", "value_error"]


def test_a_value_of_an_unknown_schema_fails_with_its_offset_or_becomes_null(bootstrap: str, stub: StubRegistry) -> None:
    topic = make_topic(bootstrap)
    number = stub.register(f"{topic}-value", json.dumps(SCHEMA))
    value = {"n": 1, "tags": [], "counts": {}}
    filled(bootstrap, topic, [Record(enveloped(99, value)), Record(enveloped(number, value))])
    given = options(bootstrap, topic, valueFormat="avro", schemaRegistry=stub.url, columns="value")
    with pytest.raises(DecodeError, match=f"topic {topic}, partition 0, offset 0 .* schema 99 is not available"):
        rows(given)
    poison, good = rows({**given, "onDecodeError": "null"})
    assert poison["value"] is None and "404" in poison["value_error"]
    assert good["value"]["n"] == 1 and good["value_error"] is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"valueFormat": "xml"}, "'valueFormat' must be one of raw, json, avro, protobuf"),
        ({"valueFormat": "json"}, "'valueSchema' must have the schema of JSON"),
        ({"valueFormat": "avro"}, "'valueSchema' or 'schemaRegistry' must be given"),
        ({"valueSchema": "{}"}, "'valueFormat' must be given where 'valueSchema' is, and is raw"),
        ({"keySubject": "orders"}, "'keyFormat' must be given where 'keySubject' is, and is raw"),
        ({"valueMessage": "Order"}, "'valueFormat' must be given where 'valueMessage' is, and is raw"),
        ({"schemaRegistry": "http://x"}, "do nothing without 'valueFormat' or 'keyFormat'"),
        ({"valueFormat": "avro", "schemaRegistry": "x"}, "must look like http"),
        ({"keyFormat": "json", "keySchema": "{}", "columns": "value"}, "needs the column key"),
        ({"valueFormat": "avro", "valueSchema": '"int"', "onDecodeError": "skip"}, "'fail' or 'null', not 'skip'"),
        ({"valueFormat": "avro", "schemaRegistry": "http://x", "subscribe": "a,b"}, "'valueSubject' must be given"),
    ],
)
def test_contradictory_options_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ReadOptions.parse({**options("localhost:9092", "t"), **given})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        "", "{", "5", "[]", '"string"', '{"fields": 5}', '{"fields": [5]}',
        '{"fields": [{"name": "a", "type": "nosuch", "nullable": true, "metadata": {}}]}',
        '{"fields": [{"name": "a", "type": "interval", "nullable": true, "metadata": {}}]}',
        '{"fields": [{"name": "a", "type": "decimal(50,2)", "nullable": true, "metadata": {}}]}',
    ],
)  # fmt: skip
def test_invalid_schema_is_reported_with_its_option(schema: str) -> None:
    source = pyspark_triokafka.DefaultSource(
        {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "keyFormat": "json", "keySchema": schema}
    )
    with pytest.raises(ConfigurationError, match="Option 'keySchema' is not the JSON of a Spark schema"):
        source.schema()


@pytest.mark.parametrize(("form", "schema"), [("avro", "{"), ("avro", '"nothing"'), ("protobuf", "nowhere:Order")])
def test_invalid_one_of_two_schemas_is_reported(form: str, schema: str) -> None:
    given = {"valueFormat": "avro", "valueSchema": '"string"', "keyFormat": form, "keySchema": schema}
    source = pyspark_triokafka.DefaultSource({**options("nowhere:1", "t"), **given})
    with pytest.raises(ConfigurationError, match=f"Option 'keyFormat' is {form}: .*{schema[1:-1]}"):
        source.schema()


def test_no_repr_contains_credentials() -> None:
    given = {"valueFormat": "avro", "schemaRegistry": "http://x", "schemaRegistry.user": "me",
             "schemaRegistry.password": "secret"}  # fmt: skip
    found = ReadOptions.parse({**options("localhost:9092", "t"), **given})
    assert found.decoding.registry is not None
    assert found.decoding.registry.password == "secret"
    assert "secret" not in repr(found)


HAS_TIME = hasattr(types, "TimeType")  # Spark 4.1 and newer have times of day


def logical(name: str, kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": {"type": kind, "logicalType": logical_type, **more}}


LOGICAL = {"type": "record", "name": "L", "fields": [
    *SCHEMA["fields"],
    logical("day", "int", "date"),
    logical("millis", "long", "timestamp-millis"),
    logical("micros", "long", "timestamp-micros"),
    logical("local", "long", "local-timestamp-micros"),
    logical("price", "bytes", "decimal", precision=9, scale=2),
    logical("id", "string", "uuid"),
    *([logical("clock_ms", "int", "time-millis"), logical("clock", "long", "time-micros")] if HAS_TIME else []),
]}  # fmt: skip
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def test_decoded_columns_in_a_session(spark: Any, bootstrap: str, stub: StubRegistry) -> None:
    """Avro's logical types become Spark's own; instants do not depend on the session's time zone."""
    topic = make_topic(bootstrap)
    number = stub.register(f"{topic}-value", json.dumps(LOGICAL))
    same = {
        "day": MOMENT.date(), "millis": MOMENT, "micros": MOMENT, "local": MOMENT.replace(tzinfo=None),
        "price": Decimal("12.34"), "id": UUID(int=7),
        **({"clock_ms": MOMENT.time(), "clock": MOMENT.time()} if HAS_TIME else {}),
    }  # fmt: skip
    values = [{"n": n, "tags": [str(n)], "counts": {"x": n}, "at": None, **same} for n in range(100)]
    filled(bootstrap, topic, [Record(enveloped(number, value, LOGICAL)) for value in values])
    frame = (
        spark.read.format("triokafka")
        .options(**options(bootstrap, topic, valueFormat="avro", schemaRegistry=stub.url))
        .load()
    )
    (row,) = frame.selectExpr(
        "sum(value.n) AS n", "sum(value.counts['x']) AS x", "max(value.tags[0]) AS t", "max(value.day) AS day",
        "max(unix_micros(value.millis)) AS millis", "max(unix_micros(value.micros)) AS micros",
        "max(value.local) AS local", "sum(value.price) AS price", "max(value.id) AS id",
    ).collect()  # fmt: skip
    assert (row["n"], row["x"], row["t"]) == (4950, 4950, "99")
    micros = int(MOMENT.timestamp() * 1_000) * 1_000
    assert (row["millis"], row["micros"]) == (micros, micros)
    assert (row["day"], row["local"]) == (MOMENT.date(), MOMENT.replace(tzinfo=None))
    if HAS_TIME:
        (clocks,) = frame.select("value.clock_ms", "value.clock").distinct().collect()
        assert tuple(clocks) == (MOMENT.time(), MOMENT.time())
    assert (row["price"], row["id"]) == (Decimal("1234.00"), str(UUID(int=7)))
    assert [field.dataType.simpleString() for field in frame.schema["value"].dataType.fields[4:10]] == [
        "date", "timestamp", "timestamp", "timestamp_ntz", "decimal(9,2)", "string",
    ]  # fmt: skip
