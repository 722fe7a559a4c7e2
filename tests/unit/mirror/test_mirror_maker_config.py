"""MirrorMaker 2's properties files are read as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from triokafka.cli.mirror.sides import from_kafka_names
from triokafka.errors import ConfigurationError
from triokafka.mirror.mirror_maker_config import parse_mirror_maker

FILE = {
    "clusters": "west, east",
    "west.bootstrap.servers": "w1:9092,w2:9092",
    "east.bootstrap.servers": "e1:9092",
    "east.security.protocol": "SSL",
    "west->east.enabled": "true",
    "west->east.topics": "orders, pay.*",
    "topics": "never",
    "east->west.enabled": "false",
    "replication.factor": "3",
    "sync.group.offsets.enabled": "true",
    "emit.checkpoints.interval.seconds": "5",
    "refresh.topics.interval.seconds": "60",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "east.exactly.once.source.support": "enabled",
    "tasks.max": "4",
}


def parsed(**changes: str | None) -> Any:
    given: Mapping[str, str | None] = {**FILE, **changes}
    return parse_mirror_maker({key: value for key, value in given.items() if value is not None}, from_kafka_names)


def test_enabled_flows_have_their_settings() -> None:
    found = parsed()
    (flow,) = found.flows
    assert (flow.source_alias, flow.target_alias) == ("west", "east")
    assert flow.source["bootstrap_servers"] == "w1:9092,w2:9092"
    assert flow.target == {"bootstrap_servers": "e1:9092", "security_protocol": "SSL"}
    assert flow.topics == ("orders", "pay.*")
    assert (flow.replication_factor, flow.naming, flow.exactly_once) == (3, "identity", True)
    assert (flow.sync_group_offsets, flow.checkpoint_interval_ms, flow.refresh_interval_ms) == (True, 5_000, 60_000)


def test_settings_without_effect_are_named() -> None:
    assert parsed().ignored == ["tasks.max"]


def test_both_directions_are_two_flows() -> None:
    found = parsed(**{"east->west.enabled": "true"})
    assert [(flow.source_alias, flow.topics) for flow in found.flows] == [
        ("west", ("orders", "pay.*")),
        ("east", ("never",)),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"clusters": None}, "clusters is not set"),
        ({"west->east.enabled": "false"}, "no flow is enabled: set west->east.enabled"),
        ({"east.bootstrap.servers": None}, "east.bootstrap.servers is not set"),
        ({"replication.factor": "many"}, "replication.factor='many'"),
        ({"sync.group.offsets.enabled": "maybe"}, "sync.group.offsets.enabled='maybe': it must be true or false"),
        ({"replication.policy.class": "com.example.Own"}, "custom replication policies are not supported"),
        ({"offset-syncs.topic.location": "moon"}, "offset_syncs='moon' is not one of source, target, none"),
    ],
)
def test_wrong_file_is_an_error_that_names_the_setting(changes: dict[str, str | None], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parsed(**changes)
