"""The lag of a query, and where it is reported."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.support.logged import lines
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.spark.listener import offset_commit_listener as listener
from triokafka.spark.listener.offset_commit_listener import OffsetCommitListener
from triokafka.spark.listener.query_lag import LogExporter, PrometheusExporter, SourceLag, lag, progress_lag
from triokafka.structs import TopicPartition

A, B, C = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)


def source(end: Any, latest: Any = None, description: str = "triokafka") -> dict[str, Any]:
    """Return a source in a progress, its offsets as text, as Spark passes them."""
    return {
        "description": description,
        "startOffset": "null",
        "endOffset": json.dumps(end),
        "latestOffset": json.dumps(latest),
        "numInputRows": 1,
    }


def progress(*sources: dict[str, Any], name: str | None = "totals", batch: int = 7) -> dict[str, Any]:
    return {"id": "11-22", "name": name, "batchId": batch, "sources": list(sources)}


class RecordingListener:
    """A listener whose commits and exports are recorded instead of executed."""

    def __init__(self, group: str | None = "watchers", **settings: Any) -> None:
        self.commits: list[tuple[str, dict[TopicPartition, int]]] = []
        self.exported: list[SourceLag] = []
        self.listener = OffsetCommitListener(
            group, bootstrap_servers="nowhere:1", exporters=[self.exported.append], **settings
        )
        self.listener._commit = lambda group_id, offsets: self.commits.append((group_id, dict(offsets)))


def test_the_three_numbers_have_the_connectors_names_and_are_text() -> None:
    """Promised: behind-latest metrics"""
    (found,) = progress_lag(progress(source({"orders": {"0": 5, "1": 9}}, {"orders": {"0": 10, "1": 10}})))
    assert found.behind == {A: 5, B: 1}
    assert found.metrics() == {
        "minOffsetsBehindLatest": "1",
        "maxOffsetsBehindLatest": "5",
        "avgOffsetsBehindLatest": "3.0",
    }


def test_nothing_is_reported_where_the_latest_offsets_are_unknown() -> None:
    """Spark 4.0 and 4.1 do not ask a Python source for them."""
    (found,) = progress_lag(progress(source({"orders": {"0": 5}})))
    assert found.metrics() == {} and found.behind == {}


def test_a_partition_that_the_query_does_not_know_yet_counts_from_its_beginning() -> None:
    (found,) = progress_lag(progress(source({"orders": {"0": 5}}, {"orders": {"0": 5, "1": 3}})))
    assert found.behind == {A: 0, B: 3}


def test_sources_that_are_not_of_kafka_are_skipped() -> None:
    rate = source(7, 8, description="RateStreamV2")
    files = source({"logOffset": 3}, description="FileStreamSource")
    found = progress_lag(progress(rate, source({"orders": {"0": 5}}), files, source(None)))
    assert [one.topics for one in found] == [("orders",)]


def test_the_lag_of_a_query_is_that_of_its_last_progress() -> None:
    class Asked:
        lastProgress: Any = None

    assert lag(Asked()) == []
    Asked.lastProgress = progress(source({"orders": {"0": 5}}, {"orders": {"0": 6}}))
    assert [found.behind for found in lag(Asked())] == [{A: 1}]


def test_the_listener_commits_the_end_of_every_batch() -> None:
    recorder = RecordingListener()
    recorder.listener.take(progress(source({"orders": {"0": 5, "1": 6}}), source({"payments": {"0": 1}})))
    recorder.listener.take(progress(source({"orders": {"0": 8, "1": 6}})))
    assert recorder.commits == [("watchers", {A: 5, B: 6, C: 1}), ("watchers", {A: 8, B: 6})]


def test_of_two_sources_of_one_partition_the_one_that_is_behind_is_committed() -> None:
    """Otherwise the group would be ahead of the query."""
    recorder = RecordingListener()
    ahead, behind = source({"orders": {"0": 9, "1": 4}}), source({"orders": {"0": 5, "1": 6}})
    recorder.listener.take(progress(behind, ahead))
    recorder.listener.take(progress(ahead, behind))
    assert recorder.commits == [("watchers", {A: 5, B: 4})] * 2


def test_sources_are_matched_by_their_topics_and_only_these_are_committed() -> None:
    recorder = RecordingListener(topics=["payments"])
    recorder.listener.take(progress(source({"orders": {"0": 5}}), source({"payments": {"0": 1}, "orders": {"1": 2}})))
    recorder.listener.take(progress(source({"orders": {"0": 6}})))
    assert recorder.commits == [("watchers", {C: 1})]
    assert [found.topics for found in recorder.exported] == [("orders", "payments")]


def test_sources_are_matched_by_their_description() -> None:
    recorder = RecordingListener(description="KafkaV2")
    recorder.listener.take(
        progress(
            source({"orders": {"0": 5}}), source({"payments": {"0": 1}}, description="KafkaV2[Subscribe[payments]]")
        )
    )
    assert recorder.commits == [("watchers", {C: 1})]


@pytest.mark.parametrize(("queries", "meant"), [(["totals"], True), (["11-22"], True), (["others"], False)])
def test_queries_are_matched_by_name_or_id(queries: list[str], meant: bool) -> None:
    recorder = RecordingListener(queries=queries)
    recorder.listener.take(progress(source({"orders": {"0": 5}})))
    assert bool(recorder.commits) is meant


def test_without_a_group_only_exporters_receive_progress() -> None:
    recorder = RecordingListener(None)
    recorder.listener.take(progress(source({"orders": {"0": 5}})))
    assert recorder.commits == [] and len(recorder.exported) == 1


def test_a_failing_exporter_affects_neither_the_others_nor_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = RecordingListener()

    def broken(found: SourceLag) -> None:
        raise OSError("the gateway is down")

    recorder.listener._exporters = (broken, *recorder.listener._exporters)
    recorder.listener.take(progress(source({"orders": {"0": 5}})))
    assert recorder.commits == [("watchers", {A: 5})] and len(recorder.exported) == 1
    assert "the gateway is down" in caplog.text


def test_failure_in_a_listener_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Event:
        progress: Any = None

    recorder = RecordingListener()
    recorder.listener.onQueryProgress(Event())
    assert "group 'watchers': the offsets of a micro-batch were not committed" in caplog.text


def test_a_group_that_cannot_be_committed_to_is_a_warning_with_the_offsets(caplog: pytest.LogCaptureFixture) -> None:
    listener = OffsetCommitListener("watchers", bootstrap_servers="127.0.0.1:1", timeout_ms=200)
    listener.take(progress(source({"orders": {"0": 5}})))
    (record,) = [one for one in caplog.records if one.name == "triokafka.spark"]
    assert record.levelno == logging.WARNING
    assert 'offsets {"orders":{"0":5}} were not committed to group \'watchers\'' in record.getMessage()


def test_a_wrong_option_is_refused_before_the_first_batch() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'bootstrap_servers'"):
        OffsetCommitListener("watchers", bootstrap_server="a:1")


def test_passwords_are_not_shown() -> None:
    made = OffsetCommitListener("watchers", bootstrap_servers="a:1", client_id="hush")
    assert "hush" not in repr(made) and "hush" not in repr(vars(made))


def test_clients_are_cached_under_names_that_show_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark can print every local variable of a failed call."""
    keys: list[Any] = []

    class RecordingCache:
        def shared(self, key: Any, make: Any) -> Any:
            keys.append(key)
            raise KafkaError("closed")

    monkeypatch.setattr(listener, "client_cache", RecordingCache)
    for password in ("hush", "hush", "other"):
        options = {"bootstrap_servers": "a:1", "sasl_plain_password": password}
        assert not listener.commit_to_group(options, "watchers", {A: 5}, 1_000)
    assert "hush" not in repr(keys)
    assert keys[0] == keys[1] != keys[2]


def test_logs_have_one_line_for_each_source_and_batch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    exporter = LogExporter()
    for one in progress_lag(
        progress(source({"orders": {"0": 5}}, {"orders": {"0": 7}}), source({"payments": {"0": 1}}))
    ):
        exporter(one)
    assert lines(caplog, "triokafka.spark") == [
        "query totals batch 7, orders: minOffsetsBehindLatest=2 maxOffsetsBehindLatest=2 avgOffsetsBehindLatest=2.0",
        "query totals batch 7, payments: the latest offsets are not known",
    ]


def test_prometheus_gets_the_last_numbers_of_each_query() -> None:
    exporter = PrometheusExporter()
    for end in (3, 5):
        for one in progress_lag(progress(source({"orders": {"0": end}}, {"orders": {"0": 7}}), name='a "name"')):
            exporter(one)
    labels = r'query_id="11-22",query="a \"name\"",topics="orders"'
    lines = exporter.text().splitlines()
    assert f"triokafka_spark_max_offsets_behind_latest{{{labels}}} 2" in lines
    assert f"triokafka_spark_avg_offsets_behind_latest{{{labels}}} 2.0" in lines
    assert f'triokafka_spark_offsets_behind_latest{{{labels},topic="orders",partition="0"}} 2' in lines
    assert lines.count("# TYPE triokafka_spark_min_offsets_behind_latest gauge") == 1
    exporter.forget("11-22")
    assert exporter.text() == ""


def test_prometheus_forgets_topics_that_a_pattern_does_not_match_any_more() -> None:
    """Otherwise they would lag forever, and count twice while they exist."""
    exporter = PrometheusExporter()
    batches = [
        [source({"orders": {"0": 3}}, {"orders": {"0": 7}}), source({"payments": {"0": 1}}, {"payments": {"0": 9}})],
        [source({"orders": {"0": 7}, "more": {"0": 1}}, {"orders": {"0": 7}, "more": {"0": 2}})],
        [source({"more": {"0": 2}}, {"more": {"0": 2}}), source({"orders": {"0": 7}}, {"orders": {"0": 7}})],
    ]
    outputs = []
    for number, sources in enumerate(batches):
        for one in progress_lag(progress(*sources, batch=number)):
            exporter(one)
        outputs.append(
            [line.split('topics="')[1] for line in exporter.text().splitlines() if "_max_offsets" in line[:30]]
        )
    assert outputs == [['orders"} 4', 'payments"} 8'], ['more,orders"} 1'], ['more"} 0', 'orders"} 0']]
