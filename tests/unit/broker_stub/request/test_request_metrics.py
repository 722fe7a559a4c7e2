"""The broker's metrics of the cost of requests."""

from __future__ import annotations

import pytest

from triokafka.broker_stub.request.error_counts import error_counter
from triokafka.broker_stub.request.request_metrics import METRICS, ApiMetrics, RequestMetrics
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorResponse
from triokafka.protocol.api.heartbeat import HeartbeatResponse
from triokafka.protocol.api.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from triokafka.protocol.api.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


def times(total: float, size: int = 100) -> tuple[float, float, float, float, float, float, float, int]:
    """A request that never waited."""
    return (0.0, total, 0.0, 0.0, 0.0, 0.0, total, size)


def test_metrics_sum_up_all_requests_and_take_quantiles_of_the_last() -> None:
    """In milliseconds; sums and maxima cover all requests."""
    metrics = ApiMetrics()
    metrics.record(9, times(5.0))
    for number in range(2000):
        metrics.record(number % 2, times(number % 100 / 1000))
    found = metrics.summaries()
    total = found["TotalTimeMs"]
    assert (metrics.count, total.requests) == (2001, 2001)
    assert total.total == pytest.approx(5000 + 20 * sum(range(100)))
    assert total.most == 5000
    assert total.quantiles[0.5] == pytest.approx(50, abs=2)
    assert total.quantiles[0.99] == pytest.approx(99, abs=1)
    assert found["RequestBytes"].most == 100
    assert metrics.by_version == {9: 1, 0: 1000, 1: 1000}
    assert metrics.summaries() == found, "reading changes nothing"


def test_api_without_requests_has_empty_metrics() -> None:
    """Every name is there from the start."""
    metrics = RequestMetrics()
    assert {name: summary.requests for name, summary in metrics.api("Fetch").summaries().items()} == dict.fromkeys(
        METRICS, 0
    )
    assert metrics.count == 0


def test_fetch_of_a_consumer_counts_once_though_it_is_under_two_names() -> None:
    metrics = RequestMetrics()
    for name in ("Fetch", "FetchConsumer", "Produce"):
        metrics.api(name).record(0, times(1))
    assert metrics.count == 2
    assert [name for name, _ in metrics] == ["Fetch", "FetchConsumer", "Produce"]


def test_error_codes_are_found_wherever_a_response_has_them() -> None:
    """0 is counted, too: a rate of errors needs the rate of all."""
    for response, expected in (
        (HeartbeatResponse(error_code=27), {27: 1}),
        (
            ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        partition_responses=[PartitionProduceResponse(error_code=code) for code in (0, 6, 6)]
                    )
                ]
            ),
            {0: 1, 6: 2},
        ),
        (
            FetchResponse(
                error_code=71, responses=[FetchableTopicResponse(partitions=[PartitionData(error_code=3)])] * 2
            ),
            {71: 1, 3: 2},
        ),
        (
            MetadataResponse(
                topics=[MetadataResponseTopic(error_code=5, partitions=[MetadataResponsePartition(error_code=9)])]
            ),
            {0: 1, 5: 1, 9: 1},
        ),
        (FindCoordinatorResponse(coordinators=[Coordinator(error_code=15)]), {0: 1, 15: 1}),
    ):
        counts: dict[int, int] = {}
        count = error_counter(type(response))
        assert count is not None
        count(response, counts)
        assert counts == expected
