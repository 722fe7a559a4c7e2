"""JSON, Avro and Protobuf by column, with a schema registry and without."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from tests.support.schema_registry import StubRegistry, schema_registry
from triokafka.errors import ClosedError, ConfigurationError
from triokafka.formats import (
    AvroFormat,
    DecodeError,
    Decoding,
    Format,
    JsonFormat,
    ProtobufFormat,
    SchemaRegistry,
    SchemaRegistryError,
    decoded,
)
from triokafka.world.system import RealWorld


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with schema_registry() as registry:
        yield registry


def enveloped(number: int, payload: bytes, indexes: bytes = b"") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + payload


def avro(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def values(how: Format, *payloads: bytes) -> tuple[list[Any], dict[int, str]]:
    found, errors = how.decode(pa.array(payloads, pa.binary()))
    assert found.type == how.type
    found.validate(full=True)
    return found.to_pylist(), dict(errors)


# -------------------------------------------------------------------- any format

NUMBERS = JsonFormat(pa.schema([("n", pa.int64())]))


def batch(*rows: bytes | None, **more: Any) -> pa.RecordBatch:
    count = len(rows)
    return pa.record_batch(
        {"value": pa.array(rows, pa.binary()), "topic": ["t"] * count, "partition": [3] * count,
         "offset": range(40, 40 + count), **more}
    )  # fmt: skip


def test_null_stays_null_and_other_columns_stay() -> None:
    found = Decoding(value=NUMBERS).apply(batch(None, b'{"n": 1}', None))
    assert found["value"].to_pylist() == [None, {"n": 1}, None]
    assert found.schema.names == ["value", "topic", "partition", "offset"]
    assert Decoding(value=NUMBERS).apply(batch(None))["value"].to_pylist() == [None]
    assert Decoding(value=NUMBERS).apply(batch()).num_rows == 0


def test_a_poison_value_fails_with_its_place() -> None:
    place = "value of topic t, partition 3, offset 42"
    with pytest.raises(DecodeError, match=f"{place} cannot be decoded: it is not a JSON object"):
        Decoding(value=NUMBERS).apply(batch(b'{"n": 1}', None, b"no", b"nor this"))


def test_malformed_value_becomes_null_with_a_warning_where_requested() -> None:
    decoding = Decoding(value=NUMBERS, key=NUMBERS, on_error="null")
    found = decoding.apply(batch(b'{"n": 1}', b"no", None, key=pa.array([b"{}", b"{}", b"no"])))
    assert found.schema == decoding.schema(batch(b"", key=pa.array([b""])).schema)
    assert found["value"].to_pylist() == [{"n": 1}, None, None]
    assert [why is None for why in found["value_error"].to_pylist()] == [True, False, True]
    assert [why is None for why in found["key_error"].to_pylist()] == [True, True, False]
    clean = decoding.apply(batch(b"{}", key=pa.array([b"{}"])))
    assert clean["value_error"].to_pylist() == [None]


def test_a_stream_of_batches_is_decoded_as_it_is_read() -> None:
    given = batch(b'{"n": 1}', b'{"n": 2}')
    reader = pa.RecordBatchReader.from_batches(given.schema, iter([given.slice(0, 1), given.slice(1)]))
    assert decoded(reader, value=NUMBERS).read_all()["value"].to_pylist() == [{"n": 1}, {"n": 2}]


def test_invalid_combinations_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_error='skip'"):
        Decoding(on_error="skip")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match="column 'key' cannot be decoded: the batch has only the columns value"
    ):
        Decoding(key=NUMBERS).schema(batch().schema)


# -------------------------------------------------------------------- JSON


def test_json_becomes_a_struct_of_the_known_fields() -> None:
    how = JsonFormat(
        pa.schema(
            [("id", pa.int32()), ("name", pa.string()), ("tags", pa.list_(pa.string())),
             ("at", pa.timestamp("us", tz="UTC")), ("in", pa.struct([("x", pa.float64())]))]
        )
    )  # fmt: skip
    found, errors = values(
        how,
        b'{"id": 1, "name": "\xc3\xa9", "tags": ["a"], "at": "2026-01-02T03:04:05Z", "in": {"x": 1.5}, "more": [1]}',
        b'{\n  "id": 2,\r\n "name": null\n}\n',
        b"{}",
    )
    assert not errors
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    empty = dict.fromkeys(("id", "name", "tags", "at", "in"))
    assert found == [
        {"id": 1, "name": "é", "tags": ["a"], "at": at, "in": {"x": 1.5}},
        {**empty, "id": 2},
        empty,
    ]


@pytest.mark.parametrize(
    "poison",
    [
        b"",
        b"  ",
        b"no",
        b'{"n": "x"}',
        b'{"n": 1}{"n": 2}',
        b"[1]",
        b'{"n": 1',
        b"\xff",
        b"null",
        b'{"n": 1}\0',
        b'{"m": "\xff"}',
    ],
)
def test_one_wrong_json_value_does_not_affect_others(poison: bytes) -> None:
    good = [b'{"n": %d}' % n for n in range(10)]
    found, errors = values(NUMBERS, *good[:4], poison, *good[4:])
    assert list(errors) == [4]
    assert found == [*({"n": n} for n in range(4)), None, *({"n": n} for n in range(4, 10))]


def test_a_lone_json_null_is_no_object() -> None:
    """pyarrow's parser ends the whole process on it."""
    assert values(NUMBERS, b"null") == ([None], {0: "it is not a JSON object"})


@pytest.mark.parametrize("halves", [(b'{"n": 1}{"n":', b"2}"), (b'{"n": 1}{"n": 2}\0', b'{"n": 3}')])
def test_json_that_continues_in_the_next_value_is_none(halves: tuple[bytes, bytes]) -> None:
    """The values have the right number of objects, but not one each."""
    found, errors = values(NUMBERS, *halves, b'{"n": 4}')
    assert found[0] is None and 0 in errors
    assert found[2] == {"n": 4}


def test_dates_in_json_are_strings_wherever_they_are() -> None:
    days = pa.list_(pa.struct([("day", pa.date32())]))
    how = JsonFormat(pa.schema([("day", pa.date32()), ("days", days)]))
    found, errors = values(how, b'{"day": "2026-01-02", "days": [{"day": "1969-12-31"}, null]}', b'{"day": "someday"}')
    assert found == [{"day": date(2026, 1, 2), "days": [{"day": date(1969, 12, 31)}, None]}, None]
    assert list(errors) == [1]


def test_maps_in_json_are_refused_before_anything_is_read() -> None:
    within = pa.struct([("names", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(ConfigurationError, match=r"field 'in\.names' is a map"):
        JsonFormat(pa.schema([("in", pa.list_(within))]))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (pa.time64("us"), "'at' is a time of day"),
        (pa.duration("us"), "'at' is an interval"),
        (pa.list_(pa.null()), "'at' is an array of nulls"),
        (pa.list_(pa.struct([("in", pa.struct([("n", pa.null())]))])), "'at' is an array of nulls"),
    ],
)
def test_types_that_the_parser_cannot_make_of_json_are_refused(kind: pa.DataType, sentence: str) -> None:
    """Every value would be an error, and pyarrow's parser makes broken arrays of the last two."""
    with pytest.raises(ConfigurationError, match=sentence):
        JsonFormat(pa.schema([("at", kind)]))


def test_json_in_a_registrys_envelope() -> None:
    how = JsonFormat(pa.schema([("n", pa.int64())]), enveloped=True)
    found, errors = values(how, enveloped(7, b'{"n": 1}'), b'{"n": 1}', enveloped(8, b"no"), enveloped(8, b'{"n": 2}'))
    assert found == [{"n": 1}, None, None, {"n": 2}]
    assert sorted(errors) == [1, 2]
    assert "does not begin with a zero byte" in errors[1]


# -------------------------------------------------------------------- Avro

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "n", "type": "int"}, {"name": "kind", "type": ["null", "shop.Kind"]}]}}},
    ],
}  # fmt: skip
ROW = {
    "id": 1,
    "note": "é",
    "kind": "OLD",
    "price": Decimal("12.34"),
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    "token": "8c3d0c9e-7d8f-4a51-9d7f-0b8f0a5f8a11",
    "counts": {"a": 1},
    "lines": [{"n": 1, "kind": "NEW"}, {"n": 2, "kind": None}],
}


def test_avro_types_become_columns() -> None:
    how = AvroFormat(json.dumps(ORDER))
    found, errors = values(how, avro(ORDER, ROW), avro(ORDER, {**ROW, "note": None, "counts": {}, "lines": []}))
    assert not errors
    assert found[0] == {**ROW, "counts": [("a", 1)]}
    assert found[1]["note"] is None
    assert how.type.field("price").type == pa.decimal128(9, 2)
    assert how.type.field("at").type == pa.timestamp("us", tz="UTC")
    assert pickle.loads(pickle.dumps(how)).type == how.type


@pytest.mark.parametrize(
    ("package", "make"), [("fastavro", lambda: AvroFormat('"int"')), ("google.protobuf", lambda: ProtobufFormat("m:C"))]
)
def test_a_missing_package_is_a_sentence_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[], Format]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"needs the package {package}: pip install 'triokafka\[formats\]'"):
        make()


def test_avro_of_another_record_is_a_short_sentence(stub: StubRegistry) -> None:
    """Several types in one topic: fastavro's own sentence has both schemas in it, with all that they refer to."""
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "int"}]}
    payment = {**order, "name": "shop.Payment"}
    stub.register("orders", json.dumps(order))
    number = stub.register("paid", json.dumps(payment))
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="orders")
    found, errors = values(how, enveloped(number, avro(payment, {"id": 3})))
    assert found == [None]
    assert errors == {0: "it was written as shop.Payment, which cannot be read as shop.Order"}


def test_an_avro_schema_that_is_no_json_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="is not valid JSON"):
        AvroFormat("{")


def test_avro_values_may_be_null_as_a_whole() -> None:
    schema = ["null", {"type": "map", "values": "int"}]
    assert values(AvroFormat(schema), avro(schema, None), avro(schema, {"a": 1})) == ([None, [("a", 1)]], {})  # type: ignore[arg-type]


def test_avro_names_are_known_wherever_the_schema_begins() -> None:
    suit = {"type": "enum", "name": "Suit", "symbols": ["CLUBS", "HEARTS"]}
    card = {"type": "record", "name": "game.Card",
            "fields": [{"name": "suit", "type": suit}, {"name": "trump", "type": ["null", "Suit"]}]}  # fmt: skip
    row = {"suit": "CLUBS", "trump": "HEARTS"}
    for schema, value in ((["null", card], row), ({"type": "array", "items": card}, [row])):
        how = pickle.loads(pickle.dumps(AvroFormat(schema)))  # type: ignore[arg-type]
        assert values(how, avro(schema, value)) == ([value], {})


@pytest.mark.parametrize(
    ("kind", "logical", "value"), [("string", "date", "x"), ("bytes", "uuid", b"x"), ("long", "time-millis", 3)]
)
def test_avro_logical_types_on_other_types_are_ignored(kind: str, logical: str, value: Any) -> None:
    assert values(AvroFormat({"type": kind, "logicalType": logical}), avro(kind, value)) == ([value], {})


def test_avro_values_of_many_schemas_are_read_as_the_newest(stub: StubRegistry) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "none"}]}  # fmt: skip
    first, second = (stub.register("orders-value", json.dumps(schema)) for schema in (old, new))
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="orders-value")
    found, errors = values(
        how,
        enveloped(first, avro(old, {"a": 1})),
        enveloped(second, avro(new, {"a": 2, "b": "x"})),
        b"\1\0\0\0\1",
        enveloped(first, avro(old, {"a": 3})),
        enveloped(first, b""),
        enveloped(first, avro(old, {"a": 4}) + b"!"),
        b"\0\0",
    )
    assert found == [{"a": 1, "b": "none"}, {"a": 2, "b": "x"}, None, {"a": 3, "b": "none"}, None, None, None]
    assert sorted(errors) == [2, 4, 5, 6]
    assert "1 bytes follow the value" in errors[5]
    values(how, enveloped(first, avro(old, {"a": 1})))
    assert sorted(stub.asked) == ["/schemas/ids/1", "/schemas/ids/2", "/subjects/orders-value/versions/latest"]
    again = pickle.loads(pickle.dumps(how))
    assert values(again, enveloped(second, avro(new, {"a": 5, "b": "y"})))[0] == [{"a": 5, "b": "y"}]


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def read_as(stub: StubRegistry, written: Any, read: Any, value: Any) -> Any:
    """Decode a value written with one schema while the newest schema is another."""
    number = stub.register("s", json.dumps(written))
    stub.register("s", json.dumps(read))
    how = pickle.loads(pickle.dumps(AvroFormat(registry=SchemaRegistry(stub.url), subject="s")))
    found, errors = values(how, enveloped(number, avro(written, value)))
    assert not errors
    return found[0]


MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
MILLIS = int(MOMENT.timestamp() * 1000)
LARGE = Decimal(f"{10**37 + 1}E-2")  # of more digits than arithmetic keeps


@pytest.mark.parametrize(
    ("written", "read", "value", "expected"),
    [
        ("long", logical("long", "timestamp-millis"), MILLIS, MOMENT),
        ("long", logical("long", "timestamp-micros"), MILLIS * 1000, MOMENT),
        ("long", logical("long", "local-timestamp-millis"), MILLIS, MOMENT.replace(tzinfo=None)),
        ("int", logical("int", "time-millis"), 1_500, time(0, 0, 1, 500_000)),
        ("int", logical("int", "date"), 1, date(1970, 1, 2)),
        ("bytes", logical("bytes", "decimal", precision=38, scale=2), (10**37 + 1).to_bytes(16), LARGE),
        (["null", "long"], ["null", logical("long", "timestamp-millis")], MILLIS, MOMENT),
        (logical("long", "timestamp-millis"), "long", MOMENT, MILLIS),
        (logical("long", "timestamp-millis"), ["null", "double"], MOMENT, float(MILLIS)),
        (logical("int", "time-millis"), "long", time(0, 0, 1), 1_000),
        (logical("int", "date"), "int", date(1970, 1, 2), 1),
        (logical("bytes", "decimal", precision=9, scale=2), "bytes", Decimal("1.25"), b"\x7d"),
        (logical("string", "uuid"), "string", UUID(int=5), str(UUID(int=5))),
        (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), MOMENT, MOMENT),
    ],
)  # fmt: skip
def test_avro_goes_by_the_logical_types_of_the_schema_that_is_read(
    stub: StubRegistry, written: Any, read: Any, value: Any, expected: Any
) -> None:
    """A logical type may be added to a field later, or removed: the underlying number is the same."""
    assert read_as(stub, written, read, value) == expected


def test_avros_logical_types_are_looked_for_where_fields_are(stub: StubRegistry) -> None:
    at = logical("long", "timestamp-millis")
    point = {"type": "record", "name": "Point", "fields": [{"name": "was", "type": at}, {"name": "at", "type": at}]}
    written = {"type": "record", "name": "R", "fields": [
        {"name": "points", "type": {"type": "array", "items": point}},
        {"name": "one", "type": ["null", "Point"]},
        {"name": "times", "type": {"type": "map", "values": at}},
        {"name": "gone", "type": at},
    ]}  # fmt: skip
    newer = {"type": "record", "name": "Point", "fields": [
        {"name": "since", "type": "long", "aliases": ["was"]}, {"name": "at", "type": at}]}  # fmt: skip
    read = {"type": "record", "name": "R", "fields": [
        {"name": "points", "type": {"type": "array", "items": newer}},
        {"name": "one", "type": ["null", "Point"]},
        {"name": "times", "type": {"type": "map", "values": "long"}},
    ]}  # fmt: skip
    place = {"was": MOMENT, "at": MOMENT}
    value = {"points": [place], "one": place, "times": {"a": MOMENT}, "gone": MOMENT}
    found = {"since": MILLIS, "at": MOMENT}
    assert read_as(stub, written, read, value) == {"points": [found], "one": found, "times": [("a", MILLIS)]}


def test_avros_logical_types_are_looked_for_in_schemas_that_others_build_upon(stub: StubRegistry) -> None:
    at = logical("long", "timestamp-millis")
    moments = [{"type": "record", "name": "Moment", "fields": [{"name": "at", "type": kind}]} for kind in (at, "long")]
    event = {"type": "record", "name": "Event", "fields": [{"name": "begin", "type": "Moment"}]}
    numbers = []
    for version, moment in enumerate(moments, 1):
        stub.register("moment", json.dumps(moment))
        reference = {"name": "Moment", "subject": "moment", "version": version}
        numbers.append(stub.register("events", json.dumps(event), references=(reference,)))
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="events")
    written = {**event, "fields": [{"name": "begin", "type": moments[0]}]}
    found = values(how, enveloped(numbers[0], avro(written, {"begin": {"at": MOMENT}})))
    assert found == ([{"begin": {"at": MILLIS}}], {})


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (logical("long", "timestamp-millis"), MILLIS, MOMENT),
        (["null", logical("long", "timestamp-millis")], None, None),
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
        (logical("bytes", "decimal", precision=9, scale=2), "\u007d", Decimal("1.25")),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ({"type": "map", "values": logical("int", "date")}, {"a": 1}, [("a", date(1970, 1, 2))]),
        ({"type": "record", "name": "Q", "fields": [
            {"name": "n", "type": "int", "default": 5}, {"name": "b", "type": "bytes", "default": "\u00ff"}]},
         {}, {"n": 5, "b": b"\xff"}),
    ],
)  # fmt: skip
def test_avro_fields_that_came_later_have_their_default(
    stub: StubRegistry, kind: Any, default: Any, expected: Any
) -> None:
    """A default is JSON: its bytes are characters, its times numbers, and its records may omit fields with a
    default.
    """
    written = {"type": "record", "name": "R", "fields": []}
    read = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]}
    assert read_as(stub, written, read, {}) == {"a": expected}


def test_avro_schemas_may_build_upon_others(stub: StubRegistry) -> None:
    point = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
    line = {"type": "record", "name": "Line", "fields": [
        {"name": "from", "type": "geo.Point"}, {"name": "to", "type": "geo.Point"}]}  # fmt: skip
    stub.register("geo.Point", json.dumps(point))
    reference = {"name": "geo.Point", "subject": "geo.Point", "version": 1}
    number = stub.register("lines-value", json.dumps(line), references=(reference,))
    whole = {**line, "fields": [{"name": "from", "type": point}, {"name": "to", "type": "geo.Point"}]}
    row = {"from": {"x": 1}, "to": {"x": 2}}
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="lines-value")
    assert values(how, enveloped(number, avro(whole, row))) == ([row], {})


def test_value_with_an_unknown_schema_is_malformed_and_reported_once(
    stub: StubRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """One such value must not end a query that tolerates malformed values; the others of its batch are read."""
    number = stub.register("s", '"long"')
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="s")
    for _ in range(2):
        found, errors = values(how, enveloped(99, b"\2"), enveloped(number, b"\4"), enveloped(99, b"\6"))
        assert found == [None, 2, None]
        assert list(errors) == [0, 2]
        assert "its schema 99 is not available" in errors[0] and "404 Schema 99 not found" in errors[0]
    assert len(caplog.records) == 1
    # It was asked for again, once in each batch: a registry may lag behind the one that wrote.
    assert [path for path in stub.asked if "99" in path] == ["/schemas/ids/99"] * 2
    stub.schemas[99] = stub.schemas[number]
    assert values(how, enveloped(99, b"\2")) == ([1], {})


def test_a_schema_that_is_none_is_an_error_of_the_values_that_name_it(stub: StubRegistry) -> None:
    stub.register("s", '"long"')
    number = stub.register("other", 'syntax = "proto3";', kind="PROTOBUF")
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="s")
    found, errors = values(how, enveloped(number, b"\2"))
    assert found == [None]
    assert "is not valid JSON" in errors[0]


def test_a_registry_that_cannot_be_asked_is_always_an_error(stub: StubRegistry, clock: Clock) -> None:
    """Nulls in place of values that the registry cannot decode would be lost data."""
    stub.register("s", '"long"')
    how = AvroFormat(registry=SchemaRegistry(stub.url), subject="s")
    for failures in ([503] * 6, [401]):
        stub.failures[:] = failures
        with pytest.raises(SchemaRegistryError, match="not now"):
            values(how, enveloped(99, b"\2"))
    with pytest.raises(SchemaRegistryError, match="404"):
        AvroFormat(registry=SchemaRegistry(stub.url), subject="none")


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (["int", "string"], "an Avro union of 2 types"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "contains itself"),
        ({"type": "rekord"}, "is invalid"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40}, "an Avro decimal with precision 40"),
        ("nothing", "is invalid"),
        (None, "AvroFormat needs a schema, or a registry and a subject"),
    ],
)
def test_avro_schemas_without_a_column_type_are_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        AvroFormat(schema if schema is None else json.dumps(schema))


# -------------------------------------------------------------------- Protobuf


def proto(name: str = "shop.proto", package: str = "shop") -> descriptor_pb2.FileDescriptorProto:
    """``message Unused {}`` and ``message Order`` with about every kind of field."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Unused")
    order = file.message_type.add(name="Order")
    kind = descriptor_pb2.FieldDescriptorProto
    enum = order.enum_type.add(name="Kind")
    enum.value.add(name="NEW", number=0)
    enum.value.add(name="OLD", number=1)
    line = order.nested_type.add(name="Line")
    line.field.add(name="n", number=1, type=kind.TYPE_SINT32, label=kind.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kind.TYPE_UINT32, label=kind.LABEL_OPTIONAL)
    full = f".{package}.Order"
    for number, (field, given) in enumerate(
        {
            "id": {"type": kind.TYPE_UINT64},
            "note": {"type": kind.TYPE_STRING, "proto3_optional": True, "oneof_index": 0},
            "data": {"type": kind.TYPE_BYTES},
            "kind": {"type": kind.TYPE_ENUM, "type_name": f"{full}.Kind"},
            "at": {"type": kind.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"},
            "maybe": {"type": kind.TYPE_MESSAGE, "type_name": ".google.protobuf.Int64Value"},
            "first": {"type": kind.TYPE_MESSAGE, "type_name": f"{full}.Line"},
            "lines": {"type": kind.TYPE_MESSAGE, "type_name": f"{full}.Line", "label": kind.LABEL_REPEATED},
            "numbers": {"type": kind.TYPE_DOUBLE, "label": kind.LABEL_REPEATED},
            "counts": {"type": kind.TYPE_MESSAGE, "type_name": f"{full}.CountsEntry", "label": kind.LABEL_REPEATED},
        }.items(),
        1,
    ):
        order.field.add(**{"name": field, "number": number, "label": kind.LABEL_OPTIONAL, **given})
    order.oneof_decl.add(name="_note")
    return file


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(proto())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Order = order_class()
FILLED = {
    "id": Decimal(2**64 - 1),
    "note": "é",
    "data": b"\0\xff",
    "kind": "OLD",
    "at": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    "maybe": 0,
    "first": {"n": -1},
    "lines": [{"n": 1}, {"n": 2}],
    "numbers": [1.5],
    "counts": [("a", 2**32 - 1)],
}
EMPTY: dict[str, Any] = {
         "id": Decimal(0), "note": None, "data": b"", "kind": "NEW", "at": None, "maybe": None, "first": None,
         "lines": [], "numbers": [], "counts": []}  # fmt: skip


def filled() -> bytes:
    made = Order(id=2**64 - 1, note="é", data=b"\0\xff", kind=1, numbers=[1.5], counts={"a": 2**32 - 1})
    made.at.FromDatetime(FILLED["at"])
    made.maybe.value = 0
    made.first.n = -1
    made.lines.add(n=1)
    made.lines.add(n=2)
    return bytes(made.SerializeToString())


def test_protobuf_messages_become_structs_by_field() -> None:
    found, errors = values(ProtobufFormat(Order), filled(), b"", b"\xff", filled())
    assert found == [FILLED, EMPTY, None, FILLED]
    assert list(errors) == [2]
    assert values(ProtobufFormat(f"{__name__}:Order"), b"")[0] == [EMPTY]


def test_a_message_with_a_time_that_is_none_does_not_affect_others() -> None:
    """It is a message for Protobuf; only its time is in no calendar."""
    bad = b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f"
    file = descriptor_pb2.FileDescriptorProto(
        name="at.proto", syntax="proto2", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    field = file.message_type.add(name="Note").field
    field.add(name="at", number=1, type=11, type_name=".google.protobuf.Timestamp", label=1)
    field.add(name="text", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    note = message_factory.GetMessageClass(pool.FindMessageTypeByName("Note"))
    found, errors = values(ProtobufFormat(note), b"\x12\1a", bad, b"\x12\1\xff", b"")
    assert found == [{"at": None, "text": "a"}, None, None, {"at": None, "text": None}]
    assert "Timestamp is not valid" in errors[1] and "utf8" in errors[2]


def test_an_enums_unknown_number_is_kept() -> None:
    assert values(ProtobufFormat(Order), bytes(Order(kind=7).SerializeToString()))[0] == [{**EMPTY, "kind": "7"}]


def test_protobuf_from_a_registry(stub: StubRegistry) -> None:
    """With its imports, and without a compiler: the registry gives descriptors."""
    text = base64.b64encode(proto("default").SerializeToString()).decode()
    number = stub.register("orders-value", "syntax…", "PROTOBUF", serialized=text)
    how = ProtobufFormat(registry=SchemaRegistry(stub.url), subject="orders-value", name="shop.Order")
    # [1]: the second message of the file; [1, 0] would be its first inner one.
    found, errors = values(
        how,
        enveloped(number, filled(), b"\2\2"),
        enveloped(number, b"", b"\2\2"),
        b"\0\0",
        enveloped(number, b"", b"\x80"),
    )
    assert found == [FILLED, EMPTY, None, None]
    assert sorted(errors) == [2, 3]
    again = pickle.loads(pickle.dumps(how))
    assert values(again, enveloped(number, filled(), b"\2\2"))[0] == [FILLED]
    with pytest.raises(ConfigurationError, match=r"no message shop\.Odrer; it has Unused, Order"):
        ProtobufFormat(registry=SchemaRegistry(stub.url), subject="orders-value", name="shop.Odrer")


def test_a_subject_of_another_kind_and_a_class_of_no_message_are_refused(stub: StubRegistry) -> None:
    """A registry gives an Avro schema as it is, also where it is asked for a descriptor."""
    stub.register("orders-value", json.dumps(ORDER), serialized=json.dumps(ORDER))
    with pytest.raises(ConfigurationError, match="subject 'orders-value': its schema is of type AVRO, not PROTOBUF"):
        ProtobufFormat(registry=SchemaRegistry(stub.url), subject="orders-value")
    with pytest.raises(ConfigurationError, match="'json:loads' is not a generated message class"):
        ProtobufFormat("json:loads")


def test_another_message_of_the_same_file_is_not_read_as_the_one_that_is_meant(stub: StubRegistry) -> None:
    """Its bytes would be a message with unknown fields alone: a row of defaults."""
    text = base64.b64encode(proto("default").SerializeToString()).decode()
    number = stub.register("orders-value", "syntax…", "PROTOBUF", serialized=text)
    how = ProtobufFormat(registry=SchemaRegistry(stub.url), subject="orders-value", name="shop.Order")
    found, errors = values(how, enveloped(number, b"", b"\0"), enveloped(number, b"", b"\2\x12"))
    assert found == [None, None]
    assert errors[0] == "ValueError: it is a shop.Unused, not a shop.Order"
    assert errors[1] == "ValueError: schema 1 has no message [9]"


def test_the_first_message_of_another_schema_is_not_read_as_the_one_that_is_meant(stub: StubRegistry) -> None:
    """Several types in one topic, each with a subject of its own: all are the first of their files."""
    first = proto("default")
    del first.message_type[0]
    number = stub.register(
        "orders", "syntax…", "PROTOBUF", serialized=base64.b64encode(first.SerializeToString()).decode()
    )
    other = descriptor_pb2.FileDescriptorProto(name="default", package="shop", syntax="proto3")
    other.message_type.add(name="Payment")
    payment = stub.register(
        "paid", "syntax…", "PROTOBUF", serialized=base64.b64encode(other.SerializeToString()).decode()
    )
    how = pickle.loads(pickle.dumps(ProtobufFormat(registry=SchemaRegistry(stub.url), subject="orders")))
    asked = len(stub.asked)
    found, errors = values(
        how, enveloped(payment, b"", b"\0"), enveloped(number, filled(), b"\0"), enveloped(payment, b"", b"\0")
    )
    assert found == [None, FILLED, None]
    assert errors[0] == errors[2] == "ValueError: it is a shop.Payment, not a shop.Order"
    assert len(stub.asked) == asked + 1


def test_a_message_with_an_unknown_schema_cannot_be_decoded(stub: StubRegistry, clock: Clock) -> None:
    """The registry is asked for another place of the file alone, and once for all values of a batch."""
    text = base64.b64encode(proto("default").SerializeToString()).decode()
    number = stub.register("orders-value", "syntax…", "PROTOBUF", serialized=text)
    how = ProtobufFormat(registry=SchemaRegistry(stub.url), subject="orders-value", name="shop.Order")
    found, errors = values(
        how, enveloped(99, b"", b"\0"), enveloped(number, filled(), b"\2\2"), enveloped(99, b"", b"\0")
    )
    assert found == [None, FILLED, None]
    assert errors[0] == errors[2] and "404 Schema 99 not found" in errors[0]
    assert sum("ids/99" in path for path in stub.asked) == 1
    stub.failures[:] = [503] * 6
    with pytest.raises(SchemaRegistryError, match="503 not now"):
        values(how, enveloped(99, b"", b"\0"))


def test_the_first_message_of_a_file_has_a_short_envelope(stub: StubRegistry) -> None:
    how = ProtobufFormat(Order, registry=SchemaRegistry(stub.url))
    assert values(how, enveloped(1, filled(), b"\0"))[0] == [FILLED]
    assert stub.asked == []


# -------------------------------------------------------------------- the registry


class Clock(RealWorld):
    """Time that passes in the pauses of registries, and by `advance`."""

    def __init__(self) -> None:
        super().__init__()
        self.random.seed(1)
        self.pauses: list[float] = []
        self.at = 0.0

    def wall_ms(self) -> int:
        return round(self.at * 1000)

    def advance(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()

    def pause(registry: SchemaRegistry, seconds: float) -> None:
        made.pauses.append(seconds)
        made.advance(seconds)

    monkeypatch.setattr(SchemaRegistry, "_pause", pause)
    return made


def test_requests_to_a_failing_registry_are_repeated_with_growing_pauses(stub: StubRegistry, clock: Clock) -> None:
    stub.register("s", '"int"')
    stub.failures = [503, 500, 429]
    assert SchemaRegistry(stub.url, world=clock).by_id(1).text == '"int"'
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.4], rel=0.2)
    assert clock.pauses != [0.1, 0.2, 0.4], "by chance a little more or less: tasks that failed together part"
    stub.failures, clock.pauses = [503] * 10, []
    with pytest.raises(SchemaRegistryError, match="503 not now"):
        SchemaRegistry(stub.url, world=clock).by_id(1)
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6], rel=0.2)
    assert len(stub.failures) == 4, "six tries"


def test_nothing_is_asked_again_when_the_time_is_over(stub: StubRegistry, clock: Clock) -> None:
    """This holds after pauses and after slow answers; each address is still asked once."""
    stub.failures = [503] * 10
    with pytest.raises(SchemaRegistryError):
        SchemaRegistry(stub.url, timeout_ms=500, world=clock).by_id(1)
    assert clock.pauses == pytest.approx([0.1, 0.2], rel=0.2)
    stub.failures, clock.pauses = [503] * 10, []
    stub.on_answer = lambda: clock.advance(0.4)
    with pytest.raises(SchemaRegistryError):
        SchemaRegistry(f"{stub.url},{stub.url}/", timeout_ms=500, world=clock).by_id(1)
    assert (clock.pauses, len(stub.failures)) == ([], 8)


def test_a_registry_that_is_busy_says_for_how_long(stub: StubRegistry, clock: Clock) -> None:
    stub.register("s", '"int"')
    stub.failures, stub.retry_after = [429, 503, 503], ["3", "Fri, 31 Dec 1999 23:59:59 GMT", "4"]
    assert SchemaRegistry(stub.url, world=clock).by_id(1).text == '"int"'
    assert clock.pauses == [3.0, pytest.approx(0.2, rel=0.2), 4.0]
    stub.failures, stub.retry_after, clock.pauses = [429], ["30"], []
    with pytest.raises(SchemaRegistryError, match="429"):
        SchemaRegistry(stub.url, world=clock).by_id(2)
    assert clock.pauses == []


def test_a_pause_ends_when_the_registry_is_closed(stub: StubRegistry) -> None:
    registry = SchemaRegistry(stub.url, timeout_ms=120_000)
    stub.failures, stub.retry_after = [503], ["100"]
    stub.on_answer = registry.close
    with pytest.raises(ClosedError, match="closed before /schemas/ids/1 was answered"):
        registry.by_id(1)
    assert stub.asked == ["/schemas/ids/1"]
    stub.register("s", '"int"')
    assert pickle.loads(pickle.dumps(registry)).by_id(1).text == '"int"', "another process has one of its own"


def test_another_registry_is_asked_when_one_is_away(stub: StubRegistry, clock: Clock) -> None:
    stub.register("s", '"int"')
    assert SchemaRegistry(f"http://127.0.0.1:1, {stub.url}/").latest("s").id == 1
    with pytest.raises(SchemaRegistryError, match=r"127\.0\.0\.1:1"):
        SchemaRegistry("http://127.0.0.1:1", timeout_ms=1_000).by_id(1)


def test_credentials_are_sent_but_not_shown(stub: StubRegistry) -> None:
    stub.register("s", '"int"')
    basic = SchemaRegistry(stub.url, user="me", password="secret")
    bearer = SchemaRegistry(stub.url, token="secret")
    basic.by_id(1), bearer.by_id(1)
    assert stub.authorization == ["Basic " + base64.b64encode(b"me:secret").decode(), "Bearer secret"]
    assert "secret" not in repr(basic) + repr(bearer)


@pytest.mark.parametrize("given", [{"user": "me", "password": "hush"}, {"token": "hush"}])
def test_no_local_variable_of_a_failure_shows_a_password(
    stub: StubRegistry, clock: Clock, given: dict[str, str]
) -> None:
    """``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled`` prints them all."""
    registry = SchemaRegistry(stub.url, **given)  # type: ignore[arg-type]
    secret = next(iter(registry._credentials().values()))
    with pytest.raises(SchemaRegistryError) as failed:
        registry.by_id(1)
    without_test = failed.value.with_traceback(failed.tb.tb_next)
    shown = "".join(traceback.TracebackException.from_exception(without_test, capture_locals=True).format())
    assert "failures = " in shown, "local variables are shown"
    assert "hush" not in shown and secret not in shown


def test_credentials_do_not_follow_a_redirect(stub: StubRegistry) -> None:
    stub.register("s", '"int"')
    with schema_registry() as other:
        other.redirect_to = stub.url
        assert SchemaRegistry(other.url, token="secret").by_id(1).text == '"int"'
        assert other.authorization == ["Bearer secret"]
    assert stub.authorization == [None]


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="pass them as user and password") as refused:
        SchemaRegistry("http://me:secret@localhost:8081")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"schema": 3}', b'{"schema": "1", "references": [{}]}', b"<html>", b"1"]
)
def test_an_answer_about_no_schema_is_an_error_of_the_registry(stub: StubRegistry, clock: Clock, body: bytes) -> None:
    stub.body = body
    with pytest.raises(SchemaRegistryError, match="/schemas/ids/1: "):
        SchemaRegistry(stub.url).by_id(1)


def test_an_answer_that_breaks_off_is_an_error_of_the_registry(stub: StubRegistry, clock: Clock) -> None:
    stub.body, stub.missing_bytes = b"{}", 10
    with pytest.raises(SchemaRegistryError, match="IncompleteRead"):
        SchemaRegistry(stub.url).by_id(1)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="must look like http://host:8081"):
        SchemaRegistry("localhost:8081")
