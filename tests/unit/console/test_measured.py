"""The console's measurements over time, its requests to brokers, and its limits."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triokafka.client.admin.types import TopicDescription
from triokafka.console.charted_metrics import readings
from triokafka.console.cluster_metrics import TOTAL, ClusterMetrics
from triokafka.console.limits import ConsoleLimits
from triokafka.console.series import LINES, CounterRates, SeriesHistory
from triokafka.console.sessions import LoginFailures, note
from triokafka.structs import TopicPartition

EXPORTED = """\
# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes.
kafka_server_brokertopicmetrics_bytesin_total 100
kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 60
kafka_network_requestmetrics_requests_total{request="Fetch",version="4"} 2
kafka_network_requestmetrics_requests_total{request="Produce",version="9",client="a \\"b\\" {c}"} 3
kafka_network_requestmetrics_errors_total{request="Fetch",error="NONE"} 5
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 12.5
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.5"} 1
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent 0.5
kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"} NaN
kafka_server_socket_server_metrics_connection_count{listener="SSL"} seven
kafka_server_socket_server_metrics_connection_count garbage of an exporter
"""


def test_exported_metrics_are_read_and_summed() -> None:
    found = readings(EXPORTED)
    assert found == {"bytes-in": 100, "requests": 5, "produce-time": 12.5, "idle": 50}


def test_name_of_a_client_cannot_add_a_metric() -> None:
    forged = "\u2028kafka_server_brokertopicmetrics_bytesin_total 9\u2028"
    assert readings(f'kafka_server_produce_byte_rate{{client_id="{forged}"}} 1\n') == {}


def test_series_are_bounded_and_the_quietest_goes_first() -> None:
    history = SeriesHistory(most_series=3, most_samples=2)
    for now in range(4):
        history.add("c", "busy", now, now)
        history.add("c", f"other {now}", now, now)
    assert len(history) == 3
    assert history.of("c") == {"busy": [[2, 2], [3, 3]], "other 2": [[2, 2]], "other 3": [[3, 3]]}
    assert history.of("c", since_ms=2)["other 2"] == []


def test_chart_has_the_highest_lines_and_fresh_ones_before_stale_ones() -> None:
    history = SeriesHistory(100, 10)
    history.add("c", "stale", 1, 1_000)
    for number in range(LINES):
        history.add("c", f"line {number}", 2, number)
    assert "stale" not in history.of("c")
    assert len(history.of("c")) == LINES


def test_rate_needs_two_readings_and_a_reset_has_none() -> None:
    rates = CounterRates()
    assert rates.next(1, {"a": 10}) == {}
    assert rates.next(3, {"a": 30, "b": 1}) == {"a": 10}
    assert rates.next(4, {"a": 5, "b": 2}) == {"b": 1}


def topic(name: str, partitions: int) -> TopicDescription:
    made: dict[str, Any] = {"leader": object(), "isr": [1], "replicas": [1, 2]}
    parts = [SimpleNamespace(partition=number, **made) for number in range(partitions)]
    return SimpleNamespace(name=name, partitions=parts)  # type: ignore[return-value]


def test_partitions_of_topics_on_screen_are_sampled_first() -> None:
    metrics = ClusterMetrics(ConsoleLimits(sampled_partitions=3))
    chosen = metrics.to_sample({"a": topic("a", 2), "b": topic("b", 2)}, ["b", "gone"])
    assert chosen == [TopicPartition("b", 0), TopicPartition("b", 1), TopicPartition("a", 0)]
    assert metrics.left_out == 1


def test_end_offsets_become_rates_by_topic() -> None:
    metrics = ClusterMetrics(ConsoleLimits())
    one, two, other = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("quiet", 0)
    metrics.add_ends(0, 1, {one: 0, two: 0, other: 5})
    metrics.add_ends(2, 2, {one: 10, two: 30, other: 5})
    (chart,) = metrics.charts(0)
    assert chart["series"] == {"a": [[2, 20]], TOTAL: [[2, 20]]}


def test_limits_have_names_and_refuse_others() -> None:
    limits = ConsoleLimits.of({"search.max.records": "5", "max.tails": "1"})
    assert (limits.search_max_records, limits.max_tails, limits.max_sessions) == (5, 1, 50)
    with pytest.raises(ValueError, match=r"did you mean max\.tails"):
        ConsoleLimits.of({"max.tail": "1"})
    for text in ("0", "-1", "", "²", "9" * 11, "1e3"):
        with pytest.raises(ValueError, match=r"max\.tails"):
            ConsoleLimits.of({"max.tails": text})


def test_page_lists_every_limit_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "console.md").read_text("utf-8")
    for field in fields(ConsoleLimits):
        assert f"| `{field.name.replace('_', '.')}` | {field.default:,} |" in page


def test_refused_logins_of_an_address_are_bounded_within_a_minute() -> None:
    failures = LoginFailures(2)
    failures.add("a", 0.0)
    assert not failures.too_many("a", 1.0)
    failures.add("a", 1.0)
    assert failures.too_many("a", 2.0)
    assert not failures.too_many("b", 2.0)
    assert not failures.too_many("a", 60.5)


def test_names_seen_by_a_session_are_bounded() -> None:
    seen: dict[str, float] = {}
    for number in range(1_000):
        note(seen, f"group {number}", float(number))
    assert len(seen) == 100
    assert "group 999" in seen
