"""Subscriptions and pushes of clients: which ones match, when a client may push, and what the broker stores."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from tests.unit.broker_stub.api.node import running_node
from triokafka import errors
from triokafka.broker_stub.metadata.client_metrics_match import matches, why_refused
from triokafka.broker_stub.telemetry.client_telemetry import (
    MAX_SUBSCRIPTIONS,
    ClientFacts,
    ClientInstance,
    ClientTelemetry,
    TelemetryLimits,
    subscription_for,
)
from triokafka.metrics.otlp import Point, decode_metrics, encode_metrics
from triokafka.protocol.api.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.api.push_telemetry import PushTelemetryRequest
from triokafka.protocol.configuration import ConfigResourceType

ALL: Mapping[str, str] = {"metrics": "*", "interval.ms": "1000"}


def facts(number: int = 1, **changes: Any) -> ClientFacts:
    made = ClientFacts(UUID(int=number), "billing-7", "triokafka", "1.2", "10.0.0.5", "4711")
    return made._replace(**changes)


def admit(telemetry: ClientTelemetry, now: float, *, who: ClientFacts | None = None, **changes: Any) -> ClientInstance:
    who = facts() if who is None else who
    given = {
        "subscription_id": subscription_for(who, [ALL]).subscription_id,
        "terminating": False,
        "codec": 0,
        "accepted_codecs": (4, 1),
        "size": 10,
        "max_bytes": 100,
        **changes,
    }
    return telemetry.admit(who, [ALL], now, **given)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),
        ("client_software_name=triokafka,client_software_version=1\\..*", True),
        ("client_software_name=apache-kafka-java", False),
        ("client_source_address=10\\.0\\.0\\.5,client_source_port=4711", True),
        (f"client_instance_id={UUID(int=1)}", True),
    ],
)
def test_match_compares_whole_facts(match: str, expected: bool) -> None:
    found = subscription_for(facts(), [{"metrics": "a", "match": match}])
    assert found.metrics == (("a",) if expected else ())


def test_subscriptions_add_up_at_the_shortest_interval() -> None:
    found = subscription_for(
        facts(), [{"metrics": "b,a", "interval.ms": "5000"}, {"metrics": "c", "interval.ms": "900"}]
    )
    assert (found.metrics, found.interval_ms) == (("a", "b", "c"), 900)
    assert subscription_for(facts(), [{"metrics": "a"}, {"metrics": "*"}]).metrics == ("*",)
    nothing = subscription_for(facts(), [])
    assert (nothing.metrics, nothing.interval_ms) == ((), 300_000)
    assert nothing.subscription_id != found.subscription_id


def test_request_before_the_interval_is_throttled() -> None:
    telemetry = ClientTelemetry()
    telemetry.subscribe(facts(), [ALL], 0.0)
    with pytest.raises(errors.ThrottlingQuotaExceededError):
        telemetry.subscribe(facts(), [ALL], 0.9)
    admit(telemetry, 0.9)  # the first push after a subscription may come at any time
    with pytest.raises(errors.ThrottlingQuotaExceededError):
        admit(telemetry, 1.5)
    admit(telemetry, 2.0)


def test_last_push_may_come_at_any_time_and_only_once() -> None:
    telemetry = ClientTelemetry()
    telemetry.subscribe(facts(), [ALL], 0.0)
    admit(telemetry, 0.1)
    admit(telemetry, 0.2, terminating=True)
    with pytest.raises(errors.InvalidRequestError):
        admit(telemetry, 10.0)


def test_old_subscription_and_wrong_codec_are_refused_and_the_client_may_ask_at_once() -> None:
    telemetry = ClientTelemetry()
    telemetry.subscribe(facts(), [ALL], 0.0)
    with pytest.raises(errors.UnknownSubscriptionIdError):
        admit(telemetry, 0.1, subscription_id=5)
    assert telemetry.unknown_subscriptions == 1
    telemetry.subscribe(facts(), [ALL], 0.2)
    with pytest.raises(errors.UnsupportedCompressionTypeError):
        admit(telemetry, 0.3, codec=9)
    telemetry.subscribe(facts(), [ALL], 0.4)


def test_too_large_push_and_push_without_an_id_are_refused() -> None:
    telemetry = ClientTelemetry()
    with pytest.raises(errors.TelemetryTooLargeError):
        admit(telemetry, 0.0, size=101)
    with pytest.raises(errors.InvalidRequestError):
        admit(telemetry, 0.0, who=facts(0))


def test_instance_that_was_used_longest_ago_makes_room() -> None:
    telemetry = ClientTelemetry(TelemetryLimits(clients=10))
    for number in range(1, 12):
        telemetry.subscribe(facts(number), [], float(number))
    assert len(telemetry.instances) == 10
    assert UUID(int=1) not in telemetry.instances


def test_deltas_add_up_and_gauges_replace() -> None:
    instance = ClientInstance(facts(), subscription_for(facts(), [ALL]))
    for value in (5.0, 2.0):
        instance.take(
            [Point("sum", {"t": "x"}, value, True, True, 0, 1), Point("gauge", {}, value, False, False, 0, 1)],
            max_series=2,
        )
    assert instance.series == {("sum", (("t", "x"),)): 7.0, ("gauge", ()): 2.0}


def test_encoded_metrics_are_read_back() -> None:
    points = [
        Point("org.apache.kafka.producer.record.send.total", {"topic": "ü"}, 12.5, True, True, 5, 6),
        Point("sum", {}, 3.0, True, False, 5, 6),
        Point("gauge", {"a": "1", "b": "2"}, -1e300, False, False, 2**63, 2**63 + 1),
    ]
    assert decode_metrics(encode_metrics(points, {"group_id": "g"})) == points


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_cut_metrics_are_refused_or_shorter(cut: int) -> None:
    data = encode_metrics([Point("gauge", {"a": "1"}, 1.0, False, False, 1, 2)], {"group_id": "g"})
    with pytest.raises(ValueError):
        decode_metrics(data[:-cut])


def series(number: int, *, delta: bool = False, size: int = 10) -> Point:
    return Point(f"{number:0{size}}", {}, 1.0, delta, delta, 0, 1)


@pytest.mark.parametrize("delta", [False, True])
def test_series_beyond_the_most_are_not_kept(delta: bool) -> None:
    instance = ClientInstance(facts(), subscription_for(facts(), [ALL]))
    instance.take((series(number, delta=delta) for number in range(300)), max_series=200)
    assert len(instance.series) == 200


def test_series_with_a_very_long_name_is_not_kept() -> None:
    instance = ClientInstance(facts(), subscription_for(facts(), [ALL]))
    instance.take([series(1, size=100_000), series(2)], max_series=200)
    assert [name for name, _ in instance.series] == [f"{2:010}"]


def test_values_of_all_clients_are_bounded_and_the_oldest_go_first() -> None:
    telemetry = ClientTelemetry(TelemetryLimits(bytes=1 << 20))
    for number in range(1, 40):
        instance = admit(telemetry, float(number), who=facts(number))
        telemetry.take(instance, [series(n, size=2_000) for n in range(100)])
        assert telemetry.bytes == sum(instance.bytes for instance in telemetry.instances.values()) <= 1 << 20
    assert UUID(int=39) in telemetry.instances
    assert UUID(int=1) not in telemetry.instances


def test_long_names_of_software_are_cut() -> None:
    """The broker keeps them of every recent connection."""
    telemetry = ClientTelemetry()
    telemetry.note_software(("10.0.0.5", 4711), "a" * 32_000, "1" * 32_000)
    assert sum(map(len, telemetry.software_of(("10.0.0.5", 4711)))) < 1_000


def test_push_of_very_many_fields_is_refused() -> None:
    """Each field costs a microsecond, and a thousandth of a byte when it is compressed."""
    with pytest.raises(ValueError, match="more than 200000 fields"):
        decode_metrics(b"\x18\x00" * 300_000)
    with pytest.raises(ValueError, match="more than 10 fields"):
        decode_metrics(b"\x18\x00" * 11, max_fields=10)


def test_match_takes_linear_time() -> None:
    """The event loop matches the client's own text, which may be long."""
    hard = facts(client_id="a" * 30_000 + "!")
    found = subscription_for(hard, [{"metrics": "a", "match": "client_id=(a+)+b"}])
    assert found.metrics == ()


@pytest.mark.parametrize(
    ("pattern", "refused"),
    [("apache-kafka-java", False), ("billing-.*", False), ("1\\.[0-9]", False), ("(a|b)", True), ("a.*b", True)],
)
def test_patterns_without_re2_cannot_backtrack(pattern: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert ("google-re2" in why_refused(pattern)) is refused


@pytest.mark.parametrize("pattern", ["a(", "[", "(?=a)b"])
def test_patterns_that_cannot_be_matched_are_refused(pattern: str) -> None:
    assert why_refused(pattern)
    assert not matches(pattern, "a")


def test_subscriptions_are_read_once_and_the_first_thousand_apply() -> None:
    kind = int(ConfigResourceType.CLIENT_METRICS)
    configs = {(kind, f"s{number:04}"): {"metrics": f"m{number}"} for number in range(MAX_SUBSCRIPTIONS + 5, 0, -1)}
    configs[int(ConfigResourceType.TOPIC), "a"] = {}
    telemetry = ClientTelemetry()
    found = telemetry.subscriptions_in(configs)
    assert [config["metrics"] for config in found] == [f"m{number}" for number in range(1, MAX_SUBSCRIPTIONS + 1)]
    assert telemetry.subscriptions_in(configs) is found
    assert telemetry.subscriptions_in({(kind, "s"): {"metrics": "m"}}) == [{"metrics": "m"}]


async def test_limits_are_named_in_the_configuration() -> None:
    settings: dict[str, Any] = {
        "telemetry_max_clients": 1,
        "telemetry_max_series_per_client": 2,
        "telemetry_store_max_bytes": 1 << 20,
        "telemetry_max_fields": 100,
        "max_incremental_fetch_session_cache_partitions": 0,
    }
    every = AlterConfigsResource(
        resource_type=16, resource_name="all", configs=[AlterableConfig(name="metrics", value="*")]
    )
    async with running_node(**settings) as node:
        assert node.broker.fetch_sessions._max_partitions == 0
        assert (await node.call(IncrementalAlterConfigsRequest(resources=[every]), 1)).responses[0].error_code == 0

        async def push(client: int, points: int) -> int:
            who = UUID(int=client)
            found = await node.call(GetTelemetrySubscriptionsRequest(client_instance_id=who), 0)
            metrics = encode_metrics([series(number) for number in range(points)], {})
            request = PushTelemetryRequest(
                client_instance_id=who, subscription_id=found.subscription_id, metrics=metrics
            )
            return int((await node.call(request, 0)).error_code)

        assert await push(1, 3) == 0
        telemetry = node.broker.dispatcher.services.telemetry
        assert [len(one.series) for one in telemetry.instances.values()] == [2]
        assert await push(2, 30) == errors.InvalidRecordError.code
        assert list(telemetry.instances) == [UUID(int=2)]
