"""The results of `triokafka.read_topic` in Polars, DuckDB and pandas: every column, with nulls, headers and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars
import pytest
import trio

import triokafka

COUNT = 20
FIRST = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
TIMES = [FIRST + timedelta(milliseconds=number) for number in range(COUNT)]
KEYS = [b"key" if number % 2 else None for number in range(COUNT)]
VALUES = [b"%d\xff" % number if number % 3 else None for number in range(COUNT)]
# One name occurs twice, and one value is null; most records have no headers.
HEADERS = [[("a", b"1"), ("a", None)] if number % 5 == 0 else [] for number in range(COUNT)]
HEADERS_READ = [[{"key": name, "value": value} for name, value in headers] or None for headers in HEADERS]
LAYOUTS = ["binary", "view"]


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """Create a topic of one partition with those records."""

    async def fill() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            configs = {"retention.ms": "-1"}
            await admin.create_topics([triokafka.NewTopic(topic, 1, 1, configs=configs)])
        async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            for key, value, headers, time in zip(KEYS, VALUES, HEADERS, TIMES, strict=True):
                stamp = round(time.timestamp() * 1000)
                await producer.send(topic, value, key=key, headers=headers, timestamp_ms=stamp)

    trio.run(fill)
    return topic


@pytest.mark.parametrize("values", LAYOUTS)
def test_polars_reads_every_column(bootstrap: str, filled: str, values: Any) -> None:
    """Polars reads a table, or the reader itself."""

    def reader() -> Any:
        return triokafka.read_topic(filled, bootstrap_servers=bootstrap, values=values, batch_rows=7)

    frame = polars.from_arrow(reader().read_all())
    assert isinstance(frame, polars.DataFrame)
    assert frame.schema == {
        "key": polars.Binary(),
        "value": polars.Binary(),
        "topic": polars.String(),
        "partition": polars.Int32(),
        "offset": polars.Int64(),
        "timestamp": polars.Datetime("us", "UTC"),
        "timestampType": polars.Int32(),
        "headers": polars.List(polars.Struct({"key": polars.String(), "value": polars.Binary()})),
    }
    assert frame["key"].to_list() == KEYS
    assert frame["value"].to_list() == VALUES
    assert frame["offset"].to_list() == list(range(COUNT))
    assert frame["timestamp"].to_list() == TIMES
    assert frame["headers"].to_list() == HEADERS_READ
    assert polars.DataFrame(reader()).equals(frame)
    pieces = [polars.DataFrame(batch) for batch in reader()]
    assert [piece.height for piece in pieces] == [7, 7, 6]
    assert polars.concat(pieces).equals(frame)


@pytest.mark.parametrize("values", LAYOUTS)
def test_duckdb_reads_every_column_while_batches_arrive(bootstrap: str, filled: str, values: Any) -> None:
    reader = triokafka.read_topic(filled, bootstrap_servers=bootstrap, values=values, batch_rows=7)
    found = duckdb.from_arrow(reader).order('"offset"').to_arrow_table().to_pydict()
    assert (found["key"], found["value"], found["headers"]) == (KEYS, VALUES, HEADERS_READ)
    assert found["offset"] == list(range(COUNT))
    assert [time.timestamp() for time in found["timestamp"]] == [time.timestamp() for time in TIMES]
    again = triokafka.read_topic(filled, bootstrap_servers=bootstrap, values=values)  # noqa: F841 - DuckDB finds it by name
    counted = duckdb.sql(
        "SELECT headers[1].key, count(*), count(value), epoch_ms(max(timestamp)) FROM again GROUP BY 1"
    )
    assert sorted(counted.fetchall(), key=str) == [
        ("a", 4, 2, round(TIMES[15].timestamp() * 1000)),
        (None, 16, 11, round(TIMES[19].timestamp() * 1000)),
    ]


@pytest.mark.parametrize("values", LAYOUTS)
def test_pandas_reads_every_column(bootstrap: str, filled: str, values: Any) -> None:
    frame = triokafka.read_topic(filled, bootstrap_servers=bootstrap, values=values, batch_rows=7).read_pandas()
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"
    assert list(frame["timestamp"]) == TIMES
    assert list(frame["key"]) == KEYS
    assert list(frame["value"]) == VALUES
    assert list(frame["offset"]) == list(range(COUNT))
    assert [None if headers is None else list(headers) for headers in frame["headers"]] == HEADERS_READ


@pytest.fixture
def empty(bootstrap: str, topic: str) -> str:
    """Create a topic without records."""

    async def make() -> None:
        async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, 1, 1)])

    trio.run(make)
    return topic


def test_a_topic_without_records_has_all_columns(bootstrap: str, empty: str) -> None:
    def reader() -> Any:
        return triokafka.read_topic(empty, bootstrap_servers=bootstrap, columns=["value", "timestamp"])

    assert polars.DataFrame(reader()).schema == {"value": polars.Binary(), "timestamp": polars.Datetime("us", "UTC")}
    assert list(reader().read_pandas().columns) == ["value", "timestamp"]
    nothing = reader()  # noqa: F841 - DuckDB finds it by name
    assert duckdb.sql("SELECT count(*), max(octet_length(value)) FROM nothing").fetchall() == [(0, None)]
